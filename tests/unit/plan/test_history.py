"""What a new build reads and whether it is still there, on observations written down by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.fold.durations import SECOND
from leftfold.fold.latest import Latest
from leftfold.fold.reach import value_reach
from leftfold.kafka.observed import ObservedTopic
from leftfold.plan.history import TopicLog
from leftfold.units import span
from tests import clusters

HOUR_MS = 3_600_000


class Click(lf.Event):
    user_id: str
    at: datetime


CLICKS = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
CARDS = lf.Topic("cards", Click, key=Click.user_id, compacted=True)


class Hourly(lf.Features, of=CLICKS, by=Click.user_id):
    clicks_24h = lf.count("24h")  # by steps of an hour


class Ever(lf.Features, of=CLICKS, by=Click.user_id):
    clicks_24h = lf.count("24h")
    ever = lf.count(None)


class Card(lf.Table, of=CARDS, by=Click.user_id):
    at = Click.at


HOURLY, EVER, CARD = (v.__leftfold_definition__ for v in (Hourly, Ever, Card))
FREE = Latest("free", HOURLY.origins, HOURLY.keys, (), code="abc")
NEEDED = 25 * 3_600 * SECOND + 60 * SECOND  # a window, a step, and how far ahead an event may be stamped


def topic(name: str = "clicks", *, start: int = 0, **configs: Any) -> ObservedTopic:
    seen = clusters.seen_topic(name, 2, configs={k.replace("_", "."): str(v) for k, v in configs.items()}, records=1000)
    return replace(seen, spread=(replace(seen.spread[0], start=start), seen.spread[1]))


def test_reach() -> None:
    assert value_reach(HOURLY) == NEEDED
    assert value_reach(EVER) is None
    assert value_reach(CARD) is None


def test_what_is_archived_is_told() -> None:
    cluster = clusters.seen_cluster(topic(start=100, retention_ms=HOUR_MS))
    (plain,), (archived,) = (
        TopicLog(cluster, {}, archived=frozenset(a)).rebuild(HOURLY).histories for a in ((), ("clicks",))
    )
    assert archived.verdict == plain.verdict == "incomplete"
    assert archived.why == f"{plain.why}; leftfold rebuild also reads what is archived"


def test_records_are_an_upper_bound_and_time_follows_from_a_rate() -> None:
    made = TopicLog(clusters.seen_cluster(topic(start=100)), {}, records_per_s=90).rebuild(HOURLY)
    assert (made.records, made.seconds) == (900, 10)
    made = TopicLog(clusters.seen_cluster(topic(start=100)), {}).rebuild(HOURLY)
    assert (made.records, made.seconds) == (900, None)
    assert made.lines()[0] == (
        "reads the log from its start: at most 900 records; how long is not known: leftfold plan --probe measures"
    )


@pytest.mark.parametrize(
    ("seen", "definition", "verdict", "why"),
    [
        (topic(), HOURLY, "complete", "nothing of it was ever deleted"),
        (topic(retention_ms=HOUR_MS), HOURLY, "complete", "nothing of it was ever deleted"),
        (topic(), EVER, "complete", "nothing of it was ever deleted"),
        (topic(start=5, retention_ms=26 * HOUR_MS), HOURLY, "complete", "kept 1d 2h, needed 1d 2h"),
        (topic(start=5, retention_ms=25 * HOUR_MS), HOURLY, "incomplete", "kept 1d 1h, needed 1d 2h"),
        (topic(start=5, retention_ms=NEEDED // 1000), HOURLY, "complete", "if only retention deleted records"),
        (topic(start=5, retention_ms=NEEDED // 1000 - 1), HOURLY, "incomplete", "until they have filled again"),
        (topic(start=5, retention_ms=26 * HOUR_MS), EVER, "incomplete", "everything that ever happened"),
        (topic(start=5, retention_ms=26 * HOUR_MS, retention_bytes=1), HOURLY, "unknown", "by size"),
        (topic(start=5, retention_ms=-1), HOURLY, "unknown", "somebody did that"),
        (topic(start=5), HOURLY, "unknown", "was not seen"),
        (topic(start=5, retention_ms=26 * HOUR_MS), FREE, "unknown", "the function"),
        (topic(start=5, cleanup_policy="compact"), HOURLY, "unknown", "compaction deletes"),
        (topic("cards", start=5, cleanup_policy="compact"), CARD, "complete", "newest record of every key"),
        (topic("cards", start=5, cleanup_policy="compact,delete"), CARD, "unknown", "compaction deletes"),
        (topic("others"), HOURLY, "complete", "the topic is new"),
    ],
)
def test_history(seen: ObservedTopic, definition: Any, verdict: str, why: str) -> None:
    made = TopicLog(clusters.seen_cluster(seen), {}).rebuild(definition)
    (history,) = made.histories
    assert (history.verdict, made.complete) == (verdict, verdict == "complete")
    assert why in history.why


def test_of_a_topic_that_is_not_there_nothing_is_read() -> None:
    made = TopicLog(clusters.seen_cluster(), {}, records_per_s=10).rebuild(HOURLY)
    assert (made.records, made.seconds) == (0, 0)
    assert made.lines() == ["nothing to read: the log is empty"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (0.2, "1s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m 1s"),
        (3_600, "1h"),
        (3_601, "1h 1m"),
        (86_399, "24h"),
        (90_060, "1d 2h"),
        (7 * 86_400, "7d"),
    ],
)
def test_span_rounds_up_to_two_units(seconds: float, told: str) -> None:
    assert span(round(seconds * SECOND)) == told
