"""Mistakes that a checker must find, each on its own line. The comment says what; the test compares line by line."""

from datetime import UTC, datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    coupon: str | None = None
    at: datetime


NOW = datetime.now(UTC)
clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
lf.Topic("clicks", Click, key=Click.userid, time=Click.at)  # error: misspelt field as the key
lf.Topic("clicks", Click, key=Click.user_id, time=Click.when)  # error: misspelt field as the time
lf.Topic("clicks", dict, key=Click.user_id, time=Click.at)  # error: not an event
lf.Topic("clicks", Click, key=Click.user_id)  # error: no event time
lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, lateness=600)  # error: an int is no duration
lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, parts=3)  # error: no such option


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spend_24h = lf.sum(Click.price, "24h")
    last_item = lf.last(Click.item_id, "7d")


class Mistakes(lf.Features, of=clicks, by=Click.user_id):
    window = lf.count(3600)  # error: an int is no window
    step = lf.count("1h", step=60)  # error: an int is no step
    field = lf.sum(Click.prise, "24h")  # error: misspelt field
    text = lf.sum(Click.item_id, "24h")  # error: sum of a string
    missing = lf.sum(Click.coupon, "24h")  # error: sum of an optional string
    moment = lf.sum(Click.at, "24h")  # error: sum of a datetime
    where = lf.count("1h", where=Click.item_id)  # error: a field is no condition
    kinds = lf.count("1h", where=Click.price > "100")  # error: a float compared with a text
    condition = lf.count("1h", where=Click.prise > 100)  # error: misspelt field in a condition
    option = lf.count("1h", scale=2)  # error: a count has no scale


class NoKey(lf.Features, of=clicks):  # error: no key
    clicks_1h = lf.count("1h")


Click(user_id="u", item_id="i", at=NOW)  # error: a required field is missing
Click(user_id="u", item_id="i", price="1", at=NOW)  # error: a text for a number
Click(user_id="u", item_id="i", price=1.0, at=NOW, colour="red")  # error: no such field
click = Click(user_id="u", item_id="i", price=1.0, at=NOW)
click.prise  # error: misspelt field of an event
click.price = 2.0  # error: events are frozen

row = UserActivity.compute([click], at=NOW)
row.clicks_2h  # error: misspelt feature of a computed row
text: str = row.clicks_1h  # error: a count is an int
number: float = row.spend_24h  # error: a sum may be None
item: int | None = row.last_item  # error: the last item is a text
UserActivity.clicks_2h  # error: misspelt feature of a view
UserActivity.compute([click])  # error: no moment
UserActivity.compute(["click"], at=NOW)  # error: not an event


def serve(app: lf.App) -> None:
    read = app.get(UserActivity, user_id="u42")
    read.clicks_2h  # error: misspelt feature of a row
    count: str = read.clicks_1h  # error: a count is an int
    app.get(Click, user_id="u42")  # error: an event is no view
    app.profile.namspace  # error: misspelt setting
    print(count)
