"""What a sample of records shows: the sample itself, counted from records written by hand, and the hazards in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.declare.schema import avro_schema
from leftfold.fold.durations import SECOND
from leftfold.hazards.hazard import Facts, Hazard
from leftfold.hazards.sampled import CODES, RULES
from leftfold.kafka.encode import avro_encoder
from leftfold.kafka.log_reader import Logged
from leftfold.kafka.sample import Judge, Sample, Tally, newest
from leftfold.observe.observation import Observed
from leftfold.settings import Profile
from tests import clusters

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * SECOND


class Click(lf.Event):
    user_id: str
    price: float
    at: datetime


class Item(lf.Event):
    item_id: str


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, format="json", lateness="10m")
believed = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, format="json", log_time="producer")
items = lf.Topic("items", Item, key=Item.item_id, compacted=True, format="json")
NOTHING = Catalog({}, {}, {})
DAY_MS = 86_400_000


def catalog_of(topic: lf.Topic[Any]) -> Catalog:
    return Catalog({topic.name: topic}, {}, {})


def record(
    user: str | None = "u1",
    *,
    lag: float = 1,
    value: bytes | None = b"",
    partition: int = 0,
    by_broker: bool = True,
    ahead: float = 0,
) -> Logged:
    """Logged `ahead` seconds after NOW, `lag` seconds after it happened."""
    log_us = NOW_US + round(ahead * SECOND)
    at = NOW + timedelta(seconds=ahead - lag)
    if value == b"":
        value = json.dumps({"user_id": user, "price": 1.5, "at": at.isoformat()}).encode()
    return Logged("clicks", partition, 0, log_us, by_broker, None if user is None else user.encode(), value)


def users(number: int, **more: Any) -> list[Logged]:
    """One record each, over six partitions."""
    return [record(f"u{n}", partition=n % 6, **more) for n in range(number)]


def sample_of(
    records: Sequence[Logged], topic: lf.Topic[Any] | None = None, rates: dict[int, float] | None = None
) -> Sample:
    tally = Tally("clicks", None if topic is None else Judge(topic, lambda _: None))
    for one in records:
        tally.add(one)
    even = dict.fromkeys(range(6), 1_000.0)
    return tally.sample(NOW_US, 60, even if rates is None else rates)


def hazards(sample: Sample, catalog: Catalog = NOTHING, partitions: int = 6) -> list[Hazard]:
    cluster = clusters.seen_cluster(clusters.seen_topic(sample.topic, partitions))
    facts = Facts(Observed(cluster, {}, samples={sample.topic: sample}), catalog, Profile(name="p"))
    return [hazard for rule in RULES for hazard in rule(facts)]


def of_producers(records: Sequence[Logged], idempotent: dict[int, float], **settings: Any) -> list[Hazard]:
    """Brokers remember producers whose last batches were logged so many seconds after NOW; 0 is none."""
    known = {p: NOW_US + round(at * SECOND) if at else 0 for p, at in idempotent.items()}
    sample = replace(sample_of(records), idempotent=known)
    settings = {"producer_id_expiration_ms": DAY_MS} | settings
    cluster = clusters.seen_cluster(clusters.seen_topic("clicks"), **settings)
    cluster = replace(cluster, seen_at=NOW_US)
    facts = Facts(Observed(cluster, {}, samples={"clicks": sample}), NOTHING, Profile(name="p"))
    return [hazard for rule in RULES for hazard in rule(facts)]


def codes(records: Sequence[Logged], topic: lf.Topic[Any] | None = None, **more: Any) -> list[str]:
    return [h.code for h in hazards(sample_of(records, topic, **more), catalog_of(topic) if topic else NOTHING)]


# A topic whose sample shows this, and all that is then said of it.
PROVOKED: dict[str, tuple[list[Logged], lf.Topic[Any] | None, dict[int, float] | None, list[str]]] = {
    "a hot key": ([*users(800), *[record("hot")] * 200], None, None, ["hot-key"]),
    "a busy partition": (users(1_000), None, {**dict.fromkeys(range(5), 100.0), 5: 900.0}, ["partition-skew"]),
    "a key in two partitions": ([record(partition=0), record(partition=1)], None, None, ["split-keys"]),
    "records without a key": (
        [*users(99), record(None, value=users(1)[0].value)],
        clicks,
        None,
        ["records-without-key"],
    ),
    "late records": ([*users(99), record("late", lag=601)], clicks, None, ["late-records"]),
    "records from the future": ([*users(99), record("x", lag=-61)], clicks, None, ["future-records"]),
    "a clock that is ahead": ([*users(99), record("x", lag=-30)], clicks, None, ["clock-skew"]),
    "a log that is ahead": (users(99, ahead=30), None, None, ["log-time-ahead"]),
    "records that are no events": ([*users(99), record("x", value=b"{")], clicks, None, ["rejected-records"]),
    "producers' time": ([*users(99), record("x", by_broker=False)], clicks, None, ["producer-stamped"]),
}


@pytest.mark.parametrize("case", PROVOKED)
def test_what_is_wrong_is_named_and_nothing_else(case: str) -> None:
    records, topic, rates, expected = PROVOKED[case]
    assert codes(records, topic, rates=rates) == expected


def test_every_code_is_provoked() -> None:
    by_records = {code for *_, expected in PROVOKED.values() for code in expected}
    assert by_records | {h.code for h in of_producers(users(6), {0: 0})} == set(CODES)
    assert list(CODES) == sorted(set(CODES))


def test_a_sound_topic_has_none() -> None:
    assert codes(users(1_000), clicks) == []
    assert codes(users(1_000)) == []
    assert codes([], clicks) == []


def test_the_text_of_a_hot_key() -> None:
    rates = {**dict.fromkeys(range(5), 100.0), 5: 500.0}
    (hazard,) = hazards(sample_of([*users(600), *[record("hot")] * 400], rates=rates))
    assert str(hazard).splitlines() == [
        "· warning[hot-key] topic clicks: key 'hot' has 40% of the 1,000 newest records, the next 0.1%, 0.1%, 0.1%; "
        "over 1m the busiest partition got 3.0 times the mean",
        "    why: A key's records go to one partition, which got about 3.0 times the mean of these. One reader "
        "reads it, and neither more readers nor more partitions make that faster.",
        "    fix: find out whether it is a real key (a default, a test, a bot?); else key by something finer, or size "
        "readers for that partition",
    ]


@pytest.mark.parametrize(("partitions", "hot"), [(1, False), (5, False), (6, True), (100, True)])
def test_what_is_hot_depends_on_the_partitions(partitions: int, hot: bool) -> None:
    """A fifth of all records is what each of five partitions gets anyway."""
    sample = sample_of([*users(800), *[record("hot")] * 200])
    assert ("hot-key" in {h.code for h in hazards(sample, partitions=partitions)}) == hot


def test_a_key_that_is_spread_over_partitions_is_not_hot() -> None:
    assert codes([*users(600), *(record("hot", partition=n % 6) for n in range(400))]) == ["split-keys"]


def test_a_few_records_make_no_key_hot() -> None:
    assert codes([record("hot")] * 99) == []


def test_a_skewed_partition_is_explained_by_its_hot_key() -> None:
    rates = {**dict.fromkeys(range(5), 100.0), 5: 900.0}
    (hazard,) = hazards(sample_of([*users(800), *[record("hot")] * 200], rates=rates))
    assert hazard.code == "hot-key"
    assert "the busiest partition got 3.9 times the mean" in hazard.what


def test_partitions_are_not_judged_by_a_handful_of_records() -> None:
    assert codes(users(1_000), rates={**dict.fromkeys(range(5), 0.1), 5: 9.0}) == []


def test_records_without_a_key_are_nobodys_business_in_a_topic_that_is_not_declared() -> None:
    assert codes([record(None)] * 50) == []


def test_a_few_late_records_are_what_a_lateness_is_for() -> None:
    late = record("late", lag=601)
    assert codes([*users(1_500), late], clicks) == []
    (hazard,) = hazards(sample_of([*users(99), late], clicks), catalog_of(clicks))
    assert hazard.level == "danger"
    assert "1 of the 100 newest records (1%) were logged later than lateness=10m allows" in hazard.what
    assert "half come within 1.0 s, the last after 10 m" in hazard.what
    assert hazard.source == clicks.source


def test_late_is_decided_as_a_view_decides_it() -> None:
    sample = sample_of([record(lag=600), record(lag=600.001), record(lag=-60), record(lag=-60.001)], clicks)
    assert (sample.late, sample.future, sample.rejected) == (1, 1, 0)
    assert sample.lags == (-60_001_000, 270_000_000, 600_001_000)


def test_when_a_producers_record_was_logged_is_not_known() -> None:
    own = record(by_broker=False, lag=9_999)
    sample = sample_of([own], clicks)
    assert (sample.by_producer, sample.rejected, sample.late, sample.lags) == (1, 1, 0, None)
    sample = sample_of([own], believed)
    assert (sample.by_producer, sample.rejected, sample.late) == (1, 0, 1)
    assert codes([*users(99), record("x", by_broker=False)], believed) == []


def test_reasons_are_counted() -> None:
    bad = [record("bad", value=value) for value in (b"{", b'"text"', None, b'{"user_id": "u"}')]
    sample = sample_of([*users(996), *bad], clicks)
    assert sample.rejected == 4
    assert dict(sample.reasons) == {"undecodable JSON": 2, "no value": 1, "price is missing": 1}
    (hazard,) = hazards(sample, catalog_of(clicks))
    assert hazard.level == "warning"
    assert "would be rejected: undecodable JSON (2), " in hazard.what


def test_a_deletion_is_a_record_of_a_table() -> None:
    kept = [record("i", value=b'{"item_id": "i"}'), record("i", value=None), record("i", value=b"{", by_broker=False)]
    sample = sample_of(kept, items)
    assert (sample.rejected, sample.late, sample.lags) == (1, 0, None)


def test_sizes_and_keys_are_counted() -> None:
    a, b = record("a", value=b"12345"), record("bb", value=None, partition=1)
    sample = sample_of([a, a, b, record(None, value=b"1")])
    assert (sample.records, sample.keys, sample.without_key) == (4, 2, 1)
    assert sample.top_keys == (("a", 2), ("bb", 1))
    assert (sample.mean_bytes, sample.largest_bytes) == ((6 + 6 + 2 + 1) / 4, 6)
    assert sample.rate == 6_000


def test_a_key_that_is_no_text_is_shown_and_cut() -> None:
    (hazard,) = hazards(sample_of([record()._replace(key=b"\xff" * 100)] * 100))
    assert hazard.code == "hot-key"
    assert "\\xff" in hazard.what
    assert "…' has 100%" in hazard.what


# Producers -----------------------------------------------------------------------------------------------------------


def test_the_text_of_a_producer_that_is_not_idempotent() -> None:
    (hazard,) = of_producers(users(600), {0: 0, 1: -1.001, 2: -1, 3: 0.0005, 4: 30})
    assert str(hazard).splitlines() == [
        "· warning[producers-not-idempotent] topic clicks: in 2 of 5 partitions the newest record is of a producer "
        "that is not idempotent",
        "    why: When it tries again, records are written twice, and out of order if several requests are under way. "
        "And its acks may be below all, which loses records with a leader: brokers do not tell.",
        "    fix: set enable.idempotence=true, which takes acks=all, in its producers (librdkafka's default is false, "
        "and Kafka Connect turns it off)",
    ]


def test_nothing_is_said_of_partitions_whose_producers_brokers_do_not_tell() -> None:
    assert of_producers(users(6), {}) == []


def test_nothing_is_said_of_producers_that_may_be_forgotten() -> None:
    """A day after their last batch, by the time that it was logged with."""
    assert of_producers(users(6, ahead=-86_400), {0: 0}) == []
    assert of_producers(users(6, ahead=600 - 86_400), {0: 0}) == []
    assert len(of_producers(users(6, ahead=601 - 86_400), {0: 0})) == 1
    assert of_producers(users(6, ahead=-3_600), {0: 0}, producer_id_expiration_ms=3_600_000) == []
    cluster = clusters.seen_cluster(clusters.seen_topic("clicks"))  # brokers that do not tell for how long
    facts = Facts(
        Observed(cluster, {}, samples={"clicks": replace(sample_of(users(6)), idempotent={0: 0})}),
        NOTHING,
        Profile(name="p"),
    )
    assert [h for rule in RULES for h in rule(facts)] == []


def test_nothing_is_said_where_log_times_step_back() -> None:
    """Producers that send an event's own time: the last batch of one may be older than a record before it."""
    steps = [record("a", ahead=-5), record("b", ahead=-6), record("c", ahead=-4)]
    assert sample_of(steps).newest == {0: NOW_US - 4 * SECOND}
    assert len(of_producers(steps, {0: -30})) == 1
    back = [*steps, record("d", ahead=-5.001), record("e", partition=1)]
    assert sample_of(back).newest == {1: NOW_US}
    assert of_producers(back, {0: -30}) == []


