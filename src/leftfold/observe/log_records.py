"""Reads records of a topic one by one, decoded and judged, for people who look at the log. Needs no Spark.

It joins no group and commits nothing.
"""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.event import fields_of
from leftfold.declare.topic import Topic
from leftfold.errors import LogError
from leftfold.fold.expressions import from_micros
from leftfold.kafka.admin import Admin
from leftfold.kafka.decode import partly_decoded, schema_id_of
from leftfold.kafka.judge import RecordJudge
from leftfold.kafka.log_reader import Logged, LogReader
from leftfold.kafka.partitioner import partition_of
from leftfold.kafka.registry import SchemaRegistry
from leftfold.settings import Kafka
from leftfold.units import counted


class LogRecord(NamedTuple):
    """A record of the log. `log_us` is its log time in microseconds.

    `fields` are its decoded fields; None for a tombstone and for bytes that could not be decoded. A time that Python's
    datetime cannot hold stays a number of microseconds.
    `outcome` is "accepted", "late", "future" or "rejected", with the reason; None if the topic is not declared.
    """

    partition: int
    offset: int
    log_us: int
    key: bytes | None
    value: bytes | None
    fields: dict[str, Any] | None
    outcome: str | None
    reason: str | None

    @property
    def log_time(self) -> datetime:
        return from_micros(self.log_us)

    def as_json(self) -> dict[str, Any]:
        """The record as JSON. Bytes that are not UTF-8 are in base64, under another name."""
        document = {
            "partition": self.partition,
            "offset": self.offset,
            "log_time": self.log_time.isoformat(),
            **_text("key", self.key),
            "outcome": self.outcome,
            "reason": self.reason,
        }
        if self.fields is not None or self.value is None:
            return {**document, "fields": self.fields}
        return {**document, **_text("value", self.value)}


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content or b"").decode()}


@dataclass(frozen=True)
class Wanted:
    """The records that are asked for. With none of `offset`, `start_us` and `key`, the newest ones."""

    partition: int | None = None
    offset: int | None = None  # the first offset, of `partition`
    start_us: int | None = None  # the first log time
    key: bytes | None = None
    most: int | None = 10  # None: no limit
    follow: bool = False


_Decode = Callable[[Logged], LogRecord]


class Records:
    """The records of one topic. `name` is its name in the cluster; `declared` its declaration, if there is one."""

    def __init__(
        self, name: str, declared: Topic[Any] | None, kafka: Kafka, admin: Admin, registry: SchemaRegistry
    ) -> None:
        self._name = name
        self._kafka = kafka
        self._admin = admin
        self._declared = declared
        self._first_log = declared is not None and declared.log_time == "header"
        self._decode = _as_is(registry) if declared is None else _judged(declared, registry)

    def read(self, wanted: Wanted) -> Iterator[LogRecord]:
        """Yield the wanted records: in order within a partition, and the newest ones in order of log time."""
        count = self._admin.partitions_of(self._name)
        partitions = self._partitions(wanted, count)
        starts, ends = self._admin.start_offsets(self._name, count), self._admin.end_offsets(self._name, count)
        held = {p: (starts[p], ends[p]) for p in partitions}
        reader = LogReader(self._kafka)
        try:
            yield from islice(self._read(reader, wanted, held), wanted.most)
        finally:
            reader.close()

    def _read(self, reader: LogReader, wanted: Wanted, held: dict[int, tuple[int, int]]) -> Iterator[LogRecord]:
        decode, key = self._decode, wanted.key
        if wanted.offset is None and wanted.start_us is None and key is None:
            newest = self._newest(reader, held, wanted.most) if wanted.most is not None else ()
            yield from map(decode, newest)
        else:
            ranges = self._from(reader, wanted, held)
            for record in reader.read(self._name, ranges, first_log=self._first_log):
                if key is None or record.key == key:
                    yield decode(record)
        if wanted.follow:
            ends = {p: end for p, (_, end) in held.items()}
            for record in reader.follow(self._name, ends, first_log=self._first_log):
                if key is None or record.key == key:
                    yield decode(record)

    def _partitions(self, wanted: Wanted, count: int) -> list[int]:
        if wanted.partition is not None:
            if not 0 <= wanted.partition < count:
                raise LogError(
                    "partition-missing",
                    f"topic {self._name} has no partition {wanted.partition}",
                    why=f"its {counted(count, 'partition')} are numbered from 0",
                    fix=f"name one from 0 to {count - 1}",
                )
            return [wanted.partition]
        if wanted.key is not None and self._declared is not None and not self._declared.external:
            return [partition_of(wanted.key, count)]  # our producers choose partitions as Java's do
        return list(range(count))

    def _from(
        self, reader: LogReader, wanted: Wanted, held: Mapping[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        if wanted.offset is not None:
            ((partition, (start, end)),) = held.items()
            if wanted.offset < start:
                raise LogError(
                    "offset-gone",
                    f"partition {partition} of {self._name} no longer has offset {wanted.offset:,}",
                    why=f"retention has deleted what was before offset {start:,}",
                    fix=f"read from there on: --offset {start}; an archive keeps older records: leftfold replay",
                )
            return {partition: (wanted.offset, end)}
        if wanted.start_us is None:
            return dict(held)
        firsts = reader.firsts(self._name, held, wanted.start_us)
        return {p: (first, held[p][1]) for p, first in firsts.items() if first is not None}

    def _newest(self, reader: LogReader, held: Mapping[int, tuple[int, int]], most: int) -> list[Logged]:
        """Return the newest records by log time, oldest first.

        Some offsets hold no record: transaction markers, and what compaction removed. Then it reads further back.
        """
        back = most
        while True:
            ranges = {p: (max(start, end - back), end) for p, (start, end) in held.items()}
            records = reader.read(self._name, ranges, first_log=self._first_log)
            newest = heapq.nlargest(most, records, key=lambda r: (r.log_us, r.partition, r.offset))
            if len(newest) == most or all(ranges[p][0] == start for p, (start, _) in held.items()):
                return newest[::-1]
            back *= 4


def _judged(topic: Topic[Any], registry: SchemaRegistry) -> _Decode:
    judge = RecordJudge(topic, registry.schema)
    times = [field.name for field in fields_of(topic.event).values() if field.kind == "datetime"]

    def decode(record: Logged) -> LogRecord:
        fields, verdict = judge.record(record.key, record.value, log_us=record.log_us, by_broker=record.by_broker)
        outcome, reason = (ACCEPTED, None) if verdict is None else (verdict.outcome, verdict.reason)
        if fields is not None:
            for name in times:
                fields[name] = _moments(fields[name])
        return LogRecord(
            record.partition, record.offset, record.log_us, record.key, record.value, fields, outcome, reason
        )

    return decode


def _moments(value: Any) -> Any:
    if isinstance(value, list):
        return [_moments(item) for item in value]
    try:
        return None if value is None else from_micros(value)
    except OverflowError:
        return value


def _as_is(registry: SchemaRegistry) -> _Decode:
    """Return a decoder for a topic that is not declared: by the schema that a value names, else as JSON."""

    def decode(record: Logged) -> LogRecord:
        fields = None if record.value is None else _fields(record.value)
        return LogRecord(record.partition, record.offset, record.log_us, record.key, record.value, fields, None, None)

    def _fields(value: bytes) -> dict[str, Any] | None:
        if (schema_id := schema_id_of(value)) is not None and (writer := registry.schema(schema_id)) is not None:
            return partly_decoded(value, writer)
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) else None

    return decode
