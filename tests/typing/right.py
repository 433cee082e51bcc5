"""What people write, and what a checker must know about it. Both mypy --strict and pyright find nothing wrong here."""

from datetime import UTC, datetime, timedelta
from typing import assert_type

from pydantic import Field

import leftfold as lf


class Click(lf.Event):
    """A person clicked an item."""

    user_id: str = Field(min_length=1)
    item_id: str
    price: float
    pieces: int = 1
    coupon: str | None = None
    discount: float | None = None
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, rate="20k/s", retention="7d", lateness="10m")
pairs = lf.Topic("pairs", Click, key=(Click.user_id, Click.item_id), time=Click.at, retention=timedelta(days=1))


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    """What a person did lately."""

    clicks_1h = lf.count("1h")
    big_1h = lf.count(timedelta(hours=1), where=Click.price > 100)
    both_1h = lf.count("1h", where=(Click.price > 100) & (Click.item_id != "x"))
    either_1h = lf.count("1h", where=(Click.price > 100) | (Click.pieces == 2))
    spend_24h = lf.sum(Click.price, "24h", scale=2)
    pieces_24h = lf.sum(Click.pieces, "24h", step="5m")
    saved_24h = lf.sum(Click.discount, "24h")
    last_item = lf.last(Click.item_id, "7d")
    last_at = lf.last(Click.at, "7d")
    last_coupon = lf.last(Click.coupon, "7d")


class UserItem(lf.Features, of=clicks, by=(Click.user_id, Click.item_id), name="pairs"):
    clicks_7d = lf.count("7d")


# On the class a feature is a reference, on a row a value.
assert_type(UserActivity.clicks_1h, lf.Feature[int])
assert_type(UserActivity.spend_24h, lf.Feature[float | None])

click = Click(user_id="u", item_id="i", price=1.0, at=datetime.now(UTC))
assert_type(click.price, float)
assert_type(click.coupon, str | None)

row = UserActivity.compute([click], at=datetime.now(UTC), user_id="u")
assert_type(row, UserActivity)
assert_type(row.clicks_1h, int)
assert_type(row.both_1h, int)
assert_type(row.spend_24h, float | None)
assert_type(row.pieces_24h, int | None)
assert_type(row.saved_24h, float | None)
assert_type(row.last_item, str | None)
assert_type(row.last_at, datetime | None)
assert_type(row.last_coupon, str | None)
assert_type(row.found, bool)
assert_type(row.read_at, datetime)
assert_type(row.provenance, lf.Provenance | None)


def serve(app: lf.App) -> float:
    read = app.get(UserActivity, user_id="u42")
    assert_type(read, UserActivity)
    assert_type(read.clicks_1h, int)
    if read.provenance is not None:
        assert_type(read.provenance.batch, int)
    by_name = app.get("user_activity", user_id="u42")  # typed by nobody: each feature is whatever the store holds
    return float(by_name.clicks_1h) + (read.spend_24h or 0.0)


def send(app: lf.App) -> None:
    with app.producer("clicks") as producer:
        producer.send(click)
        producer.send_dict({"user_id": "u", "item_id": "i", "price": 1.0, "at": datetime.now(UTC)})


try:
    lf.open("shop", profile="prod")
except lf.LeftfoldError as error:
    assert_type(error.code, str)
    assert_type(error.retriable, bool)
