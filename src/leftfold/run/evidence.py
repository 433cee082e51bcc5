"""The records of one key that a view has applied, found in the log and judged as the view judges them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from leftfold.fold.definition import Definition, Origin
from leftfold.fold.expressions import evaluate
from leftfold.fold.latest import Latest
from leftfold.fold.values import entity_text
from leftfold.kafka.decode import Decode
from leftfold.kafka.reading import Logged, LogReader, partition_of
from leftfold.spec.first_log import AHEAD
from leftfold.spec.topic import Topic
from leftfold.store.layout import ACCEPTED

Watch = Callable[[int, int], None]  # records looked at so far, and all of them
_WATCHED_EVERY = 5_000


@dataclass(frozen=True)
class Place:
    """One of the view's topics, and what the view has applied of it."""

    topic: Topic[Any]
    origin: Origin
    name: str  # in the cluster
    partitions: int
    applied: Mapping[int, int]  # by partition the offset after the last record that was applied
    decode: Decode


@dataclass(frozen=True)
class Evidence:
    """A record of the key, and what the view made of it."""

    topic: str
    partition: int
    offset: int
    log_us: int
    event_us: int | None
    outcome: str
    deleted: bool
    fields: dict[str, Any] | None  # plain values of what the view reads; None if the bytes are no record


@dataclass(frozen=True)
class Range:
    topic: str
    partition: int
    start: int
    end: int
    gone: bool  # the log does not reach back as far as was wanted


@dataclass(frozen=True)
class Found:
    evidence: list[Evidence]  # in the order of the log: topic, partition, offset
    ranges: list[Range]
    whole: bool  # every partition was read, not only the one where the key belongs


class Search:
    """For the records of one key (`parts`, in the order of the definition's keys) in the topics of one view."""

    def __init__(
        self, definition: Definition | Latest, parts: tuple[Any, ...], places: tuple[Place, ...], log: LogReader
    ) -> None:
        self._definition = definition
        self._entity = entity_text(parts)
        self._parts = dict(zip((k.name for k in definition.keys), parts, strict=True))
        self._places = places
        self._log = log

    def key_bytes(self, topic: Topic[Any]) -> bytes | None:
        """The key of such records in Kafka, if the view is keyed as the topic is."""
        names = [k.name for k in topic.key]
        if set(names) != set(self._parts):
            return None
        return entity_text([self._parts[name] for name in names]).encode()

    def find(self, since: int | None, watch: Watch, *, whole: bool = False) -> Found:
        """All that was logged since then (None: ever) and was applied; `whole` wherever a producer may have put it."""
        ranges = [r for place in self._places for r in self._ranges(place, since, whole=whole)]
        total, done = sum(r.end - r.start for r in ranges), 0
        found: list[Evidence] = []
        for place in self._places:
            key = self.key_bytes(place.topic)
            mine = {r.partition: (r.start, r.end) for r in ranges if r.topic == place.topic.name}
            for record in self._log.read(place.name, mine, first_log=place.origin.log_time == "header"):
                done += 1
                if done % _WATCHED_EVERY == 0:
                    watch(done, total)
                if whole or key is None or record.key == key:
                    found += self._own(place, record, key)
        watch(total, total)
        order = {place.topic.name: i for i, place in enumerate(self._places)}
        found.sort(key=lambda e: (order[e.topic], e.partition, e.offset))
        everywhere = whole or any(self.key_bytes(place.topic) is None for place in self._places)
        return Found(found, ranges, everywhere)

    def _ranges(self, place: Place, since: int | None, *, whole: bool) -> Iterator[Range]:
        key = self.key_bytes(place.topic)
        only = None if whole or key is None else partition_of(key, place.partitions)
        wanted = [p for p in place.applied if only is None or p == only]
        firsts = self._log.firsts(place.name, wanted)
        if since is not None and place.origin.log_time == "header":
            since -= AHEAD  # the log finds what it got since then, and a copy comes after its first log time
        starts = firsts if since is None else self._log.firsts(place.name, wanted, since)
        for partition in sorted(wanted):
            start, first, end = starts[partition], firsts[partition], place.applied[partition]
            gone = (first is None or first > 0) and start == first
            yield Range(place.topic.name, partition, min(end if start is None else start, end), end, gone)

    def _own(self, place: Place, record: Logged, key: bytes | None) -> Iterator[Evidence]:
        """Whose record it is its fields say; where it has none that can be read, only its key in Kafka does."""
        fields = place.decode(record.value)
        keys = self._definition.keys
        if fields is None:
            mine = key is not None and record.key == key
        else:
            mine = entity_text([fields[k.name] for k in keys]) == self._entity
        if not mine:
            return
        definition = self._definition
        event_us = fields[definition.time] if fields is not None and isinstance(definition, Definition) else None
        deleted = record.value is None
        yield Evidence(
            place.topic.name,
            record.partition,
            record.offset,
            record.log_us,
            event_us,
            outcome(definition, place.origin, record, fields),
            deleted,
            fields,
        )


def outcome(definition: Definition | Latest, origin: Origin, record: Logged, fields: Mapping[str, Any] | None) -> str:
    """What a view does with a record: the rules of spark/accept.py and spark/table.py, for one record."""
    if isinstance(definition, Latest):
        return ACCEPTED if record.value is None or (fields is not None and _sound(definition, fields)) else "rejected"
    if fields is None or fields[definition.time] is None or not _sound(definition, fields):
        return "rejected"
    if origin.log_time != "producer" and not record.by_broker:
        return "rejected"
    event_us: int = fields[definition.time]
    if event_us < record.log_us - origin.lateness:
        return "late"
    return "future" if event_us > record.log_us + definition.future else ACCEPTED


def _sound(definition: Definition | Latest, fields: Mapping[str, Any]) -> bool:
    finite = all(math.isfinite(v) for v in fields.values() if isinstance(v, float))
    keyed = all(fields[k.name] is not None for k in definition.keys)
    return keyed and finite and all(evaluate(rule, fields) is not False for rule in definition.rules)
