"""Mistakes that a checker must find, each on its own line. The comment says what; the test compares line by line."""

from datetime import UTC, datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    pieces: int
    coupon: str | None = None
    at: datetime


class ItemUpdate(lf.Event):
    item_id: str
    category: str
    stock: int | None = None


class Customer(lf.Event):
    customer_id: str
    email: lf.Personal[str]
    born: lf.Personal[int] = "1990"  # error: a text as the default of an int that is personal


NOW = datetime.now(UTC)
Customer(customer_id="c", email=7)  # error: an int for a text that is personal
Customer(customer_id="c")  # error: a personal field without a default is missing
clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)
lf.Topic("clicks", Click, key=Click.userid, time=Click.at)  # error: misspelt field as the key
lf.Topic("clicks", Click, key=Click.user_id, time=Click.when)  # error: misspelt field as the time
lf.Topic("clicks", dict, key=Click.user_id, time=Click.at)  # error: not an event
lf.Topic("clicks", Click, key=Click.user_id)  # error: no event time
lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, lateness=600)  # error: an int is no duration
lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, parts=3)  # error: no such option
lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, format="xml")  # error: no such format
lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True, retention="7d")  # error: it is kept for ever


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spend_24h = lf.sum(Click.price, "24h")
    pieces_24h = lf.sum(Click.pieces, "24h")
    price_24h = lf.mean(Click.price, "24h")
    first_at = lf.min(Click.at, None)
    last_item = lf.last(Click.item_id, "7d")
    recent = lf.last_n(Click.item_id, "7d", n=5)
    items_7d = lf.distinct(Click.item_id, "7d")
    per_click = spend_24h / clicks_1h


class Mistakes(lf.Features, of=clicks, by=Click.user_id):
    window = lf.count(3600)  # error: an int is no window
    step = lf.count("1h", step=60)  # error: an int is no step
    field = lf.sum(Click.prise, "24h")  # error: misspelt field
    text = lf.sum(Click.item_id, "24h")  # error: sum of a string
    missing = lf.sum(Click.coupon, "24h")  # error: sum of an optional string
    moment = lf.sum(Click.at, "24h")  # error: sum of a datetime
    mean_text = lf.mean(Click.item_id, "24h")  # error: mean of a string
    mean_moment = lf.mean(Click.at, "24h")  # error: mean of a datetime
    min_text = lf.min(Click.item_id, "24h")  # error: min of a string
    max_text = lf.max(Click.coupon, "24h")  # error: max of an optional string
    distinct_float = lf.distinct(Click.price, "24h")  # error: distinct of a float
    no_window = lf.mean(Click.item_id)  # error: a label, for an outcome, and the mean of a string
    no_n = lf.last_n(Click.item_id, "7d")  # error: how many?
    n_text = lf.last_n(Click.item_id, "7d", n="5")  # error: a text for a number
    ttl = lf.count(None, ttl=3600)  # error: an int is no duration
    where = lf.count("1h", where=Click.item_id)  # error: a field is no condition
    kinds = lf.count("1h", where=Click.price > "100")  # error: a float compared with a text
    condition = lf.count("1h", where=Click.prise > 100)  # error: misspelt field in a condition
    option = lf.count("1h", scale=2)  # error: a count has no scale
    min_scale = lf.min(Click.price, "1h", scale=2)  # error: a minimum has no scale
    default_text = lf.sum(Click.price, "24h").default("0")  # error: a text as the default of a float
    default_int = lf.last(Click.item_id, "24h").default(0)  # error: an int as the default of a text
    default_float = lf.sum(Click.pieces, "24h").default(0.5)  # error: a float as the default of an int
    default_none = lf.sum(Click.price, "24h").default(None)  # error: None is the default already
    default_count = lf.count("24h").default(0)  # error: a count is never None
    default_list = lf.last_n(Click.item_id, "24h", n=5).default([])  # error: a list is never None
    text_formula = lf.last(Click.item_id, "24h") + 1  # error: arithmetic of a text
    list_formula = lf.count("1h") / lf.last_n(Click.price, "24h", n=5)  # error: arithmetic of a list
    moment_formula = lf.max(Click.at, "24h") - lf.min(Click.at, "24h")  # error: arithmetic of moments
    by_text = lf.sum(Click.price, "24h") * "2"  # error: arithmetic with a text
    from_text = "2" * lf.sum(Click.price, "24h")  # error: arithmetic from a text
    field_formula = lf.count("1h") / Click.item_id  # error: arithmetic with a field of text