# Avro ----------------------------------------------------------------------------------------------------------------

avro = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
OTHER = '{"type": "record", "name": "Other", "fields": [{"name": "n", "type": "long"}]}'
SCHEMAS = {1: avro_schema(Click), 2: OTHER, 3: 'syntax = "proto3";', 4: '{"type": "object", "title": "JSON Schema"}'}


def test_avro_records_are_judged_by_their_schema() -> None:
    asked: list[int] = []

    def schema(schema_id: int) -> str | None:
        asked.append(schema_id)
        return SCHEMAS.get(schema_id)

    good = {"user_id": "u", "price": 1.0, "at": NOW - timedelta(seconds=2)}
    values = [
        *[avro_encoder(Click, 1)(good)] * 3,
        *(bytes([0, 0, 0, 0, number]) + b"\x02" for number in (2, 3, 4, 9)),
        b"plain",
    ]
    tally = Tally("clicks", Judge(avro, schema))
    for value in values:
        tally.add(record(value=value))
    sample = tally.sample(NOW_US, 60, {})
    assert sample.lags == (2_000_000, 2_000_000, 2_000_000)
    assert dict(sample.reasons) == {
        "undecodable under schema id 2": 1,
        "schema id 3 is not Avro": 1,
        "schema id 4 is not Avro": 1,
        "schema id 9 is not in the registry": 1,
        "too short or not framed": 1,
    }
    assert sorted(asked) == [1, 2, 3, 4, 9]  # each once


# Which records -------------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.integers(0, 50), st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=20),
    st.integers(1, 20_000),
)
def test_the_newest_records_by_share(spans: dict[int, tuple[int, int]], records: int) -> None:
    held = {p: (start, start + length) for p, (start, length) in spans.items()}
    ranges = newest(held, records)
    assert set(ranges) == {p for p, (start, end) in held.items() if end > start}
    total = sum(end - start for start, end in held.values())
    for p, (first, end) in ranges.items():
        start = held[p][0]
        assert end == held[p][1]
        assert start <= first < end
        assert end - first == min(end - start, max(1, records * (end - start) // total))
    assert sum(end - first for first, end in ranges.values()) <= max(records, 0) + len(ranges)
