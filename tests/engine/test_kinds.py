"""Tables, free views, streams, several topics, JSON and vectors, end to end: values against plain Python."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.errors import DeclarationError, RunError, StoreError
from tests.engine import projects
from tests.engine.conftest import Cluster

SHOP = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    coupon: str | None
    at: datetime


class ItemUpdate(lf.Event):
    item_id: str
    category: str
    tags: list[str] = []
    stock: int | None = None
    since: datetime


class Spent(lf.Event):
    user_id: str
    cents: int
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=3, lateness="1h")
clicks_eu = lf.Topic("clicks_eu", Click, key=Click.user_id, time=Click.at, partitions=2, lateness="5m")
raw = lf.Topic("raw", Click, key=Click.user_id, time=Click.at, format="json", partitions=2, lateness="1h")
items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True, partitions=2)


class UserActivity(lf.Features, of=(clicks, clicks_eu), by=Click.user_id):
    clicks_24h = lf.count("24h")
    spend_24h = lf.sum(Click.price, "24h")
    ever = lf.count(None)
    per_click = spend_24h / clicks_24h


class FromJson(lf.Features, of=raw, by=Click.user_id):
    n = lf.count("24h")
    spend = lf.sum(Click.price, "24h")
    coupon = lf.last(Click.coupon, "24h")


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category
    tags = ItemUpdate.tags
    stock = lf.latest(ItemUpdate.stock).default(-1)
    since = ItemUpdate.since


@lf.stream(clicks, event=Spent)
def spent(clicks):
    from pyspark.sql import functions as F

    return clicks.where("price >= 50").withColumn("cents", F.round(F.col("price") * 100).cast("long"))


class Spender(lf.Features, of=spent, by=Spent.user_id):
    n = lf.count("24h")
    cents = lf.sum(Spent.cents, "24h")


@lf.view(clicks, by="item_id", latest="window_end", to=[lf.Online()])
def trending(clicks):
    from pyspark.sql import functions as F

    return (
        clicks.groupBy(F.window("at", "5 minutes"), "item_id")
        .agg(F.count("*").alias("n"))
        .select("item_id", "n", F.col("window.end").alias("window_end"))
    )


class RankerInput(lf.Vector):
    clicks_24h = UserActivity.clicks_24h
    per_click = UserActivity.per_click.default(0.0)
    category = Item.category
    hot = trending.column("n", int).default(0)
    cart_value = lf.request(float)
"""


def clicks(chance: random.Random, count: int, ages: float) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    return [
        {
            "user_id": f"u{int(chance.paretovariate(0.7)) % 50}",
            "item_id": f"i{chance.randrange(20)}",
            "price": round(chance.uniform(0, 100), 2),
            "coupon": chance.choice((None, "c1", "c2")),
            "at": now - timedelta(seconds=chance.uniform(0, ages)),
        }
        for _ in range(count)
    ]


def send(app: leftfold.App, topic: str, records: list[dict[str, Any]]) -> None:
    with app.producer(topic) as producer:
        for record in records:
            producer.send_dict(record)


def run(app: leftfold.App, spark: Any, *views: str) -> None:
    """What `leftfold run --until-caught-up` does, in the session at hand."""
    for progress in app.supervisor(views=views, until_caught_up=True).run(lambda _: None, session=spark):
        assert progress.error is None, progress.error


@pytest.fixture
def app(cluster: Cluster, tmp_path: Path) -> leftfold.App:
    app = projects.make(tmp_path / "kinds", cluster.endpoints, f"k{uuid.uuid4().hex[:8]}", SHOP)
    projects.apply(app)
    return app


