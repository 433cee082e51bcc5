"""How many processes a consumer needs, whether partitions cap them, and what to change."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.sizing.catalog_size import Known, Sizing, size_catalog
from leftfold.sizing.constants import Constants
from leftfold.sizing.consumer_size import RECORD_S, ConsumerSize
from leftfold.sizing.load import Given


class Pay(lf.Event):
    card: str
    at: datetime


def consumer(*topics: Any, batch: bool = False, **options: Any) -> Any:
    def one(pay: Pay) -> None: ...

    if batch:
        options["batch"] = lf.Batch(100)
    return lf.consumer(topics or (topic(),), start="now", name="notify", **options)(one)


def topic(name: str = "pays", partitions: int = 6) -> Any:
    return lf.Topic(name, Pay, key=Pay.card, time=Pay.at, partitions=partitions)


def sized(declared: Any, rate: float, handler_s: float | None = 0.005, **given: Any) -> Sizing:
    catalog, problems = Catalog.of([declared])
    assert problems == []
    known = {name: Known(given=Given(rate=rate, **given)) for name in catalog.topics}
    handlers = {} if handler_s is None else {"notify": handler_s}
    return size_catalog(catalog, known, Constants(), handlers=handlers)


def only(sizing: Sizing) -> ConsumerSize:
    (one,) = sizing.consumers
    return one


def results(one: ConsumerSize) -> dict[str, float]:
    return {line.name: line.result for line in one.lines}


def test_the_arithmetic_is_shown() -> None:
    one = only(sized(consumer(parallel=4), 700))
    assert [str(line) for line in one.lines] == [
        "rate of one process: parallel ÷ (time of the handler + of the loop), at most 1 ÷ time of the loop = "
        "min(4 ÷ (5 ms + 0.025 ms), 1 ÷ 0.025 ms) = 796 records/s",
        "consumers, at the least: records/s ÷ rate of one process, rounded up = 700 ÷ 796 = 1 consumer",
        "consumers needed: records/s × (1 + longest outage ÷ time to catch up) ÷ rate of one process, rounded up = "
        "700 × (1 + 1 h ÷ 1 h) ÷ 796 = 2 consumers",
        "consumers, at the most: as many as the topic with the most partitions has: a partition has one member of a "
        "group = 6 consumers",
    ]
    assert one.advice == ()
    assert (
        ", ".join(one.asks()) == "2 processes needed, 1 at the least, 6 can have a partition, one handles 796 records/s"
    )


def test_a_handler_that_takes_nothing_leaves_the_loop() -> None:
    assert results(only(sized(consumer(parallel=64), 10, 1e-9)))["rate of one process"] == 1 / RECORD_S


def test_partitions_cap_it_and_more_calls_at_once_help() -> None:
    (advice,) = only(sized(consumer(), 2_000)).advice
    assert str(advice) == (
        "consumer-falls-behind: 2,000 records/s arrive, and 6 processes, one for each partition, handle 1,194\n"
        "    why: what is not handled now is never handled: the consumer falls further behind until retention "
        "overtakes it\n"
        "    fix: declare parallel=4, or use a topic with 21 partitions"
    )


def test_partitions_cap_how_soon_it_catches_up() -> None:
    (advice,) = only(sized(consumer(), 700)).advice
    assert str(advice) == (
        "consumer-slow-to-catch-up: after an outage of 1 h it takes 1.42 h to catch up, and 1 h is asked for\n"
        "    why: 6 processes, one for each partition, handle 1,194 records/s, of which 700 are those that come in\n"
        "    fix: declare parallel=2, or use a topic with 8 partitions"
    )
    assert only(sized(consumer(), 700, catch_up_s=7_200)).advice == ()


@pytest.mark.parametrize(
    ("options", "rate", "fix"),
    [
        (
            {"order": "partition", "parallel": 4},
            2_000,
            'declare order="key" and parallel=4, or use a topic with 21 partitions',
        ),
        ({"batch": True}, 2_000, "use a topic with 21 partitions: a batch is of one partition"),
        ({}, 200_000, "declare parallel=201, and use a topic with 10 partitions"),  # 6 loops do 240,000 records/s
        ({"parallel": 1_000}, 200_000, "declare parallel=1000, and use a topic with 10 partitions"),
    ],
)
def test_what_to_change(options: dict[str, Any], rate: float, fix: str) -> None:
    (advice,) = only(sized(consumer(**options), rate)).advice
    assert advice.fix == fix


def test_the_order_of_partitions_bounds_all_calls() -> None:
    one = only(sized(consumer(order="partition", parallel=8), 1_000))
    assert results(one)["consumers, at the least"] == 1  # one process has all six partitions
    assert results(one)["rate of all, at the most"] == pytest.approx(6 / 0.005025)
    assert [advice.code for advice in one.advice] == ["consumer-slow-to-catch-up"]


def test_several_topics_are_read_by_the_members_of_the_largest() -> None:
    one = only(sized(consumer(topic("pays", 12), topic("more", 4)), 100))
    assert results(one)["consumers, at the most"] == 12
    assert one.load.rate == 200


@given(
    rate=st.floats(0.1, 50_000),
    handler_s=st.floats(1e-6, 5),
    parallel=st.integers(1, 1_000),
    partitions=st.integers(1, 100),
)
def test_what_is_advised_is_enough(rate: float, handler_s: float, parallel: int, partitions: int) -> None:
    one = only(sized(consumer(topic(partitions=partitions), parallel=parallel), rate, handler_s))
    if not one.advice:
        assert results(one)["consumers needed"] <= partitions
        return
    fix = one.advice[0].fix
    calls = int(fix.split("parallel=")[1].split(",")[0])
    after = int(fix.split("topic with ")[1].split(" ")[0]) if ", and use" in fix else partitions
    rounded = rate * (1 - 1e-9)
    assert only(sized(consumer(topic(partitions=after), parallel=calls), rounded, handler_s)).advice == ()


def test_nothing_is_guessed() -> None:
    sizing = sized(consumer(), 2_000, None)
    assert (sizing.consumers, sizing.untimed) == ((), ("notify",))
    told = (
        "not sized, because nothing tells their rate or how long a record takes (--handler notify=5ms): consumers "
        "notify"
    )
    assert told in list(sizing.summary())
    assert told in str(sizing)
    assert sizing.as_json()["untimed"] == ["notify"]
    catalog, _ = Catalog.of([consumer()])
    assert size_catalog(catalog, {}, Constants(), handlers={"notify": 1.0}).untimed == ("notify",)


def test_a_consumer_reads_the_network() -> None:
    (one,) = sized(consumer(), 2_000).topics
    assert one.load.readers == 2  # itself, and the topic's intake


def test_json() -> None:
    (document,) = sized(consumer(), 2_000).as_json()["consumers"]
    assert (document["name"], document["rate"]) == ("notify", 2_000)
    assert [advice["code"] for advice in document["advice"]] == ["consumer-falls-behind"]
    assert {line["name"] for line in document["lines"]} >= {"consumers needed"}
    assert math.isfinite(document["lines"][0]["result"])
