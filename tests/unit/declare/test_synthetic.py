from __future__ import annotations

import hashlib
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

import leftfold as lf
from leftfold import clock
from leftfold.declare.synthetic import KEYS, ZIPF, synthetic
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


def test_the_events_of_a_seed_stay_what_they_are() -> None:
    """Guides show figures of seed 1. A digest of its first 2,000 events of each topic was taken once."""
    assert made(1, 1) == [
        {
            "user_id": "u0",
            "item_id": "i1047",
            "price": 60.79,
            "pieces": 23,
            "coupon": "c14",
            "tags": ["t495", "t0", "t0"],
            "seen": [from_micros(AT)] * 3,
            "raw": b"\x86\xd2\xc9nv\x0e\x81\x9b",
            "gift": False,
            "at": from_micros(AT - 213_785_853),
        }
    ]
    assert digest(clicks) == "ceacde9c9f94348a5457f8443dca4efa50d60284aed8d3257b42a955ffd1a103"
    assert digest(TABLE) == "86361540009c79cab6aa00739a882003fa3f9f0ad41746dd6a5c8b194da78622"


def digest(topic: lf.Topic[Any]) -> str:
    return hashlib.sha256(repr([sorted(r.items()) for r in made(2_000, 1, topic)]).encode()).hexdigest()


def test_values_are_those_of_the_library() -> None:
    """The short ways give the values of `random.choices` and `lognormvariate`, whatever is drawn."""
    chance, ranks = random.Random(9), range(KEYS)
    weights = [1 / (rank + 1) ** ZIPF for rank in ranks]
    for record in made(MANY, 9, PLAIN):
        assert record["item"] == f"i{chance.choices(ranks, weights)[0]}"
        assert record["level"] == round(chance.lognormvariate(3.5, 1.0), 2)
        assert record["pieces"] == chance.choices(ranks, weights)[0] + 1


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


class Plain(lf.Event):
    item: str
    level: float
    pieces: int


PLAIN = lf.Topic("plain", Plain, key=Plain.item, compacted=True)
TABLE = lf.Topic("stock", Stock, key=Stock.item, compacted=True, format="json")


def test_a_table_needs_no_time() -> None:
    records = made(100, 7, TABLE)
    assert records == made(100, 7, TABLE)
    assert {r["counted"] for r in records} == {from_micros(AT)}
    for record in records:
        Stock(**record)
