"""Topics: the log of one event type, its key, and the rule for late records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, overload

from leftfold.declare import collector
from leftfold.declare.event import Event, fields_of, reference
from leftfold.declare.rows import html_table
from leftfold.declare.topic_options import (
    FORMATS,
    LOG_TIMES,
    checked_archive,
    checked_compatibility,
    checked_event,
    checked_keys,
    checked_name,
    checked_replication,
    checked_retention,
    checked_time,
    one_of,
    partition_count,
    records_per_second,
)
from leftfold.errors import SourceLine, caller
from leftfold.fold.definition import Key
from leftfold.fold.durations import Duration, micros, text
from leftfold.fold.expressions import Expression, FieldRef

E_co = TypeVar("E_co", bound=Event, covariant=True)
Format = Literal["avro", "json"]
LogTime = Literal["broker", "producer", "header"]


@dataclass(frozen=True, init=False, eq=False)
class Topic(Generic[E_co]):
    """A log of one event type.

    `lateness` belongs to the topic: a record is late if it reached the log more than that after its event time.
    With `log_time="producer"` each record carries its producer's time instead of the broker's. Then the clock of the
    producer decides which records are late.
    With `log_time="header"` a record that was copied here keeps its first log time in a header.
    With `compacted=True` Kafka keeps the newest record of every key, for tables. Then `time` may be omitted.
    With `format="json"` records are JSON objects without a registered schema.
    With `external=True` somebody else creates and configures the topic; Leftfold only reads and writes records.
    With `archive=True` the intake keeps every record in the lake, even after retention has deleted it from the log.
    """

    name: str
    event: type[Event]
    key: tuple[FieldRef, ...]
    time: FieldRef | None  # None only if compacted
    partitions: int
    rate: float | None  # records per second in the busiest hour, if declared; for sizing and batches, not compared
    retention: int | None  # None if compacted
    lateness: int
    replication: int
    compatibility: str
    format: Format
    log_time: LogTime
    compacted: bool
    external: bool
    archive: bool
    source: SourceLine = field(compare=False)

    @overload
    def __init__(
        self,
        name: str,
        event: type[E_co],
        *,
        key: Any,
        time: Any,
        partitions: int | None = None,
        rate: str | None = None,
        retention: Duration | None = None,
        lateness: Duration = "10m",
        replication: int = 3,
        compatibility: str | None = None,
        format: Format = "avro",
        log_time: LogTime = "broker",
        compacted: Literal[False] = False,
        external: bool = False,
        archive: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        event: type[E_co],
        *,
        key: Any,
        time: Any = None,
        partitions: int | None = None,
        rate: str | None = None,
        lateness: Duration = "10m",
        replication: int = 3,
        compatibility: str | None = None,
        format: Format = "avro",
        log_time: LogTime = "broker",
        compacted: Literal[True],
        external: bool = False,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        event: type[E_co],
        *,
        key: Any,
        time: Any = None,
        partitions: int | None = None,
        rate: str | None = None,
        retention: Duration | None = None,
        lateness: Duration = "10m",
        replication: int = 3,
        compatibility: str | None = None,
        format: Format = "avro",
        log_time: LogTime = "broker",
        compacted: bool = False,
        external: bool = False,
        archive: bool = False,
    ) -> None:
        source = caller()
        keys = key if isinstance(key, tuple) else (key,)
        format = one_of(name, "format", format, known=FORMATS, source=source)
        per_second = records_per_second(name, rate, source)
        values = {
            "name": checked_name(name, source),
            "event": checked_event(name, event, source),
            "key": checked_keys(name, tuple(reference(event, k, option="key", source=source) for k in keys), source),
            "time": checked_time(name, event, time, source, compacted=compacted),
            "partitions": partition_count(name, partitions, per_second, source),
            "rate": per_second,
            "retention": checked_retention(name, retention, source, compacted=compacted),
            "lateness": micros(lateness, option="lateness", source=source),
            "replication": checked_replication(name, replication, source),
            "compatibility": checked_compatibility(name, compatibility, source, registered=format == "avro"),
            "format": format,
            "log_time": one_of(name, "log_time", log_time, known=LOG_TIMES, source=source),
            "compacted": compacted,
            "external": external,
            "archive": checked_archive(name, archive, source, compacted=compacted),
            "source": source,
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)
        collector.declare(self, source.file)

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(Key(k.name, k.kind) for k in self.key)

    @property
    def rules(self) -> tuple[Expression, ...]:
        """The rules of the topic's event."""
        return tuple(rule for field in fields_of(self.event).values() for rule in field.rules)

    def _repr_html_(self) -> str:
        retention = "the newest record of each key" if self.retention is None else text(self.retention)
        rows = {
            "event": self.event.__name__,
            "key": ", ".join(k.name for k in self.key),
            "time": "" if self.time is None else self.time.name,
            "lateness": text(self.lateness),
            "kept": retention,
            "partitions": str(self.partitions),
            "format": self.format,
            "log time": "the header's, else the broker's" if self.log_time == "header" else f"the {self.log_time}'s",
            "owner": "somebody else" if self.external else "this project",
            "archive": "every record, also after the log deleted it" if self.archive else "none",
        }
        return html_table((), rows.items(), caption=f"topic {self.name}")

    def _identity(self) -> tuple[Any, ...]:
        time = self.time.name if self.time is not None else None
        own = (self.name, self.event, tuple(k.name for k in self.key), time, self.format, self.log_time)
        storage = (self.partitions, self.retention, self.compacted, self.replication)
        return (*own, *storage, self.lateness, self.compatibility, self.external, self.archive)

    def __eq__(self, other: object) -> bool:  # written by hand, because == of a field builds a condition
        return isinstance(other, Topic) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())
