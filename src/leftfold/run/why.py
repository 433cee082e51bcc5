"""Explains a value: its tiles in the store, its events in the log, and whether the two agree. It needs no Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from leftfold import clock
from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.catalog import DeclaredView
from leftfold.declare.companions import redrive_topic
from leftfold.declare.event import fields_of
from leftfold.declare.keys import key_values
from leftfold.errors import RunError
from leftfold.fold import columns, derived
from leftfold.fold.columns import Column
from leftfold.fold.compute import compute
from leftfold.fold.definition import Definition, Derived, Feature
from leftfold.fold.durations import SECOND, text
from leftfold.fold.expressions import from_micros
from leftfold.fold.latest import Latest
from leftfold.kafka.admin import Admin
from leftfold.kafka.decode import avro_decoder, json_decoder
from leftfold.kafka.log_reader import LogReader
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run.evidence import Evidence, Place, Search, SearchResult, Watch
from leftfold.settings import Kafka, Profile
from leftfold.store.layout import ROW_FIELD, LedgerRow
from leftfold.store.reader import Inside, Reader
from leftfold.store.tile_read import TileRead, lifetime_in

Verdict = Literal["same", "different", "unknown"]
# How long to wait while a batch is being written, before we take the row as it is. A batch takes a second or two to
# write.
_STILL_S = 10.0


@dataclass(frozen=True)
class ValueOf:
    """A feature or column: its value from the store, and its value from the log."""

    name: str
    store: Any
    log: Any
    tiles: tuple[int, ...] = ()  # the numbers of its tiles

    @property
    def same(self) -> bool:
        return type(self.store) is type(self.log) and bool(self.store == self.log)


@dataclass(frozen=True)
class TileOf:
    """A tile. Without a step it is the lifetime tile, which covers all events.

    `batch` is None if the store lacks this tile although the log has events for it.
    """

    number: int
    step: int | None
    start: int | None
    batch: int | None
    store: tuple[Any, ...]  # the value of each column in the tile
    log: tuple[Any, ...]

    @property
    def end(self) -> int | None:
        return None if self.start is None or self.step is None else self.start + self.step

    def holds(self, event_us: int) -> bool:
        return self.start is None or self.end is None or self.start <= event_us < self.end


@dataclass(frozen=True)
class EventOf:
    """A record of the key, and the numbers of the tiles that contain it."""

    record: Evidence
    tiles: tuple[int, ...]


@dataclass(frozen=True)
class Why:
    view: str
    kind: Literal["features", "table", "function"]
    build: str
    batch: int
    moment: datetime
    values: tuple[ValueOf, ...]
    columns: tuple[str, ...]  # labels of the columns that each tile has
    tiles: tuple[TileOf, ...]
    events: tuple[EventOf, ...]  # in the order of their log times
    says: tuple[str, ...]  # fields of an event in addition to its key and time
    found: SearchResult | None  # None if the log was not read
    position: tuple[int, int] | None  # position and batch of a row that is not made of tiles
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Sources:
    """The store, the log and the registry that an explanation reads from."""

    reader: Reader
    kafka: Kafka
    admin: Admin
    registry: SchemaRegistry
    profile: Profile


def why(declared: DeclaredView, key: Mapping[str, Any], at: int | None, sources: Sources, watch: Watch) -> Why:
    inside = _still(sources.reader, declared.name, key, at)
    definition = inside.definition
    if isinstance(definition, Latest) and definition.code is not None:
        return _row(inside, None, "a function makes its rows, and only Spark can run it")
    if isinstance(definition, Definition) and definition.stream is not None:
        return _features(inside, None, "a stream's function stands before it, and only Spark can run that")
    _check_readable(declared, inside)
    log = LogReader(sources.kafka)
    try:
        parts = key_values(declared.name, definition.keys, key)
        search = Search(definition, parts, _places(declared, inside, sources), log)
        explained = _explained(inside, search.find(_since(inside), watch))
        if explained.verdict == "different" and explained.found is not None and not explained.found.whole:
            # Another producer may have put the key into another partition, or partitions may have been added since.
            explained = _explained(inside, search.find(_since(inside), watch, whole=True))
        if explained.verdict == "different" and (topic := _redriven(declared, sources)) is not None:
            again = f"{explained.reason}; records of {topic} were re-driven, and these are not looked at here"
            explained = replace(explained, verdict="unknown", reason=again)
        return explained
    finally:
        log.close()


def _redriven(declared: DeclaredView, sources: Sources) -> str | None:
    """The first topic of the view that has re-driven records; None if there is none."""
    for topic in declared.reading.topics:
        name = sources.profile.topic_name(redrive_topic(topic.name))
        if not topic.compacted and sources.admin.partitions([name]) and sources.admin.end_offsets(name, 1)[0]:
            return topic.name
    return None


def _still(reader: Reader, view: str, key: Mapping[str, Any], at: int | None) -> Inside:
    """Read the row at a moment when no batch is being written. After `_STILL_S` seconds, take it as it is."""
    deadline = clock.monotonic() + _STILL_S
    while True:
        inside = reader.inside(view, key, at)
        if inside.still or clock.monotonic() > deadline:
            return inside
        time.sleep(0.05)


def _check_readable(declared: DeclaredView, inside: Inside) -> None:
    definition, read = inside.definition, declared.reading
    unknown = definition.fields() - set(fields_of(read.topics[0].event))
    topics = [t.name for t in read.topics]
    if unknown or [o.topic for o in definition.origins] != topics:
        raise RunError(
            "build-not-declared",
            f"the active build of {declared.name}, {inside.build}, is not of what is declared now",
            why=f"it reads {', '.join(o.topic for o in definition.origins)} with "
            f"{', '.join(sorted(definition.fields()))}, and records are decoded as they are declared",
            fix="leftfold run builds what is declared; ask again when it has caught up",
            source=declared.source,
        )


def _places(declared: DeclaredView, inside: Inside, sources: Sources) -> tuple[Place, ...]:
    fields = inside.definition.fields()
    names = [sources.profile.topic_name(t.name, external=t.external) for t in declared.reading.topics]
    partitions = sources.admin.partitions(names)
    places = []
    for topic, origin, name in zip(declared.reading.topics, inside.definition.origins, names, strict=True):
        applied = _applied(inside.ledger, topic.name)
        if name not in partitions and applied:
            raise RunError(
                "not-applied",
                f"{declared.name} reads topic {name}, which does not exist",
                why="the events that made its values were there",
                fix="ask the topic's owner what became of it" if topic.external else "leftfold apply",
                source=declared.source,
            )
        if name in partitions:
            decode = (
                json_decoder(topic.event, fields)
                if topic.format == "json"
                else avro_decoder(topic.event, fields, sources.registry.schema)
            )
            places.append(Place(topic, origin, name, partitions[name], applied, decode))
    return tuple(places)


def _applied(ledger: Sequence[LedgerRow], topic: str) -> dict[int, int]:
    applied: dict[int, int] = {}
    for row in ledger:
        if row.topic == topic:
            applied[row.partition] = max(applied.get(row.partition, 0), row.newest_offset + 1)
    return applied


def _since(inside: Inside) -> int | None:
    """The moment before which no accepted event of the windows was logged; None if there is no such moment."""
    definition = inside.definition
    if isinstance(definition, Latest) or definition.lifetime:
        return None
    return _earliest(definition, _plan(inside)) - definition.future


def _earliest(definition: Definition, plan: TileRead) -> int:
    return min(tile.start for tile in plan.tiles)


def _explained(inside: Inside, scan: SearchResult) -> Why:
    return (_row if isinstance(inside.definition, Latest) else _features)(inside, scan, "")


# Windowed features --------------------------------------------------------------------------------------------------


def _plan(inside: Inside) -> TileRead:
    assert isinstance(inside.definition, Definition)
    return TileRead(inside.definition, inside.moment, inside.moment, exact=inside.exact)


def _features(inside: Inside, scan: SearchResult | None, unknown: str) -> Why:
    definition, plan = inside.definition, _plan(inside)
    assert isinstance(definition, Definition)
    store = plan.values(inside.held, inside.moment).values
    evidence = [] if scan is None else _relevant(definition, plan, scan.evidence)
    accepted = [e for e in evidence if e.outcome == ACCEPTED]
    folded = None if scan is None else compute(definition, [_event(e) for e in accepted], inside.moment)
    tiles = list(_tiles(definition, plan, inside, accepted))
    numbers = {(tile.step, tile.start): tile.number for tile in tiles}
    values = [
        ValueOf(f.name, store[f.name], folded and folded[f.name], tuple(_made_of(definition, f, plan, numbers)))
        for f in definition.features
        if f.name in store
    ]
    events = [EventOf(e, _within(e, tiles)) for e in sorted(evidence, key=lambda e: e.log_us)]
    answer = Why(
        view=definition.view,
        kind="features",
        build=inside.build,
        batch=inside.batch,
        moment=from_micros(inside.moment),
        values=tuple(values),
        columns=tuple(_label(column) for column in definition.columns),
        tiles=tuple(tiles),
        events=tuple(events),
        says=tuple(sorted(definition.fields() - {definition.time, *(k.name for k in definition.keys)})),
        found=scan,
        position=None,
        verdict="unknown",
        reason=unknown,
    )
    return _judged(answer, inside, len(accepted))


def _relevant(definition: Definition, plan: TileRead, evidence: Sequence[Evidence]) -> list[Evidence]:
    if definition.lifetime:
        return list(evidence)
    earliest = _earliest(definition, plan)
    return [e for e in evidence if e.event_us is None or e.event_us >= earliest]


def _event(evidence: Evidence) -> dict[str, Any]:
    assert evidence.fields is not None, "it was accepted"
    return evidence.fields


def _within(evidence: Evidence, tiles: Sequence[TileOf]) -> tuple[int, ...]:
    if evidence.outcome != ACCEPTED or evidence.event_us is None:
        return ()
    return tuple(tile.number for tile in tiles if tile.holds(evidence.event_us))


def _tiles(definition: Definition, plan: TileRead, inside: Inside, accepted: Sequence[Evidence]) -> Iterator[TileOf]:
    """Yield the tiles that the store holds, and those that it should hold according to the events.

    The oldest come first, and finer ones before coarser ones. The lifetime tile comes last.
    """
    by_time = sorted(accepted, key=lambda e: e.event_us or 0)  # stable: ties keep the order of the log
    rows = plan.rows(inside.held, inside.moment)
    wanted: list[tuple[int | None, int | None, Sequence[Any] | None]] = [
        (tile.step, tile.start, rows.get(place))
        for place, tile in sorted(enumerate(plan.tiles), key=lambda t: (t[1].start, t[1].step))
    ]
    if definition.lifetime:
        wanted.append((None, None, lifetime_in(inside.held)))
    number = 0
    for step, start, row in wanted:
        tile = TileOf(number + 1, step, start, None if row is None else row[1], (), ())
        events = [_event(e) for e in by_time if e.event_us is not None and tile.holds(e.event_us)]
        if row is None and not events:
            continue
        number += 1
        partials = row[2:] if row is not None else [None] * len(definition.columns)
        yield replace(
            tile,
            store=tuple(columns.final(c, p) for c, p in zip(definition.columns, partials, strict=True)),
            log=tuple(columns.final(c, columns.partial(c, events)) for c in definition.columns),
        )


def _made_of(
    definition: Definition, feature: Feature, plan: TileRead, numbers: Mapping[tuple[int | None, int | None], int]
) -> list[int]:
    if isinstance(feature, Derived):
        by_name = {f.name: f for f in definition.features}
        parts = [_made_of(definition, by_name[n], plan, numbers) for n in _names(feature.node)]
        return sorted({number for part in parts for number in part})
    places: list[tuple[int | None, int | None]] = [(t.step, t.start) for t in plan.tiles_of(feature.span)]
    if feature.window is None:
        places = [(None, None)]
    return sorted(numbers[place] for place in places if place in numbers)


def _names(node: derived.Node) -> Iterator[str]:
    if isinstance(node, derived.Value):
        yield node.name
    elif isinstance(node, derived.Arithmetic):
        yield from _names(node.left)
        yield from _names(node.right)


def _label(column: Column) -> str:
    of = f"({column.field})" if column.field else ""
    return f"{column.aggregate}{of}{'' if column.where is None else ' where …'}"


# Rows ---------------------------------------------------------------------------------------------------------------


def _row(inside: Inside, scan: SearchResult | None, unknown: str) -> Why:
    definition = inside.definition
    assert isinstance(definition, Latest)
    held = inside.held.get(ROW_FIELD.encode())
    position, batch, *row = json.loads(held) if held is not None else (-1, -1)
    store = definition.row(row or None)
    accepted = [] if scan is None else [e for e in scan.evidence if e.outcome == ACCEPTED]
    # Offsets of a key only grow, so the newest record is the last. If several partitions have the key, the record with
    # the largest offset counts.
    newest = max(accepted, key=lambda e: e.offset, default=None)
    fields = None if newest is None else newest.fields  # None for a deletion too
    log = definition.row(None if fields is None else [fields[c.field] for c in definition.columns])
    answer = Why(
        view=definition.view,
        kind="table" if definition.code is None else "function",
        build=inside.build,
        batch=inside.batch,
        moment=from_micros(inside.moment),
        values=tuple(ValueOf(name, store[name], None if scan is None else log[name]) for name in definition.visible),
        columns=(),
        tiles=(),
        events=tuple(EventOf(e, ()) for e in ([] if scan is None else sorted(scan.evidence, key=lambda e: e.log_us))),
        says=tuple(sorted(definition.fields() - {k.name for k in definition.keys})),
        found=scan,
        position=None if held is None else (position, batch),
        verdict="unknown",
        reason=unknown,
    )
    return _judged(answer, inside, len(accepted))


# The verdict --------------------------------------------------------------------------------------------------------


def _judged(answer: Why, inside: Inside, accepted: int) -> Why:
    if answer.found is None:
        return answer
    differ = [value for value in answer.values if not value.same]
    count, verb = ("1 accepted event", "gives") if accepted == 1 else (f"{accepted:,} accepted events", "give")
    events = f"{count} in the log {verb}"
    if not differ:
        return replace(answer, verdict="same", reason=f"{events} the values that the store gives")
    if not inside.still:
        return replace(answer, reason=f"a batch after {inside.batch} is being written, or was left half written")
    names = ", ".join(value.name for value in differ)
    if short := [r for r in answer.found.ranges if r.gone]:
        first = short[0]
        return replace(
            answer,
            reason=f"{names} cannot be compared: {first.topic}/{first.partition} starts at offset {first.start}, "
            "and older records are gone",
        )
    return replace(answer, verdict="different", reason=f"{events} another value of {names}")


def tile_name(tile: TileOf) -> str:
    return "ever" if tile.step is None else text(tile.step)


def step_seconds(tile: TileOf) -> int | None:
    return None if tile.step is None else tile.step // SECOND
