"""Every aggregate over three windows, read online, against a brute-force oracle over the log.

`make engine` runs a small version; `make meaning` sends 2,000,000 events of 20,000 keys. The oracle has its own
consumer, its own windows and its own arithmetic; of the sketches it takes the library, not our code.
"""

from __future__ import annotations

import math
import os
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from datasketches import HLL_8, hll_sketch, hll_union

import leftfold
from leftfold.errors import StoreError
from leftfold.kafka.registry import subject_of
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.log import read_topic

FULL = os.environ.get("LEFTFOLD_MEANING") == "full"
EVENTS, KEYS, EDGES = (2_000_000, 20_000, 5_000) if FULL else (100_000, 1_000, 500)
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
SPAN = timedelta(hours=3)

SALES = """\
from datetime import datetime

import leftfold as lf


class Sale(lf.Event):
    shop: str
    item: str | None
    price: float
    pieces: int
    at: datetime


sales = lf.Topic("sales", Sale, key=Sale.shop, time=Sale.at, partitions=6, lateness="4h")


def over(window):
    return {
        f"count_{window}": lf.count(window, where=Sale.pieces > 1),
        f"sum_{window}": lf.sum(Sale.price, window),
        f"mean_{window}": lf.mean(Sale.pieces, window),
        f"min_{window}": lf.min(Sale.price, window),
        f"max_{window}": lf.max(Sale.at, window),
        f"last_{window}": lf.last(Sale.item, window),
        f"last_n_{window}": lf.last_n(Sale.item, window, n=5),
        f"distinct_{window}": lf.distinct(Sale.item, window),
    }


Shop = type("Shop", (lf.Features,), {**over("1h"), **over("2h"), **over("24h")}, of=sales, by=Sale.shop)
"""
# By hand: the step of a window is the largest of 1 s, 10 s, 1 min, 5 min, 1 h, 1 d that goes into it twelve times.
WINDOWS = {"1h": (3_600, 300), "2h": (7_200, 300), "24h": (86_400, 3_600)}

Event = tuple[int, int, int, dict[str, Any]]  # time, partition, offset


def sales(chance: random.Random, newest: datetime) -> Iterator[dict[str, Any]]:
    """Hot keys, 5 % out of order, missing items, negative prices, ties of time."""
    step = SPAN / EVENTS
    for number in range(EVENTS):
        at = newest - SPAN + step * number
        if chance.random() < 0.05:
            at = max(at - timedelta(seconds=chance.uniform(0, 3_000)), newest - SPAN)
        if chance.random() < 0.05:
            at = at.replace(microsecond=0)
        hot = chance.random() < 0.5
        shop = int(chance.paretovariate(0.7)) % KEYS if hot else chance.randrange(KEYS)
        yield {
            "shop": f"s{shop}",
            "item": None if chance.random() < 0.1 else f"i{int(chance.paretovariate(0.5)) % 5_000}",
            "price": round(chance.lognormvariate(3, 1.3), 2) * chance.choice((1, 1, 1, -1)),
            "pieces": chance.randrange(0, 6),
            "at": at,
        }


def expected(events: list[Event], at: int) -> dict[str, Any]:
    """F_w(k, t), said again: everything with floor_h(t - w) <= time < t."""
    values: dict[str, Any] = {}
    for window, (length, step) in WINDOWS.items():
        start = math.floor(Fraction(at - length * 10**6, step * 10**6)) * step * 10**6
        chosen = [e[3] for e in events if start <= e[0] < at]
        prices = [e["price"] for e in chosen]
        items = [e["item"] for e in chosen if e["item"] is not None]
        values[f"count_{window}"] = sum(1 for e in chosen if e["pieces"] > 1)
        values[f"sum_{window}"] = float(sum(Fraction(str(p)) for p in prices)) if prices else None
        values[f"mean_{window}"] = float(sum(e["pieces"] for e in chosen)) / len(chosen) if chosen else None
        values[f"min_{window}"] = min(prices) if prices else None
        values[f"max_{window}"] = max(e["at"] for e in chosen) if chosen else None
        values[f"last_{window}"] = items[-1] if items else None
        values[f"last_n_{window}"] = items[:-6:-1]
        values[f"distinct_{window}"] = estimated(items)
    return values


