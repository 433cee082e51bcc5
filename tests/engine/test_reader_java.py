"""examples/reader_java reads rows that a real run has written, packed ones too, and gets what `app.get` gets."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.fold.expressions import to_micros
from leftfold.store.redis.client import connect
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.java_reader import JavaReader

SALES = """\
from datetime import datetime

import leftfold as lf


class Sale(lf.Event):
    shop: str
    counter: int
    item: str
    price: float
    pieces: int | None
    gift: bool
    at: datetime


sales = lf.Topic("sales", Sale, key=Sale.shop, time=Sale.at, partitions=1, lateness="30h")


class Counter(lf.Features, of=sales, by=(Sale.shop, Sale.counter)):
    n_1h = lf.count("1h")
    n_24h = lf.count("24h", where=Sale.price > 10)
    spend_24h = lf.sum(Sale.price, "24h")
    pieces_3h = lf.sum(Sale.pieces, "3h")
    price_24h = lf.mean(Sale.price, "24h")
    least_24h = lf.min(Sale.price, "24h")
    newest_3h = lf.max(Sale.at, "3h")
    item_24h = lf.last(Sale.item, "24h")
    gift_24h = lf.last(Sale.gift, "24h")
    recent_24h = lf.last_n(Sale.item, "24h", n=5)
    items_24h = lf.distinct(Sale.item, "24h")
    ever = lf.count(None)
    each = spend_24h / n_1h
"""
SHOPS, COUNTERS = ("a", "é:b", "nobody's"), (-1, 7)


def sale(chance: random.Random, now: datetime) -> dict[str, Any]:
    return {
        "shop": chance.choice(SHOPS[:2]),
        "counter": chance.choice(COUNTERS),
        "item": f"i{int(chance.paretovariate(0.6)) % 200}",
        "price": round(chance.uniform(-5, 100), 2),
        "pieces": chance.choice((None, 1, -2, 2**40)),
        "gift": chance.random() < 0.5,
        "at": now - timedelta(seconds=chance.uniform(0, chance.choice((3_600, 90_000)))),
    }


def printed(value: Any) -> Any:
    """A value as the Java reader prints it: a datetime is microseconds."""
    if isinstance(value, list):
        return [printed(element) for element in value]
    return to_micros(value) if isinstance(value, datetime) else value


def key_text(shop: str, counter: int) -> str:
    return f"{len(shop.encode())}:{shop}{len(str(counter))}:{counter}"


def ours(app: leftfold.App, at: datetime | None, shop: str, counter: int) -> dict[str, Any]:
    read: Any = app.get("counter", at=at, shop=shop, counter=counter)
    (of,) = read.provenance
    values = {name: printed(value) for name, value in read.values.items()}
    return {"build": of.build, "batch": of.batch, "found": read.found, "values": values}


@pytest.mark.timeout(300)
def test_it_reads_what_a_run_has_written(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    chance, started = random.Random(3), datetime.now(UTC)
    app = projects.make(tmp_path / "sales", cluster.endpoints, f"j{uuid.uuid4().hex[:8]}", SALES)
    projects.apply(app)
    with app.producer("sales") as producer:
        for _ in range(300):
            producer.send_dict(sale(chance, started))
    run_until_caught_up(app, spark)

    url, namespace = cluster.endpoints.redis_url, app.profile.namespace
    store = connect(url)
    rows = store.keys(f"lf:{namespace}:row:counter:*")
    assert len(rows) == 4
    assert all(store.hexists(row, "packed") for row in rows)

    java, later = JavaReader(tmp_path), datetime.now(UTC) + timedelta(hours=1)
    keys = [(shop, counter) for shop in SHOPS for counter in COUNTERS]
    read = java.of_store(url, namespace, "counter", to_micros(later), *(key_text(*key) for key in keys))
    assert repr(read) == repr([ours(app, later, *key) for key in keys])
    assert [one["found"] for one in read] == [True, True, True, True, False, False]

    before = ours(app, None, *keys[0])
    (now,) = java.of_store(url, namespace, "counter", "now", key_text(*keys[0]))
    assert repr(now) in (repr(before), repr(ours(app, None, *keys[0])))  # a window may begin later meanwhile
