"""The records of topics that small work needs: read once from the log, decoded, judged, and kept by entity."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leftfold.arrow.decode import decoder, text_of_key
from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.event import fields_of
from leftfold.declare.topic import Topic
from leftfold.fold.definition import Definition
from leftfold.fold.known import AppliedBatch
from leftfold.fold.latest import Latest
from leftfold.fold.values import entity_text
from leftfold.kafka.decode import Schemas
from leftfold.kafka.judge import ViewJudge
from leftfold.kafka.log_reader import LogReader, scan
from leftfold.offsets import SLOTS_PER_TOPIC
from leftfold.settings import Kafka

Fields = Mapping[str, Any]


class AcceptedEvent(NamedTuple):
    """An accepted record of a windowed view. It sorts by time, and then by its place in the log."""

    event_us: int
    slot: int
    offset: int
    log_us: int
    original: bool  # False for a re-driven record
    fields: Fields


class Version(NamedTuple):
    """An accepted record of a table: a row of its key, or a deletion."""

    offset: int
    slot: int
    log_us: int
    row: list[Any] | None


@dataclass
class ViewRecords:
    """The accepted records of one view, by entity: only those of the entities that somebody asked for."""

    definition: Definition | Latest
    entities: Container[str]
    events: dict[str, list[AcceptedEvent]] = field(default_factory=dict)
    versions: dict[str, list[Version]] = field(default_factory=dict)

    def taker(self, topic: Topic[Any], place: int, fields: Collection[str]) -> Callable[..., None]:
        """Return the function that takes the records of one topic: the view's topic number `place`.

        `fields` are those that are decoded.
        """
        definition, entities = self.definition, self.entities
        decoded = {name: field_ for name, field_ in fields_of(topic.event).items() if name in fields}
        judge, slots = ViewJudge(definition, definition.origins[place], decoded), place * SLOTS_PER_TOPIC
        names = [key.name for key in definition.keys]
        single = names[0] if len(names) == 1 and definition.keys[0].kind == "string" else None
        if isinstance(definition, Latest):
            columns, versions = [column.field for column in definition.columns], self.versions

            def take_row(
                event: Fields | None, partition: int, offset: int, log_us: int, by_broker: bool, key: bytes | None,
                deleted: bool, original: bool,
            ) -> None:  # fmt: skip
                if deleted and judge.deletes(key):
                    entity, row = text_of_key(key), None
                elif event is None or judge.outcome(event, key, log_us, by_broker) != ACCEPTED:
                    return
                else:
                    entity = event[single] if single else entity_text([event[name] for name in names])
                    row = [event[name] for name in columns]
                if entity is None or entity not in entities:
                    return
                versions.setdefault(entity, []).append(Version(offset, slots + partition, log_us, row))

            return take_row

        time, events, outcome = definition.time, self.events, judge.outcome

        def take_event(
            event: Fields | None, partition: int, offset: int, log_us: int, by_broker: bool, key: bytes | None,
            deleted: bool, original: bool,
        ) -> None:  # fmt: skip
            if event is None or (single is not None and event[single] not in entities):
                return
            if outcome(event, key, log_us, by_broker) != ACCEPTED:
                return
            entity = event[single] if single else entity_text([event[name] for name in names])
            if entity not in entities:
                return
            held = AcceptedEvent(event[time], slots + partition, offset, log_us, original, event)
            events.setdefault(entity, []).append(held)

        return take_event


@dataclass(frozen=True)
class TopicRange:
    """A range of a topic, and what is needed to read it."""

    topic: Topic[Any]
    name: str  # in the cluster
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    redrives: str  # the topic of its re-driven records
    redriven: int  # re-driven records before this offset replace their originals
    fields: Collection[str]
    schemas: Schemas


def read_topic(of: TopicRange, kafka: Kafka, views: Sequence[tuple[ViewRecords, int]]) -> dict[int, int]:
    """Read a range once, and give its records to views. Return the first log time of each partition (µs).

    A view comes with the number of the topic among its own.
    """
    topic = of.topic
    decode = decoder(topic, of.fields, of.schemas)
    takers = [view.taker(topic, place, of.fields) for view, place in views]
    replaced = dict(_redriven(of, kafka)) if of.redriven else {}
    firsts: dict[int, int] = {}
    log = LogReader(kafka)
    try:
        ranges = {partition: (of.starts[partition], end) for partition, end in of.ends.items()}
        for _, partition, offset, log_us, by_broker, key, value in log.read(
            of.name, ranges, first_log=topic.log_time == "header"
        ):
            if partition not in firsts or log_us < firsts[partition]:
                firsts[partition] = log_us
            if replaced and (partition, offset) in replaced:
                continue
            event = None if value is None else decode(value)
            if type(event) is str:  # the reason why there are no fields
                event = None
            for take in takers:
                take(event, partition, offset, log_us, by_broker, key, value is None, True)
    finally:
        log.close()
    for (partition, offset), (key, log_us, value) in replaced.items():
        event = None if value is None else decode(value)
        if type(event) is str:
            event = None
        for take in takers:
            take(event, partition, offset, log_us, True, key, False, False)
    return firsts


def _redriven(of: TopicRange, kafka: Kafka) -> Iterator[tuple[tuple[int, int], tuple[bytes | None, int, bytes | None]]]:
    """Yield re-driven records by the place of their original. If there are several of one place, the newest is last."""
    for record in scan(kafka, of.redrives, [0]):
        if record.offset >= of.redriven:
            return
        partition, offset = (record.key or b"").split(b"/")
        log_us = int(record.headers["log_time"])
        yield (int(partition), int(offset)), (record.headers.get("key"), log_us, record.value)


class Batches:
    """The batches of a build: which of them brought a record, and which was the last at a moment."""

    def __init__(self, batches: Sequence[AppliedBatch], begins: Mapping[int, int]) -> None:
        self._applied = [one.applied for one in batches]
        self._numbers = [one.batch for one in batches]
        self._begins = begins
        self._ends: dict[int, list[int]] = {}
        self._of_end: dict[int, list[int]] = {}
        for one in batches:
            for slot, end in one.ends.items():
                ends = self._ends.setdefault(slot, [])
                if end > (ends[-1] if ends else begins.get(slot, 0)):
                    ends.append(end)
                    self._of_end.setdefault(slot, []).append(one.batch)

    def that_brought(self, slot: int, offset: int) -> int | None:
        """Return the batch that brought a record into the store; None if none did."""
        ends = self._ends.get(slot, [])
        place = bisect_right(ends, offset)
        if place == len(ends) or offset < self._begins.get(slot, 0):
            return None
        return self._of_end[slot][place]

    def last_at(self, moment: int) -> int | None:
        """Return the last batch that the store had at a moment; None before the first."""
        place = bisect_right(self._applied, moment)
        return self._numbers[place - 1] if place else None
