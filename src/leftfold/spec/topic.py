"""Topics: where events of one type are logged, by which key, and what counts as late."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from leftfold.errors import DeclarationError, Source, caller
from leftfold.fold.durations import Duration, micros
from leftfold.fold.expressions import FieldRef
from leftfold.fold.values import KEY_KINDS, entity_text
from leftfold.spec import collector
from leftfold.spec.event import Event, fields_of, reference

E_co = TypeVar("E_co", bound=Event, covariant=True)

# A reader keeps up with about this many records a second per partition; the number of partitions is for ever, so a
# topic never starts with fewer than six.
RECORDS_PER_PARTITION = 50_000
FEWEST_PARTITIONS = 6
# What Kafka accepts as a topic name, less the room a namespace prefix needs.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)/s", re.IGNORECASE)
COMPATIBILITIES = (*(a + b for a in ("BACKWARD", "FORWARD", "FULL") for b in ("", "_TRANSITIVE")), "NONE")


@dataclass(frozen=True, init=False, eq=False)
class Topic(Generic[E_co]):
    """A log of one event type.

    `lateness` belongs to the topic: a record is late if it reached the log more than that after its event time.
    With `external=True` somebody else creates and configures the topic; Leftfold only reads and writes records.
    """

    name: str
    event: type[Event]
    key: tuple[FieldRef, ...]
    time: FieldRef
    partitions: int
    retention: int
    lateness: int
    replication: int
    compatibility: str
    external: bool
    source: Source = field(compare=False)

    def __init__(
        self,
        name: str,
        event: type[E_co],
        *,
        key: Any,
        time: Any,
        partitions: int | None = None,
        rate: str | None = None,
        retention: Duration = "7d",
        lateness: Duration = "10m",
        replication: int = 3,
        compatibility: str = "FULL_TRANSITIVE",
        external: bool = False,
    ) -> None:
        source = caller()
        keys = key if isinstance(key, tuple) else (key,)
        values = {
            "name": _checked_name(name, source),
            "event": _checked_event(name, event, source),
            "key": _checked_keys(name, tuple(reference(event, k, option="key", source=source) for k in keys), source),
            "time": _checked_time(name, reference(event, time, option="time", source=source), source),
            "partitions": _partitions(name, partitions, rate, source),
            "retention": micros(retention, option="retention", source=source),
            "lateness": micros(lateness, option="lateness", source=source),
            "replication": _checked_replication(name, replication, source),
            "compatibility": _checked_compatibility(name, compatibility, source),
            "external": external,
            "source": source,
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)
        collector.declare(self, source.file)

    def _identity(self) -> tuple[Any, ...]:
        own = (self.name, self.event, tuple(k.name for k in self.key), self.time.name, self.partitions)
        return (*own, self.retention, self.lateness, self.replication, self.compatibility, self.external)

    def __eq__(self, other: object) -> bool:  # by hand: == of a field builds a condition
        return isinstance(other, Topic) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def key_of(self, event: Event) -> bytes:
        return entity_text([getattr(event, k.name) for k in self.key]).encode()


def _checked_name(name: str, source: Source) -> str:
    if not _NAME.fullmatch(name):
        raise DeclarationError(
            "topic-name",
            f"{name!r} cannot name a topic",
            why="Kafka allows letters, digits, '.', '_' and '-', up to 200 characters with room for a namespace",
            fix="choose such a name, for example clicks or shop.clicks",
            source=source,
        )
    return name


def _checked_event(name: str, event: Any, source: Source) -> type[Event]:
    if isinstance(event, type) and issubclass(event, Event) and event is not Event:
        return event
    raise DeclarationError(
        "not-an-event",
        f"topic {name} was given {event!r} as its event",
        why="a topic holds records of one declared type",
        fix="declare `class Click(lf.Event)` and pass Click",
        source=source,
    )


def _checked_keys(name: str, keys: tuple[FieldRef, ...], source: Source) -> tuple[FieldRef, ...]:
    if not keys:
        raise DeclarationError(
            "key-kind",
            f"topic {name} is keyed by nothing",
            why="a key decides a record's partition, and keeps the records of one entity in order",
            fix="key the topic by a required str or int field",
            source=source,
        )
    return tuple(_checked_key(name, key, source) for key in keys)


def _checked_key(name: str, key: FieldRef, source: Source) -> FieldRef:
    info = fields_of(key.event)[key.name]  # type: ignore[arg-type] # reference() returns a field of an Event
    if key.kind not in KEY_KINDS or info.optional or info.repeated:
        raise DeclarationError(
            "key-kind",
            f"topic {name} is keyed by {key.name}, which is {_kind_text(info)}",
            why="a key decides a record's partition, so its text must be the same from every writer, and never missing",
            fix="key the topic by a required str or int field",
            source=source,
        )
    return key


def _checked_time(name: str, time: FieldRef, source: Source) -> FieldRef:
    info = fields_of(time.event)[time.name]  # type: ignore[arg-type] # as above
    if time.kind != "datetime" or info.optional or info.repeated:
        raise DeclarationError(
            "time-kind",
            f"topic {name} takes its event time from {time.name}, which is {_kind_text(info)}",
            why="every record needs the moment it happened",
            fix="name a required datetime field",
            source=source,
        )
    return time


def _kind_text(info: Any) -> str:
    return f"{'optional ' if info.optional else ''}{'a list of ' if info.repeated else ''}{info.kind}"


def _partitions(name: str, partitions: int | None, rate: str | None, source: Source) -> int:
    if partitions is not None and rate is not None:
        raise DeclarationError(
            "partitions-and-rate",
            f"topic {name} has both partitions= and rate=",
            why="the rate is there to choose the number of partitions",
            fix="give one of the two",
            source=source,
        )
    if partitions is not None:
        return _in_range(name, partitions, source)
    if rate is None:
        return FEWEST_PARTITIONS
    if not (match := _RATE.fullmatch(rate.strip())):
        raise DeclarationError(
            "bad-rate",
            f"topic {name}: rate={rate!r} is not a rate",
            why="a rate is a number of records a second, with k or m for thousands and millions",
            fix='write for example rate="20k/s"',
            source=source,
        )
    per_second = float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()]
    return _in_range(name, max(FEWEST_PARTITIONS, math.ceil(per_second / RECORDS_PER_PARTITION)), source)


def _in_range(name: str, partitions: int, source: Source) -> int:
    if not 1 <= partitions <= 4_000:
        raise DeclarationError(
            "partitions-range",
            f"topic {name} asks for {partitions} partitions",
            why="a broker carries about 4,000 partitions, and a topic needs one",
            fix="choose from 1 to 4000; about one for every 50,000 records a second",
            source=source,
        )
    return partitions


def _checked_replication(name: str, replication: int, source: Source) -> int:
    if replication < 1:
        raise DeclarationError(
            "replication-range",
            f"topic {name} asks for {replication} replicas",
            why="a record must be kept somewhere",
            fix="leave replication= out (3), or use 1 for data you can lose",
            source=source,
        )
    return replication


def _checked_compatibility(name: str, compatibility: str, source: Source) -> str:
    if compatibility not in COMPATIBILITIES:
        raise DeclarationError(
            "bad-compatibility",
            f"topic {name}: compatibility={compatibility!r} is unknown",
            why=f"a registry knows {', '.join(COMPATIBILITIES)}",
            fix="leave it out: FULL_TRANSITIVE lets every reader read every record, old or new",
            source=source,
        )
    return compatibility