class NoKey(lf.Features, of=clicks):  # error: no key
    clicks_1h = lf.count("1h")


class NoOption(lf.Features, of=clicks, by=Click.user_id, nmae="x"):  # error: misspelt option of a view
    clicks_1h = lf.count("1h")


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category
    stock = lf.latest(ItemUpdate.stock)


class TableMistakes(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.categori  # error: misspelt field of a table
    stock = lf.latest(ItemUpdate.stok)  # error: misspelt field of a column
    default = lf.latest(ItemUpdate.category).default(0)  # error: an int as the default of a text


class NoTableKey(lf.Table, of=items):  # error: no key of the table
    category = ItemUpdate.category


@lf.view(clicks, by="item_id")
def trending(clicks: object) -> object:
    return clicks


@lf.view(clicks)  # error: a view needs a key
def no_key(clicks: object) -> object:
    return clicks


@lf.view(clicks, by="item_id", to=["online"])  # error: a text is no sink
def no_sink(clicks: object) -> object:
    return clicks


@lf.view(clicks, by="item_id")  # error: a view is given one DataFrame
def two(clicks: object, others: object) -> object:
    return clicks


@lf.stream(clicks)  # error: a stream needs the event of its rows
def no_event(clicks: object) -> object:
    return clicks


@lf.stream("clicks", event=Click)  # error: a text is no topic
def no_topic(clicks: object) -> object:
    return clicks


class RankerInput(lf.Vector):
    clicks_1h = UserActivity.clicks_1h
    per_click = UserActivity.per_click.default(0.0)
    spend = UserActivity.spend_24h
    category = Item.category
    trend = trending.column("n", int)
    cart_value = lf.request(float)


class VectorMistakes(lf.Vector):
    clicks_2h = UserActivity.clicks_2h  # error: misspelt feature in a vector
    category = Item.categori  # error: misspelt column of a table in a vector
    default_text = UserActivity.per_click.default("0")  # error: a text as the default of a float, in a vector
    default_int = UserActivity.last_item.default(0)  # error: an int as the default of a text, in a vector
    trend = trending.column("n", list)  # error: no kind of a column
    trend_default = trending.column("n", int).default("0")  # error: a text as the default of an int column
    moment = lf.request(datetime)  # error: no kind of a request
    named = lf.request("float")  # error: a request takes a type
    nothing = lf.request()  # error: a request of what?


class VectorOf(lf.Vector, of=clicks):  # error: a vector is of no topic
    clicks_1h = UserActivity.clicks_1h


Click(user_id="u", item_id="i", pieces=1, at=NOW)  # error: a required field is missing
Click(user_id="u", item_id="i", price="1", pieces=1, at=NOW)  # error: a text for a number
Click(user_id="u", item_id="i", price=1.0, pieces=1, at=NOW, colour="red")  # error: no such field
click = Click(user_id="u", item_id="i", price=1.0, pieces=1, at=NOW)
click.prise  # error: misspelt field of an event
click.price = 2.0  # error: events are frozen

row = UserActivity.compute([click], at=NOW)
row.clicks_2h  # error: misspelt feature of a computed row
text: str = row.clicks_1h  # error: a count is an int
number: float = row.spend_24h  # error: a sum may be None
whole: int = row.pieces_24h  # error: a sum of ints may be None
mean: float = row.price_24h  # error: a mean may be None
moment: datetime = row.first_at  # error: a minimum may be None
item: int | None = row.last_item  # error: the last item is a text
recent: list[int] = row.recent  # error: the last items are texts
distinct: str = row.items_7d  # error: distinct is an int
derived: float = row.per_click  # error: a quotient may be None
build: str = row.provenance.build  # error: provenance is one for each view
UserActivity.clicks_2h  # error: misspelt feature of a view
Item.categori  # error: misspelt column of a table
RankerInput.clicks_2h  # error: misspelt feature of a vector
UserActivity.compute([click])  # error: no moment
UserActivity.compute(["click"], at=NOW)  # error: not an event
RankerInput.compute([click], at=NOW)  # error: a vector computes nothing


def serve(app: lf.App) -> None:
    read = app.get(UserActivity, user_id="u42")
    read.clicks_2h  # error: misspelt feature of a row
    count: str = read.clicks_1h  # error: a count is an int
    app.get(Click, user_id="u42")  # error: an event is no view
    app.get(UserActivity, {"user_id": "u42"})  # error: a key is given by name
    app.get(UserActivity, user_id="u42", at="now")  # error: a text is no moment
    app.get_many(UserActivity, user_id="u42")  # error: no keys
    app.get_many(UserActivity, ["u42"])[0]  # error: a key is a mapping
    app.get_many(UserActivity, [{"user_id": "u42"}])[0].clicks_2h  # error: misspelt feature of one of many
    item_row = app.get(Item, item_id="i7")
    item_row.categori  # error: misspelt column of a row
    stock: int = item_row.stock  # error: a stock may be None
    vector = app.get(RankerInput, user_id="u42", item_id="i7", cart_value=31.0)
    vector.clicks_2h  # error: misspelt feature of a vector's row
    clicks_1h: str = vector.clicks_1h  # error: a count is an int, in a vector
    per_click: int = vector.per_click  # error: a quotient with a default is a float
    spend: float = vector.spend  # error: a sum may be None, in a vector
    trend: int = vector.trend  # error: a column may be None, in a vector
    cart_value: str = vector.cart_value  # error: what was asked for is a float
    app.profile.namspace  # error: misspelt setting
    print(count, stock, clicks_1h, per_click, spend, trend, cart_value)


async def serve_async(app: lf.App) -> None:
    app.aget(UserActivity, user_id="u42").clicks_1h  # error: not awaited
    (await app.aget(UserActivity, user_id="u42")).clicks_2h  # error: misspelt feature of an awaited row
    (await app.aget_many(RankerInput, [{"user_id": "u42"}]))[0].clicks_2h  # error: misspelt feature of awaited ones


@lf.consumer(clicks)  # error: without start=
def begins_nowhere(click: Click) -> None: ...


@lf.consumer(clicks, start="earliest")  # error: not a start
def begins_wrong(click: Click) -> None: ...


@lf.consumer(clicks, start="now")  # error: a handler of another event
def other_event(update: ItemUpdate) -> None: ...


@lf.consumer(clicks, start="now")  # error: a batch handler without batch=
def no_batch(batch: list[Click]) -> None: ...


@lf.consumer(clicks, start="now", batch=lf.Batch(10))  # error: a handler of one event with batch=
def with_batch(click: Click) -> None: ...


@lf.consumer(clicks, start="now", delivery="exactly_once")  # error: not a delivery of any function
def once(click: Click) -> None: ...


@lf.consumer(clicks, start="now", delivery="exactly_once", to=clicks)  # error: returns another event
def other_output(click: Click) -> ItemUpdate:
    return ItemUpdate(item_id=click.item_id, category="c")


@lf.consumer(clicks, start="now", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"))  # error: takes no connection
def books_nowhere(click: Click) -> None: ...


@lf.consumer(clicks, start="now", into=lf.Sql("env:LEDGER_URL"))  # error: at least once
def books_often(click: Click, db: lf.SqlConnection) -> None: ...


@lf.consumer(clicks, start="now", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"))
def books_and_commits(click: Click, db: lf.SqlConnection) -> None:
    db.commit()  # error: that is left to Leftfold


@lf.consumer(clicks, start="now", paralel=4)  # error: a misspelt option
def misspelt(click: Click) -> None: ...


@lf.consumer(clicks, start="now")
def right(click: Click, record: lf.Record) -> None:
    record.position  # error: a record has no such field


right(ItemUpdate(item_id="i", category="c"), lf.Record.fake())  # error: called with another event


class Score(lf.Prediction, of=RankerInput):
    score: float


scores = lf.Predictions("scores", Score)
lf.Predictions("scores", Click)  # error: an event that is no prediction


def load_text() -> str:
    return ""


@lf.scorer(RankerInput, to=scores, model=load_text)  # error: a function of another model
def of_float(model: float, rows: lf.Rows[RankerInput]) -> list[float]:
    return [model] * len(rows)


def load_version() -> lf.Model[str]:
    return lf.Model("", version="1")


@lf.scorer(RankerInput, to=scores, model=load_version)  # error: the model of this version is a text
def of_version(model: float, rows: lf.Rows[RankerInput]) -> list[float]:
    return [model] * len(rows)


@lf.scorer(RankerInput, to=scores, model=load_text, trigger="aplied")  # error: not a trigger
def never(model: str, rows: lf.Rows[RankerInput]) -> list[float]:
    return [rows[0].clicks_2h]  # error: a row has no such feature


Score.model_construct().scores  # error: a prediction has no such field