@pytest.mark.timeout(600)
def test_every_kind_of_view(app: leftfold.App, spark: Any) -> None:
    chance = random.Random(5)
    here, eu = clicks(chance, 3_000, 3_000), clicks(chance, 1_000, 600)
    send(app, "clicks", here)
    send(app, "clicks_eu", eu)
    send(app, "raw", here[:500])
    since = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    row = {"item_id": "i1", "category": "old", "tags": ['a"b', "é"], "stock": 3, "since": since}
    send(app, "items", [row, {**row, "category": "new", "stock": None}, {**row, "item_id": "i2"}])
    run(app, spark)

    # Several topics, each with its own lateness.
    sent_at = min(e["at"] for e in eu) + timedelta(seconds=600)
    timely = [e for e in eu if sent_at - e["at"] < timedelta(seconds=290)]
    late = [e for e in eu if sent_at - e["at"] > timedelta(seconds=310)]
    edge = len(eu) - len(timely) - len(late)
    total = sum(app.get("user_activity", user_id=f"u{n}").clicks_24h for n in range(50))
    assert len(here) + len(timely) <= total <= len(here) + len(timely) + edge + len(eu) // 20
    assert late

    # JSON: the same records, the same values.
    for user, mine in grouped(here[:500]).items():
        read = app.get("from_json", user_id=user)
        assert read.n == len(mine)
        assert round(read.spend * 100) == sum(round(e["price"] * 100) for e in mine)
        newest = [e["coupon"] for e in sorted(mine, key=lambda e: e["at"]) if e["coupon"] is not None]
        assert read.coupon == (newest[-1] if newest else None)

    # A stream: only large amounts, as cents.
    for user, mine in grouped(here).items():
        cents = [round(e["price"] * 100) for e in mine if e["price"] >= 50]
        read = app.get("spender", user_id=user)
        assert (read.n, read.cents) == (len(cents), sum(cents) if cents else None)

    # A free view: of each item the newest window.
    windows = Counter((e["item_id"], e["at"].timestamp() // 300) for e in here)
    for item in {e["item_id"] for e in here}:
        window = max(w for i, w in windows if i == item)
        read = app.get("trending", item_id=item)
        assert read.n == windows[item, window]
        assert read.window_end.timestamp() == (window + 1) * 300

    # A table: the newest row, then a deletion.
    item = app.get("item", item_id="i1")
    assert item.values == {"category": "new", "tags": ['a"b', "é"], "stock": -1, "since": since}
    with app.producer("items") as producer:
        producer.delete(item_id="i1")
    run(app, spark, "item")
    gone = app.get("item", item_id="i1")
    assert (gone.found, gone.category, gone.stock) == (False, None, -1)
    send(app, "items", [row])
    run(app, spark, "item")
    assert app.get("item", item_id="i1").category == "old"
    assert {s.view: s.records["accepted"] for s in app.status()}["item"] == 5
    with pytest.raises(StoreError) as refused:
        app.get("item", item_id="i1", at=datetime.now(UTC) - timedelta(hours=1))
    assert refused.value.code == "moment-not-kept"

    vectors(app, len(grouped(here).get("u1", [])))


def vectors(app: leftfold.App, clicks_of_u1: int) -> None:
    """By class, by name, many at once, in an event loop, and from a process without the declarations."""
    vector = app.catalog.vectors["ranker_input"]
    key: dict[str, Any] = {"user_id": "u1", "item_id": "i2", "cart_value": 31}
    row: Any = app.get(vector, **key)
    assert row.clicks_24h >= clicks_of_u1 > 0
    assert row.values.keys() == {"clicks_24h", "per_click", "category", "hot", "cart_value"}
    assert (row.category, row.cart_value, row.found) == ("old", 31.0, True)
    assert {p.view for p in row.provenance} == {"user_activity", "item", "trending"}
    assert all(p.batch >= 0 for p in row.provenance)

    nobody: Any = app.get(vector, user_id="nobody", item_id="nothing", cart_value=0.0)
    assert nobody.values == {"clicks_24h": 0, "per_click": 0.0, "category": None, "hot": 0, "cart_value": 0.0}
    assert not nobody.found

    many = app.get_many(vector, [key, {**key, "user_id": "nobody"}, key])
    assert [m.values["clicks_24h"] for m in many] == [row.clicks_24h, 0, row.clicks_24h]
    assert app.get("ranker_input", **key).values == row.values

    async def in_a_loop() -> None:
        one: Any = await app.aget(vector, **key)
        assert one.values == row.values
        assert [r.values for r in await app.aget_many("ranker_input", [key])] == [row.values]

    asyncio.run(in_a_loop())
    asyncio.run(in_a_loop())  # a second loop has connections of its own
    with pytest.raises(DeclarationError) as missing:
        app.get(vector, user_id="u1", item_id="i2")
    assert missing.value.code == "wrong-request"


def grouped(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    by_user: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_user.setdefault(record["user_id"], []).append(record)
    return by_user


def test_a_free_view_without_latest_must_be_unique(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    text = SHOP[: SHOP.index("class RankerInput")].replace(', latest="window_end"', "")
    app = projects.make(tmp_path / "unique", cluster.endpoints, f"k{uuid.uuid4().hex[:8]}", text)
    projects.apply(app)
    send(app, "clicks", clicks(random.Random(1), 200, 3_000))
    progress, *_ = app.supervisor(views=["trending"], until_caught_up=True).run(lambda _: None, session=spark)
    assert isinstance(progress.error, RunError)
    assert progress.error.code == "view-rows-not-unique"


@pytest.mark.nightly
def test_a_free_view_never_drops_a_row_without_its_key(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    text = SHOP[: SHOP.index("class UserActivity")] + (
        "@lf.view(clicks, by='coupon', latest='at')\ndef coupons(clicks):\n    return clicks.select('coupon', 'at')\n"
    )
    app = projects.make(tmp_path / "lacks", cluster.endpoints, f"k{uuid.uuid4().hex[:8]}", text)
    projects.apply(app)
    send(app, "clicks", clicks(random.Random(1), 200, 60))
    progress, *_ = app.supervisor(until_caught_up=True).run(lambda _: None, session=spark)
    assert progress.error is not None
    assert "coupons gave a row that lacks coupon or at" in progress.error.why


def test_wide_rows_go_to_the_executors(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    """A small batch is written by the driver, unless a value is longer than the driver takes."""
    text = SHOP[: SHOP.index("class UserActivity")] + (
        'class Wide(lf.Features, of=clicks, by=Click.user_id):\n    items = lf.last_n(Click.item_id, "24h", n=1000)\n'
    )
    app = projects.make(tmp_path / "wide", cluster.endpoints, f"k{uuid.uuid4().hex[:8]}", text)
    projects.apply(app)
    long = [{**e, "user_id": "u", "item_id": f"{n:0200d}"} for n, e in enumerate(clicks(random.Random(1), 300, 60))]
    send(app, "clicks", long)
    (view,) = app.supervisor(until_caught_up=True).views
    view.start(spark, until_caught_up=True)
    view.wait()
    assert view.progress.error is None
    assert view._by_executors
    newest = [e["item_id"] for e in sorted(long, key=lambda e: e["at"], reverse=True)]
    assert app.get("wide", user_id="u").items == newest
