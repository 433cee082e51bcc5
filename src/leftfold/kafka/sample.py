"""Samples the newest records of a topic: which keys they have, how large they are, whose clock they carry.

It reads by plain assignment: it joins no group and commits nothing. Values are examined one by one and not kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from fastavro import parse_schema

from leftfold import clock
from leftfold.declare.topic import Topic
from leftfold.fold.durations import SECOND
from leftfold.kafka.admin import Admin
from leftfold.kafka.decode import UNREADABLE, schema_id_of
from leftfold.kafka.judge import Judgement, RecordJudge
from leftfold.kafka.log_reader import Logged, LogReader
from leftfold.settings import Kafka

RECORDS = 10_000  # enough to measure a share of 1 % with an error of a fifth of it
_SECONDS = 5.0  # time limit for reading; the sample is what has arrived by then
_TOP_KEYS = 10
_STEPS_BACK = SECOND  # allowed step back of log times: several producers write batches that they began earlier
# Rates cover the last minute; if too few records arrived in it, the last hour; else the last day.
_WINDOWS = (60, 3_600, 86_400)


@dataclass(frozen=True)
class Sample:
    """A summary of the newest records of every partition.

    Times are in microseconds. A `lag` is log time minus event time.
    """

    topic: str
    records: int
    seconds: int  # the time span over which rates were measured
    by_partition: dict[int, float]  # records per second of each partition, by counting offsets
    mean_bytes: float  # key and value
    largest_bytes: int
    keys: int  # distinct keys
    split_keys: int  # keys that were seen in more than one partition
    without_key: int
    top_keys: tuple[tuple[str, int], ...]  # the most frequent keys and their counts
    by_producer: int  # records whose log time is their producer's clock
    ahead: int  # how far the newest log time is after the time of reading, by this machine's clock
    rejected: int = 0  # this field and those below are only set for a declared topic
    reasons: tuple[tuple[str, int], ...] = ()  # of the rejected records, with counts, the most frequent first
    late: int = 0
    future: int = 0
    lags: tuple[int, int, int] | None = None  # smallest, median, largest
    # Log time of the newest record by partition, only where log times increase: then the log times of a producer's next
    # batches increase too.
    newest: dict[int, int] = field(default_factory=dict)
    # Newest log time of the last batches of the idempotent producers that a partition's leader remembers; 0 if none.
    # Only for partitions where the brokers report it.
    idempotent: dict[int, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Records per second over all partitions."""
        return sum(self.by_partition.values())


def take_sample(
    kafka: Kafka,
    admin: Admin,
    topic: str,
    partitions: int,
    judge: Judge | None = None,
    *,
    records: int = RECORDS,
) -> Sample:
    """Read the newest records of a topic and summarize them. `judge` is for a declared topic."""
    starts, ends = admin.start_offsets(topic, partitions), admin.end_offsets(topic, partitions)
    seconds, rates = _rates(admin, topic, ends, enough=records)
    ranges = newest({p: (starts[p], ends[p]) for p in ends}, records)
    tally = Tally(topic, judge)
    deadline = clock.monotonic() + _SECONDS
    reader = LogReader(kafka)
    try:
        for record in reader.read(topic, ranges, first_log=judge is not None and judge.first_log):
            tally.add(record)
            if clock.monotonic() > deadline:
                break
    finally:
        reader.close()
    return tally.sample(clock.now_us(), seconds, rates)


def _rates(admin: Admin, topic: str, ends: Mapping[int, int], *, enough: int) -> tuple[int, dict[int, float]]:
    """Return the measured time span in seconds, and the records per second of each partition.

    It uses the brokers' time index, not the records: the newest records may all have arrived within a moment.
    """
    now_us = clock.now_us()
    for seconds in _WINDOWS:
        since = admin.offsets_at(topic, len(ends), now_us - seconds * SECOND)
        came = {p: 0 if (first := since[p]) is None else max(0, end - first) for p, end in ends.items()}
        if sum(came.values()) >= enough:
            break
    return seconds, {p: number / seconds for p, number in came.items()}


