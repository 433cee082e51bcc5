from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

import leftfold as lf
from leftfold import clock
from leftfold.declare.synthetic import synthetic
from leftfold.fold.expressions import from_micros
from tests.unit.declare.declared import Click, clicks

AT = 1_767_614_400_000_000
MANY = 20_000


@pytest.fixture(autouse=True)
def _clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_us", lambda: AT)


def made(count: int, seed: int, topic: lf.Topic[Any] = clicks) -> list[dict[str, Any]]:
    return list(synthetic(topic, count, seed=seed))


def test_the_same_seed_gives_the_same_events() -> None:
    assert made(200, 1) == made(200, 1)
    assert made(200, 1) != made(200, 2)


def test_a_shorter_run_is_the_start_of_a_longer_one() -> None:
    assert made(50, 1) == made(200, 1)[:50]


def test_they_are_events() -> None:
    for record in made(500, 3):
        Click(**record)


def test_people_follow_a_zipf_law() -> None:
    users = Counter(r["user_id"] for r in made(MANY, 4))
    ranked = [n for _, n in users.most_common()]
    expected = 1 / sum(rank**-1.1 for rank in range(1, 10_001))  # the busiest one's share, by the law itself
    assert ranked[0] / MANY == pytest.approx(expected, rel=0.1)
    assert ranked[0] / ranked[9] == pytest.approx(10**1.1, rel=0.25)
    assert len(ranked) > 2_000


def test_a_share_arrives_out_of_order() -> None:
    now = datetime.fromtimestamp(AT / 1e6, tz=Click(**made(1, 1)[0]).at.tzinfo)
    delays = [now - r["at"] for r in made(MANY, 5)]
    assert min(delays) >= timedelta(0)
    assert max(delays) <= timedelta(minutes=8)  # 80 % of the topic's lateness: never late
    slow = sum(d > timedelta(seconds=2) for d in delays) / MANY
    assert slow == pytest.approx(0.05, abs=0.01)


def test_prices_look_like_prices() -> None:
    prices = sorted(r["price"] for r in made(MANY, 6))
    assert 25 < prices[MANY // 2] < 45
    assert all(p >= 0 and round(p, 2) == p for p in prices)


class Stock(lf.Event):
    item: str
    pieces: int
    level: float
    gone: bool
    raw: bytes
    marks: list[datetime]
    counted: datetime


TABLE = lf.Topic("stock", Stock, key=Stock.item, compacted=True, format="json")


def test_a_table_needs_no_time() -> None:
    records = made(100, 7, TABLE)
    assert records == made(100, 7, TABLE)
    assert {r["counted"] for r in records} == {from_micros(AT)}
    for record in records:
        Stock(**record)
