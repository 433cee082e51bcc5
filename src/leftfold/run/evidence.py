"""Finds the records of one key that a view has applied, in the log, and judges them as the view does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.first_log import AHEAD
from leftfold.declare.topic import Topic
from leftfold.fold.definition import Definition, Origin
from leftfold.fold.latest import Latest
from leftfold.fold.values import entity_text
from leftfold.kafka.decode import Decode
from leftfold.kafka.judge import ViewJudge
from leftfold.kafka.log_reader import Logged, LogReader
from leftfold.kafka.partitioner import partition_of

Watch = Callable[[int, int], None]  # the number of records looked at so far, and of all records
_WATCHED_EVERY = 5_000


@dataclass(frozen=True)
class Place:
    """One of the view's topics, and how much of it the view has applied."""

    topic: Topic[Any]
    origin: Origin
    name: str  # the topic's name in the cluster
    partitions: int
    applied: Mapping[int, int]  # by partition: the offset after the last applied record
    decode: Decode


@dataclass(frozen=True)
class Evidence:
    """A record of the key, and its outcome in the view."""

    topic: str
    partition: int
    offset: int
    log_us: int
    event_us: int | None
    outcome: str
    deleted: bool
    fields: dict[str, Any] | None  # plain values of the fields that the view reads; None if the bytes cannot be decoded


@dataclass(frozen=True)
class SearchedRange:
    topic: str
    partition: int
    start: int
    end: int
    gone: bool  # the log no longer reaches back to the wanted start, or may not


@dataclass(frozen=True)
class SearchResult:
    evidence: list[Evidence]  # in the order of the log: topic, partition, offset
    ranges: list[SearchedRange]
    whole: bool  # every partition of every topic was read; else, of some topic, only the one where the key belongs


class Search:
    """A search for the records of one key in the topics of one view.

    `parts` are the values of the key, in the order of the definition's keys.
    """

    def __init__(
        self, definition: Definition | Latest, parts: tuple[Any, ...], places: tuple[Place, ...], log: LogReader
    ) -> None:
        self._definition = definition
        self._entity = entity_text(parts)
        self._parts = dict(zip((k.name for k in definition.keys), parts, strict=True))
        self._places = places
        self._log = log
        self._judges = {place.topic.name: ViewJudge(definition, place.origin) for place in places}

    def key_bytes(self, topic: Topic[Any]) -> bytes | None:
        """The Kafka key of these records; None if the view and the topic have different key fields."""
        names = [k.name for k in topic.key]
        if set(names) != set(self._parts):
            return None
        return entity_text([self._parts[name] for name in names]).encode()

    def find(self, since: int | None, watch: Watch, *, whole: bool = False) -> SearchResult:
        """Find the key's applied records that were logged at `since` or later (None: all of them).

        Usually only the partition where the key belongs is read. `whole` reads every partition, because another
        producer may have put the record elsewhere.
        """
        ranges = [r for place in self._places for r in self._ranges(place, since, whole=whole)]
        total, done = sum(r.end - r.start for r in ranges), 0
        evidence: list[Evidence] = []
        for place in self._places:
            key = self.key_bytes(place.topic)
            mine = {r.partition: (r.start, r.end) for r in ranges if r.topic == place.topic.name}
            for record in self._log.read(place.name, mine, first_log=place.origin.log_time == "header"):
                done += 1
                if done % _WATCHED_EVERY == 0:
                    watch(done, total)
                if whole or key is None or record.key == key:
                    evidence += self._own(place, record, key)
        watch(total, total)
        order = {place.topic.name: i for i, place in enumerate(self._places)}
        evidence.sort(key=lambda e: (order[e.topic], e.partition, e.offset))
        everywhere = whole or all(self.key_bytes(place.topic) is None for place in self._places)
        return SearchResult(evidence, ranges, everywhere)

    def _ranges(self, place: Place, since: int | None, *, whole: bool) -> Iterator[SearchedRange]:
        key = self.key_bytes(place.topic)
        only = None if whole or key is None else partition_of(key, place.partitions)
        wanted = [p for p in place.applied if only is None or p == only]
        firsts = self._log.firsts(place.name, wanted)
        if since is not None and place.origin.log_time == "header":
            # Kafka searches by when this log got a record. A copy's first log time is at most AHEAD later than that.
            since -= AHEAD
        starts = firsts if since is None else self._log.firsts(place.name, wanted, since)
        for partition in sorted(wanted):
            start, first, end = starts[partition], firsts[partition], place.applied[partition]
            gone = (first is None or first > 0) and start == first
            yield SearchedRange(place.topic.name, partition, min(end if start is None else start, end), end, gone)

    def _own(self, place: Place, record: Logged, key: bytes | None) -> Iterator[Evidence]:
        """Yield the evidence if the record belongs to the key.

        The record's fields decide that. If they cannot be decoded, the Kafka key decides.
        """
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
        deleted, judge = record.value is None, self._judges[place.topic.name]
        removes = deleted and isinstance(definition, Latest) and judge.deletes(record.key)
        yield Evidence(
            place.topic.name,
            record.partition,
            record.offset,
            record.log_us,
            event_us,
            ACCEPTED if removes else judge.outcome(fields, record.key, record.log_us, record.by_broker),
            deleted,
            fields,
        )