def estimated(items: list[str]) -> int:
    sketch, union = hll_sketch(9, HLL_8), hll_union(9)
    for item in items:
        sketch.update(item)
    for _ in range(2):
        union.update(sketch)
    return math.floor(float(union.get_estimate()) + 0.5)


def by_shop(app: leftfold.App) -> dict[str, list[Event]]:
    topic = app.profile.topic_name("sales")
    found: dict[str, list[Event]] = {}
    for logged in read_topic(app.kafka.bootstrap, topic, app.log[1].versions(subject_of(topic))):
        record = logged.record
        assert record is not None
        time = round((record["at"] - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
        assert logged.log_us - time <= 4 * 3_600 * 10**6, "the test's own events are never late"
        found.setdefault(record["shop"], []).append((time, logged.partition, logged.offset, record))
    for events in found.values():
        events.sort(key=lambda e: e[:3])
    return found


@pytest.mark.timeout(3_000 if FULL else 600)
def test_online_reads_equal_the_oracle(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    print(f"seed {SEED}, {EVENTS:,} events, {KEYS:,} keys, {EDGES:,} past edges")
    chance = random.Random(SEED)
    app = projects.make(tmp_path / "meaning", cluster.endpoints, f"m{uuid.uuid4().hex[:8]}", SALES)
    projects.apply(app)
    with app.producer("sales") as producer:
        for record in sales(chance, datetime.now(UTC)):
            producer.send_dict(record)
    (progress,) = run_until_caught_up(app, spark)
    assert progress.error is None, progress.error
    assert progress.records()["accepted"] == EVENTS

    log = by_shop(app)
    shops = sorted(log)
    newest = max(events[-1][0] for events in log.values())
    wrong = compare(app, log, [(shop, newest + 1) for shop in shops])
    print(f"{len(shops):,} keys at the newest event time: {len(wrong)} of {len(shops) * 24:,} values differ")
    assert wrong == []

    # The store keeps at least the last two edges of the finest step for every window.
    edges = [newest // 300_000_000 * 300_000_000 - back * 300_000_000 for back in range(3)]
    pairs = [(chance.choice(shops), chance.choice(edges)) for _ in range(EDGES)]
    wrong = compare(app, log, pairs)
    print(f"{EDGES:,} pairs of key and tile edge: {len(wrong)} of {EDGES * 24:,} values differ")
    assert wrong == []

    refused(app, shops[0], edges[0] + 1)  # inside a tile
    refused(app, shops[0], edges[0] - 48 * 3_600_000_000)  # long gone


def compare(app: leftfold.App, log: dict[str, list[Event]], pairs: list[tuple[str, int]]) -> list[str]:
    wrong = []
    by_moment: dict[int, list[str]] = {}
    for shop, at in pairs:
        by_moment.setdefault(at, []).append(shop)
    for at, shops in by_moment.items():
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
        for start in range(0, len(shops), 200):
            chunk = shops[start : start + 200]
            rows = app.get_many("shop", [{"shop": shop} for shop in chunk], at=moment)
            for shop, row in zip(chunk, rows, strict=True):
                truth = expected(log[shop], at)
                wrong += [f"{shop} {n}: {truth[n]} {v}" for n, v in row.values.items() if truth[n] != v]
                assert row.values.keys() == truth.keys()
    return wrong


def refused(app: leftfold.App, shop: str, at: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    read: Callable[[], Any] = lambda: app.get("shop", shop=shop, at=moment)  # noqa: E731 # named for pytest.raises
    with pytest.raises(StoreError) as caught:
        read()
    assert caught.value.code == "moment-not-kept"
