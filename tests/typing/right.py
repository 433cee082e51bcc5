"""What people write, and what a checker must know about it. Both mypy --strict and pyright find nothing wrong here."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

from pydantic import Field

import leftfold as lf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Click(lf.Event):
    """A person clicked an item."""

    user_id: str = Field(min_length=1)
    item_id: str
    price: float
    pieces: int = 1
    member: bool = False
    coupon: str | None = None
    discount: float | None = None
    at: datetime


class ItemUpdate(lf.Event):
    item_id: str
    category: str
    stock: int | None = None
    tags: list[str] = []


class Customer(lf.Event):
    customer_id: lf.Personal[str]
    email: lf.Personal[str] = Field(max_length=200)
    phone: lf.Personal[str] | None = None
    born: lf.Personal[int | None] = None
    addresses: lf.Personal[list[str]] = []


customer = Customer(customer_id="c", email="a@b", phone="1")
assert_type(customer.email, str)
assert_type(customer.phone, str | None)
assert_type(customer.born, int | None)
assert_type(customer.addresses, list[str])
clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, rate="20k/s", retention="14d", lateness="10m")
pairs = lf.Topic("pairs", Click, key=(Click.user_id, Click.item_id), time=Click.at, retention=timedelta(days=1))
raw = lf.Topic("raw", Click, key=Click.user_id, time=Click.at, format="json", log_time="producer", external=True)
customers = lf.Topic("customers", Customer, key=Customer.customer_id, compacted=True)
item_updates = lf.Topic("item_updates", ItemUpdate, key=ItemUpdate.item_id, compacted=True)
assert_type(clicks, lf.Topic[Click])


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    """What a person did lately."""

    clicks_1h = lf.count("1h")
    big_1h = lf.count(timedelta(hours=1), where=Click.price > 100)
    both_1h = lf.count("1h", where=(Click.price > 100) & (Click.item_id != "x"))
    either_1h = lf.count("1h", where=(Click.price > 100) | (Click.pieces == 2))
    ever = lf.count(None, ttl="90d")
    spend_24h = lf.sum(Click.price, "24h", scale=2)
    pieces_24h = lf.sum(Click.pieces, "24h", step="5m")
    saved_24h = lf.sum(Click.discount, "24h")
    price_24h = lf.mean(Click.price, "24h")
    pieces_mean = lf.mean(Click.pieces, "24h", where=Click.member == True)
    discount_mean = lf.mean(Click.discount, "24h")
    cheapest = lf.min(Click.price, "24h")
    fewest = lf.min(Click.pieces, "24h")
    first_at = lf.min(Click.at, None)
    dearest = lf.max(Click.discount, "24h")
    most = lf.max(Click.pieces, "24h")
    last_at = lf.max(Click.at, None)
    last_item = lf.last(Click.item_id, "7d")
    last_member = lf.last(Click.member, "7d")
    last_coupon = lf.last(Click.coupon, "7d")
    recent = lf.last_n(Click.item_id, "7d", n=50)
    recent_coupons = lf.last_n(Click.coupon, "7d", n=5)
    items_7d = lf.distinct(Click.item_id, "7d", lg_k=10)
    coupons_7d = lf.distinct(Click.coupon, "7d")
    moments_7d = lf.distinct(Click.at, "7d")
    # Derived at a read; a side that is missing, or a divisor of 0, makes it None.
    per_click = spend_24h / clicks_1h
    share = big_1h / clicks_1h
    pieces_left = 100 - pieces_24h
    not_big = clicks_1h - big_1h
    more_pieces = pieces_24h + 1
    spend_net = spend_24h - saved_24h * 2
    weighted = (1.5 * clicks_1h + price_24h).default(0.0)
    spend_or_zero = lf.sum(Click.price, "24h").default(0)  # an int will do where a float is wanted
    coupon_or_none = lf.last(Click.coupon, "7d").default("none")


class UserItem(lf.Features, of=(clicks, pairs), by=(Click.user_id, Click.item_id), name="user_items"):
    clicks_7d = lf.count("7d")


class Item(lf.Table, of=item_updates, by=ItemUpdate.item_id):
    """The newest row of each item."""

    category = ItemUpdate.category
    stock = lf.latest(ItemUpdate.stock).default(0)
    tags = lf.latest(ItemUpdate.tags)


@lf.stream(clicks, event=Click)
def dear(clicks: "DataFrame") -> "DataFrame":
    return clicks.where("price > 100")


class DearClicks(lf.Features, of=dear, by=Click.user_id):
    clicks_1h = lf.count("1h")


@lf.view(clicks, by="item_id", latest="window_end", to=[lf.Online()])
def trending(clicks: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    counted = clicks.groupBy(F.window("at", "5 minutes"), "item_id").agg(F.count("*").alias("n"))
    return counted.select("item_id", "n", F.col("window.end").alias("window_end"))


@lf.view((clicks, pairs), by=("user_id", "item_id"), ttl="1d", keep_forever=True, name="carts")
def cart(clicks: Any) -> Any:
    return clicks


assert_type(dear, lf.Stream)
assert_type(trending, lf.View)
assert_type(trending.column("n", int), lf.Feature[int | None])
assert_type(trending.column("score", float), lf.Feature[float | None])
assert_type(trending.column("title", str), lf.Feature[str | None])
assert_type(trending.column("hot", bool), lf.Feature[bool | None])
assert_type(trending.column("window_end", datetime), lf.Feature[datetime | None])


class RankerInput(lf.Vector):
    """What the ranking model sees: in training, in serving, in the prediction log."""

    clicks_1h = UserActivity.clicks_1h
    per_click = UserActivity.per_click.default(0.0)
    spend = UserActivity.spend_24h
    recent = UserActivity.recent
    not_big = UserActivity.not_big.default(0)
    affinity = UserItem.clicks_7d
    category = Item.category
    stock = Item.stock
    coupon = UserActivity.last_coupon.default("none")
    trend = trending.column("n", int).default(0)
    trend_until = trending.column("window_end", datetime)
    cart_value = lf.request(float)
    position = lf.request(int)
    page = lf.request(str)
    mobile = lf.request(bool)


# On the class a feature is a reference, on a row a value.
assert_type(UserActivity.clicks_1h, lf.Feature[int])
assert_type(UserActivity.spend_24h, lf.Feature[float | None])
assert_type(UserActivity.spend_24h.default(0.0), lf.Feature[float])
assert_type(UserActivity.recent, lf.Feature[list[str]])
assert_type(Item.stock, lf.Feature[int])
assert_type(RankerInput.per_click, lf.Feature[float])

click = Click(user_id="u", item_id="i", price=1.0, at=datetime.now(UTC))
assert_type(click.price, float)
assert_type(click.coupon, str | None)

row = UserActivity.compute([click], at=datetime.now(UTC), user_id="u")
assert_type(row, UserActivity)
assert_type(row.clicks_1h, int)
assert_type(row.both_1h, int)
assert_type(row.ever, int)
assert_type(row.spend_24h, float | None)
assert_type(row.pieces_24h, int | None)
assert_type(row.saved_24h, float | None)
assert_type(row.price_24h, float | None)
assert_type(row.pieces_mean, float | None)
assert_type(row.discount_mean, float | None)
assert_type(row.cheapest, float | None)
assert_type(row.fewest, int | None)
assert_type(row.first_at, datetime | None)
assert_type(row.dearest, float | None)
assert_type(row.most, int | None)
assert_type(row.last_at, datetime | None)
assert_type(row.last_item, str | None)
assert_type(row.last_member, bool | None)
assert_type(row.last_coupon, str | None)
assert_type(row.recent, list[str])
assert_type(row.recent_coupons, list[str])
assert_type(row.items_7d, int)
assert_type(row.coupons_7d, int)
assert_type(row.moments_7d, int)
assert_type(row.per_click, float | None)
assert_type(row.share, float | None)
assert_type(row.pieces_left, int | None)
assert_type(row.not_big, int | None)
assert_type(row.more_pieces, int | None)
assert_type(row.spend_net, float | None)
assert_type(row.weighted, float)
assert_type(row.spend_or_zero, float)
assert_type(row.coupon_or_none, str)
assert_type(row.found, bool)
assert_type(row.read_at, datetime)
assert_type(row.values, dict[str, Any])
assert_type(row.provenance, tuple[lf.Provenance, ...])


def serve(app: lf.App) -> float:
    read = app.get(UserActivity, user_id="u42")
    assert_type(read, UserActivity)
    assert_type(read.clicks_1h, int)
    assert_type(read.provenance[0].batch, int)
    earlier = app.get(UserActivity, user_id="u42", at=datetime.now(UTC))
    assert_type(earlier, UserActivity)
    item = app.get(Item, item_id="i7")
    assert_type(item.category, str)
    assert_type(item.stock, int)
    assert_type(item.tags, list[str] | None)
    # By name, and of a function's rows, each feature is whatever the store holds.
    by_name = app.get("user_activity", user_id="u42")
    trend = app.get(trending, item_id="i7")
    assert_type(trend.found, bool)
    return float(by_name.clicks_1h) + (read.spend_24h or 0.0) + float(trend.n)


def rank(app: lf.App, items: list[str]) -> float:
    given: dict[str, Any] = {"user_id": "u42", "cart_value": 31.0, "position": 1, "page": "home", "mobile": True}
    vector = app.get(RankerInput, **given, item_id="i7")
    assert_type(vector, RankerInput)
    assert_type(vector.clicks_1h, int)
    assert_type(vector.per_click, float)
    assert_type(vector.spend, float | None)
    assert_type(vector.recent, list[str])
    assert_type(vector.not_big, int)
    assert_type(vector.affinity, int)
    assert_type(vector.category, str)
    assert_type(vector.stock, int)
    assert_type(vector.coupon, str)
    assert_type(vector.trend, int)
    assert_type(vector.trend_until, datetime | None)
    assert_type(vector.cart_value, float)
    assert_type(vector.position, int)
    assert_type(vector.page, str)
    assert_type(vector.mobile, bool)
    many = app.get_many(RankerInput, [{**given, "item_id": item} for item in items])
    assert_type(many, list[RankerInput])
    by_name = app.get_many("ranker_input", ({**given, "item_id": item} for item in items))
    trends = app.get_many(trending, [{"item_id": item} for item in items])
    return many[0].cart_value + float(by_name[0].cart_value) + float(trends[0].n)


async def serve_async(app: lf.App) -> float:
    read = await app.aget(UserActivity, user_id="u42")
    assert_type(read, UserActivity)
    many = await app.aget_many(Item, [{"item_id": "i7"}], at=None)
    assert_type(many, list[Item])
    by_name = await app.aget("user_activity", user_id="u42")
    trends = await app.aget_many(trending, [{"item_id": "i7"}])
    return float(by_name.clicks_1h) + float(trends[0].n) + read.weighted


def test_of_a_function(frame: "DataFrame") -> None:
    """A decorated function stays callable with a plain DataFrame."""
    trending(frame).show()
    dear(frame).show()


def send(app: lf.App) -> None:
    with app.producer("clicks") as producer:
        producer.send(click)
        producer.send_dict({"user_id": "u", "item_id": "i", "price": 1.0, "at": datetime.now(UTC)})
    with app.producer("item_updates") as updates:
        updates.delete(item_id="i7")


@lf.consumer(clicks, start="beginning", parallel=8, retry=lf.Retry(attempts=3))
def notify(click: Click, record: lf.Record) -> int:
    assert_type(record.id, str)
    return len(click.user_id)


@lf.consumer(clicks, start=datetime.now(UTC), delivery="at_most_once", batch=lf.Batch(500, within="1s"))
def draw(batch: Sequence[Click]) -> None:
    assert_type(batch[0].price, float)


@lf.consumer(clicks, start="now", order="none", failure="stop", name="enriched")
async def enrich(click: Click) -> None:
    raise lf.NotNow("30s") if click.price else lf.Unprocessable("free")


@lf.consumer(clicks, start="beginning", delivery="exactly_once", to=clicks)
def copied(click: Click) -> Click | None:
    return click if click.price else None


@lf.consumer(clicks, start="beginning", delivery="exactly_once", to=clicks)
async def doubled(click: Click, record: lf.Record) -> list[Click]:
    return [click, click]


@lf.consumer(clicks, start="beginning", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"))
def book(click: Click, db: lf.SqlConnection) -> None:
    db.execute("insert into ledger values (%s, %s)", (click.user_id, click.price))


@lf.consumer(clicks, start="now", delivery="exactly_once", into=lf.Sql("env:LEDGER_URL"), parallel=6)
def book_with_place(click: Click, record: lf.Record, db: lf.SqlConnection) -> None:
    with db.transaction():
        db.cursor().executemany("insert into ledger values (%s, %s)", [(record.id, click.price)])
    for row in db.execute("select 1"):
        assert row


def test_of_a_consumer() -> None:
    """A decorated handler stays callable as it was written."""
    assert_type(notify(click, lf.Record.fake()), int)
    draw([click])


def consume(app: lf.App) -> int:
    (ended,) = app.consume("notify", until_caught_up=True)
    assert_type(ended.handled, int)
    return app.dead("notify").redrive(app.dead("notify").letters())


try:
    lf.open("shop", profile="prod")
except lf.LeftfoldError as error:
    assert_type(error.code, str)
    assert_type(error.retriable, bool)


class RankerScore(lf.Prediction, of=RankerInput):
    score: float = Field(ge=0, le=1)
    why: str | None = None


ranker_scores = lf.Predictions("ranker_scores", RankerScore, retention="3d")
assert_type(ranker_scores, lf.Predictions[RankerScore])


def load_weight() -> float:
    return 0.5


clicked = lf.each(
    clicks,
    start="now",
    where=Click.price > 1,
    cart_value=Click.price,
    position=Click.pieces,
    page=Click.item_id,
    mobile=Click.member,
)


@lf.scorer(RankerInput, to=ranker_scores, model=load_weight, on=clicked)
def ranker(model: float, rows: lf.Rows[RankerInput]) -> Sequence[float]:
    assert_type(rows[0], RankerInput)
    return [model * (row.clicks_1h or 0) for row in rows]


def load_version() -> lf.Model[float]:
    return lf.Model(0.5, version="1")


@lf.scorer(RankerInput, to=ranker_scores, model=load_version, shadow=[load_weight, load_version])
def by_version(model: float, rows: lf.Rows[RankerInput]) -> Sequence[float]:
    return [model for _ in rows]


@lf.scorer(RankerInput, to=ranker_scores, model=lf.Onnx("ranker.onnx"), deadline="50ms", fallback=0.5)
def by_onnx(model: lf.OnnxModel, rows: lf.Rows[RankerInput]) -> dict[str, Any]:
    return {"score": model.run(x=rows.matrix("float32"))["score"], "why": [None] * len(rows)}


def test_of_a_scorer(app: lf.App) -> None:
    answer = app.score(ranker, user_id="u1", item_id="i1", cart_value=1.0)
    assert_type(answer, RankerScore)
    assert_type(answer.score, float)
    assert_type(answer.version, str)
    assert_type(answer.inputs(RankerInput), RankerInput)
    assert_type(asyncio.run(app.ascore(ranker, user_id="u1")), RankerScore)
    assert_type(app.score_many(by_onnx, [{"user_id": "u1"}]), list[RankerScore])
    ranker(0.5, lf.Rows.of(RankerInput, [{"clicks_1h": 3}]))
