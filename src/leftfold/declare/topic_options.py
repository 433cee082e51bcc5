"""Checks of the options of a topic. An error points to the line where the option was written."""

from __future__ import annotations

import math
import re
from typing import Any

from leftfold.declare.event import Event, fields_of, reference
from leftfold.errors import DeclarationError, SourceLine
from leftfold.fold.durations import Duration, micros
from leftfold.fold.expressions import FieldRef
from leftfold.fold.values import KEY_KINDS

# A reader keeps up with about this many records per second and partition. The number of partitions is permanent, so by
# default a topic has at least six.
RECORDS_PER_PARTITION = 50_000
FEWEST_PARTITIONS = 6
# A topic name that Kafka accepts, shorter by the space that a namespace prefix needs.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)/s", re.IGNORECASE)
COMPATIBILITIES = (*(a + b for a in ("BACKWARD", "FORWARD", "FULL") for b in ("", "_TRANSITIVE")), "NONE")
FORMATS = ("avro", "json")
LOG_TIMES = ("broker", "producer", "header")


def checked_name(name: str, source: SourceLine) -> str:
    if not _NAME.fullmatch(name):
        raise DeclarationError(
            "topic-name",
            f"{name!r} cannot name a topic",
            why="Kafka allows letters, digits, '.', '_' and '-', up to 200 characters with room for a namespace",
            fix="choose a name of letters, digits, '.', '_' and '-', for example clicks or shop.clicks",
            source=source,
        )
    return name


def checked_event(name: str, event: Any, source: SourceLine) -> type[Event]:
    if isinstance(event, type) and issubclass(event, Event) and event is not Event:
        return event
    raise DeclarationError(
        "not-an-event",
        f"topic {name} was given {event!r} as its event",
        why="a topic holds records of one declared type",
        fix="declare `class Click(lf.Event)` and pass Click",
        source=source,
    )


def checked_keys(name: str, keys: tuple[FieldRef, ...], source: SourceLine) -> tuple[FieldRef, ...]:
    if not keys:
        raise DeclarationError(
            "key-kind",
            f"topic {name} is keyed by nothing",
            why="a key decides a record's partition, and keeps the records of one entity in order",
            fix="key the topic by a required str or int field",
            source=source,
        )
    return tuple(_checked_key(name, key, source) for key in keys)


def _checked_key(name: str, key: FieldRef, source: SourceLine) -> FieldRef:
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


def checked_time(name: str, event: type[Event], field: Any, source: SourceLine, *, compacted: bool) -> FieldRef | None:
    if field is None:
        if compacted:
            return None  # the newest record of a key is the last one in the log
        raise DeclarationError(
            "time-missing",
            f"topic {name} has no event time",
            why="what is late, and which window an event falls into, depend on when it happened",
            fix="name a required datetime field as time=, or declare compacted=True for the newest row of each key",
            source=source,
        )
    time = reference(event, field, option="time", source=source)
    info = fields_of(event)[time.name]
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


def partition_count(name: str, partitions: int | None, rate: float | None, source: SourceLine) -> int:
    """The number of partitions: as declared, else as many as the rate needs, and at least six."""
    if partitions is None:
        partitions = max(FEWEST_PARTITIONS, math.ceil((rate or 0) / RECORDS_PER_PARTITION))
    return _in_range(name, partitions, source)


def records_per_second(name: str, rate: str | None, source: SourceLine) -> float | None:
    if rate is None:
        return None
    if not (match := _RATE.fullmatch(rate.strip())):
        raise DeclarationError(
            "bad-rate",
            f"topic {name}: rate={rate!r} is not a rate",
            why="a rate is a number of records a second, with k or m for thousands and millions",
            fix='write for example rate="20k/s"',
            source=source,
        )
    return float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()]


def _in_range(name: str, partitions: int, source: SourceLine) -> int:
    if not 1 <= partitions <= 4_000:
        raise DeclarationError(
            "partitions-range",
            f"topic {name} asks for {partitions} partitions",
            why="a broker carries about 4,000 partitions, and a topic needs one",
            fix="choose from 1 to 4000; about one for every 50,000 records a second",
            source=source,
        )
    return partitions


def checked_replication(name: str, replication: int, source: SourceLine) -> int:
    if replication < 1:
        raise DeclarationError(
            "replication-range",
            f"topic {name} asks for {replication} replicas",
            why="a record must be kept somewhere",
            fix="leave replication= out (3), or use 1 for data you can lose",
            source=source,
        )
    return replication


def one_of(name: str, option: str, choice: Any, *, known: tuple[str, ...], source: SourceLine) -> Any:
    if choice not in known:
        raise DeclarationError(
            "bad-topic-option",
            f"topic {name}: {option}={choice!r} is unknown",
            why=f"{option} is {' or '.join(repr(k) for k in known)}",
            fix=f"choose one of {', '.join(map(repr, known))}; left out it is {known[0]!r}",
            source=source,
        )
    return choice


def checked_retention(name: str, retention: Duration | None, source: SourceLine, *, compacted: bool) -> int | None:
    if not compacted:
        return micros("7d" if retention is None else retention, option="retention", source=source)
    if retention is not None:
        raise DeclarationError(
            "compacted-retention",
            f"topic {name} has both compacted=True and retention=",
            why="a compacted topic keeps the newest record of every key for as long as the key lives",
            fix="leave one of the two out",
            source=source,
        )
    return None


def checked_archive(name: str, archive: bool, source: SourceLine, *, compacted: bool) -> bool:
    if archive and compacted:
        raise DeclarationError(
            "compacted-archive",
            f"topic {name} has both compacted=True and archive=True",
            why="an archive holds every record at its offset, and compaction deletes records between them",
            fix="leave archive= out: a compacted topic keeps the newest record of every key itself",
            source=source,
        )
    return archive


def checked_compatibility(name: str, compatibility: str | None, source: SourceLine, *, registered: bool) -> str:
    if not registered and compatibility is not None:
        raise DeclarationError(
            "json-compatibility",
            f"topic {name} has both format='json' and compatibility=",
            why="records of JSON have no registered schema whose changes could be checked",
            fix="leave compatibility= out, or use Avro",
            source=source,
        )
    if compatibility is None:
        return "FULL_TRANSITIVE" if registered else "NONE"
    if compatibility not in COMPATIBILITIES:
        raise DeclarationError(
            "bad-compatibility",
            f"topic {name}: compatibility={compatibility!r} is unknown",
            why=f"a registry knows {', '.join(COMPATIBILITIES)}",
            fix="leave it out: FULL_TRANSITIVE lets every reader read every record, old or new",
            source=source,
        )
    return compatibility
