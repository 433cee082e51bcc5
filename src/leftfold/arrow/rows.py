"""A range of a topic as Arrow tables for a user: position, outcome, and the event's own fields, a row for each record.

The columns are those of `spark.history.replayed`. A record that could not be decoded has null in every field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from leftfold.arrow import OnlySparkError
from leftfold.arrow.decode import decoder, text_of_key
from leftfold.arrow.digest import sums_of
from leftfold.arrow.types import MOMENT, named, type_of
from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.event import fields_of
from leftfold.declare.keys import longest_key
from leftfold.declare.topic import Topic
from leftfold.kafka.decode import Schemas
from leftfold.kafka.judge import RecordJudge
from leftfold.kafka.log_reader import LogReader
from leftfold.settings import Kafka

_AT_ONCE = 20_000  # rows of a table
_POSITION: tuple[tuple[str, pa.DataType], ...] = (
    ("_partition", pa.int32()),
    ("_offset", pa.int64()),
    ("_log_time", MOMENT),
    ("_key", pa.binary()),
    ("_deleted", pa.bool_()),
    ("_outcome", pa.string()),
)


def schema_of(topic: Topic[Any]) -> pa.Schema:
    """Return the columns of the rows."""
    fields = [(f.name, type_of(f.kind, repeated=f.repeated)) for f in fields_of(topic.event).values()]
    return pa.schema([*_POSITION, *fields])


def sql_types(schema: pa.Schema) -> dict[str, str]:
    """Return the name that Spark has for the type of each column."""
    known = {one.name: named(one.type) for one in schema}
    return {name: kind[1] for name, kind in known.items() if kind is not None}


@dataclass
class RowContent:
    """A summary of rows that does not depend on their order, counted as they pass."""

    records: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    _sums: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, batch: pa.RecordBatch) -> None:
        self.records += batch.num_rows
        self.outcomes.update(batch.column("_outcome").to_pylist())
        self._sums = [(a + b) % (1 << 64) for a, b in zip(self._sums, sums_of(batch), strict=True)]

    @property
    def digest(self) -> str:
        return "".join(f"{total:016x}" for total in self._sums)


def read_rows(
    topic: Topic[Any],
    name: str,
    ranges: Mapping[int, tuple[int, int]],
    kafka: Kafka,
    schemas: Schemas,
    watch: Callable[[int], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a topic's ranges, which has the name `name` in the cluster. `watch` gets their number."""
    schema, judged = schema_of(topic), _judged_by(topic, schemas)
    names = list(fields_of(topic.event))
    nothing = dict.fromkeys(names)
    rows: list[tuple[Any, ...]] = []
    done = 0
    log = LogReader(kafka)
    try:
        for record in log.read(name, ranges, first_log=topic.log_time == "header"):
            event, outcome = judged(record.key, record.value, record.log_us, record.by_broker)
            fields = nothing if event is None else event
            deleted = record.value is None
            rows.append(
                (record.partition, record.offset, record.log_us, record.key, deleted, outcome, *map(fields.get, names))
            )
            if len(rows) >= _AT_ONCE:
                yield _batch(rows, schema)
                done += len(rows)
                watch(done)
                rows = []
        if rows or not done:
            yield _batch(rows, schema)
    finally:
        log.close()


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    try:
        return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    except UnicodeEncodeError as error:
        raise OnlySparkError("a record has text that is not UTF-8") from error


_Fields = dict[str, Any]


def _judged_by(
    topic: Topic[Any], schemas: Schemas
) -> Callable[[bytes | None, bytes | None, int, bool], tuple[_Fields | None, str]]:
    """Return the function that decodes a record and gives its outcome in the topic."""
    decode = decoder(topic, fields_of(topic.event), schemas)
    judge = RecordJudge(topic, schemas)
    longest, longest_row = longest_key(topic.rules), longest_key(topic.rules, [key.name for key in topic.keys])

    def deletes(key: bytes | None) -> bool:
        return len(key or b"") <= longest_row and text_of_key(key) is not None

    def judged(key: bytes | None, value: bytes | None, log_us: int, by_broker: bool) -> tuple[_Fields | None, str]:
        if value is None:
            return None, ACCEPTED if topic.compacted and deletes(key) else "rejected"
        event = decode(value)
        if isinstance(event, str):
            return None, "rejected"
        if key is not None and len(key) > longest:
            return event, "rejected"
        flaw = judge.fields(event, log_us, by_broker)
        return event, ACCEPTED if flaw is None else flaw.outcome

    return judged