def newest(held: Mapping[int, tuple[int, int]], records: int) -> dict[int, tuple[int, int]]:
    """Return the range at the end of each partition, about `records` offsets in total.

    Each partition gets a part in proportion to the offsets that it holds, at least one.
    """
    total = sum(end - start for start, end in held.values())
    return {
        p: (max(start, end - max(1, records * (end - start) // total)), end)
        for p, (start, end) in held.items()
        if end > start
    }


class Judge:
    """Decides whether a declared topic's record would be accepted, and how long after its event it was logged."""

    def __init__(self, topic: Topic[Any], schema_of: Callable[[int], str | None]) -> None:
        self._topic = topic
        self.first_log = topic.log_time == "header"
        self._schema_of = cache(schema_of)
        self._is_avro = cache(self._parses)
        self._judge = RecordJudge(topic, self._schema_of)

    def __call__(self, record: Logged) -> tuple[Judgement | None, int | None]:
        """Return why a record is not accepted, if so; and its lag, if it has a time."""
        topic, log_us, by_broker = self._topic, record.log_us, record.by_broker
        if (schema_id := self._foreign(record.value)) is not None:
            return Judgement("rejected", f"schema id {schema_id} is not Avro"), None
        event, verdict = self._judge.record(record.key, record.value, log_us=log_us, by_broker=by_broker)
        known = by_broker or topic.log_time == "producer"
        if event is None or topic.compacted or topic.time is None or not known:
            return verdict, None
        return verdict, log_us - event[topic.time.name]

    def _foreign(self, value: bytes | None) -> int | None:
        """Return the schema id of a value whose schema is not Avro; else None.

        A registry holds JSON Schema and Protobuf too.
        """
        if value is None or self._topic.format == "json" or (schema_id := schema_id_of(value)) is None:
            return None
        return None if self._is_avro(schema_id) else schema_id

    def _parses(self, schema_id: int) -> bool:
        text = self._schema_of(schema_id)
        if text is None:
            return True  # an unknown id is rejected for another reason
        try:
            parse_schema(json.loads(text))
        except UNREADABLE:
            return False
        return True


@dataclass
class Tally:
    """Counts records one by one, and makes a sample of the counts."""

    topic: str
    judge: Judge | None
    _newest: dict[int, int] = field(default_factory=dict)
    _stepped_back: set[int] = field(default_factory=set)
    _keys: Counter[bytes] = field(default_factory=Counter)
    _places: dict[bytes, int] = field(default_factory=dict)
    _split: set[bytes] = field(default_factory=set)
    _sizes: list[int] = field(default_factory=list)
    _by_producer: int = 0
    _outcomes: Counter[str] = field(default_factory=Counter)
    _reasons: Counter[str] = field(default_factory=Counter)
    _lags: list[int] = field(default_factory=list)

    def add(self, record: Logged) -> None:
        newest = self._newest.get(record.partition, record.log_us)
        self._newest[record.partition] = max(newest, record.log_us)
        if newest - record.log_us > _STEPS_BACK:
            self._stepped_back.add(record.partition)
        self._sizes.append(len(record.key or b"") + len(record.value or b""))
        self._by_producer += not record.by_broker
        if record.key is not None:
            self._keys[record.key] += 1
            if self._places.setdefault(record.key, record.partition) != record.partition:
                self._split.add(record.key)
        if self.judge is not None:
            verdict, lag = self.judge(record)
            if lag is not None:
                self._lags.append(lag)
            if verdict is not None:
                self._outcomes[verdict.outcome] += 1
                if verdict.outcome == "rejected":
                    self._reasons[verdict.reason] += 1

    def sample(self, now_us: int, seconds: int, rates: dict[int, float]) -> Sample:
        records = len(self._sizes)
        lags = sorted(self._lags)
        return Sample(
            topic=self.topic,
            records=records,
            seconds=seconds,
            by_partition=rates,
            mean_bytes=sum(self._sizes) / records if records else 0.0,
            largest_bytes=max(self._sizes, default=0),
            keys=len(self._keys),
            split_keys=len(self._split),
            without_key=records - self._keys.total(),
            top_keys=tuple((k.decode(errors="backslashreplace"), n) for k, n in self._keys.most_common(_TOP_KEYS)),
            by_producer=self._by_producer,
            ahead=max(0, max(self._newest.values(), default=0) - now_us),
            rejected=self._outcomes["rejected"],
            reasons=tuple(self._reasons.most_common()),
            late=self._outcomes["late"],
            future=self._outcomes["future"],
            lags=(lags[0], int(median(lags)), lags[-1]) if lags else None,
            newest={p: us for p, us in self._newest.items() if p not in self._stepped_back},
        )
