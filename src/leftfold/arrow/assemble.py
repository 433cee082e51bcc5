"""A training set as one Arrow table: the labels, and next to each label the features of a vector at its moment."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from leftfold.arrow.features import EntityEvents, EntityVersions, types_of
from leftfold.arrow.labels import ArrowLabels
from leftfold.arrow.past import Batches, ViewRecords
from leftfold.fold.definition import Definition
from leftfold.fold.known import AsOf
from leftfold.fold.latest import Latest
from leftfold.fold.tiles import floor
from leftfold.fold.vector import VectorDefinition

Values = dict[str, list[Any]]  # by feature: its value for each label


@dataclass(frozen=True)
class ViewHistory:
    """The records of a view that labels need, and the batches of the build that their readers used."""

    records: ViewRecords
    entities: Sequence[str | None]  # of each label
    batches: Batches | None = None
    read: Sequence[int | None] | None = None  # the batch that each label's reader got, if the labels name it

    @property
    def definition(self) -> Definition | Latest:
        return self.records.definition


def features_of(labels: ArrowLabels, vector: VectorDefinition, views: Mapping[str, ViewHistory], as_of: AsOf) -> Values:
    """Return the values of a vector's parts for each label."""
    rows = {name: _rows_of(labels.at, views[name], as_of) for name in vector.views}
    return {
        part.name: [
            part.default if row is None or (value := row[part.feature]) is None else value for row in rows[part.view]
        ]
        for part in vector.parts
    }


def _rows_of(moments: Sequence[int | None], past: ViewHistory, as_of: AsOf) -> list[dict[str, Any] | None]:
    """Return the visible features of a view for each label; None for one without an entity, a moment or a batch."""
    by_entity: dict[str, EntityEvents | EntityVersions] = {}
    known: dict[tuple[str, int, int], dict[str, Any]] = {}
    rows: list[dict[str, Any] | None] = []
    for place, (entity, at) in enumerate(zip(past.entities, moments, strict=True)):
        bound = None if at is None else _bound(past, place, at, as_of)
        if entity is None or at is None or bound is None:
            rows.append(None)
            continue
        asked = entity, at, bound
        if asked not in known:
            if entity not in by_entity:
                by_entity[entity] = _history(past, entity, as_of)
            known[asked] = by_entity[entity].at(at, bound)
        rows.append(known[asked])
    return rows


def _bound(past: ViewHistory, place: int, at: int, as_of: AsOf) -> int | None:
    """Return the number below which a record's own number must be, so that it counts; None if the label has no batch.

    The number of a record is its log time, or the batch that brought it into the store.
    """
    if as_of != "served":
        return at
    assert past.batches is not None
    if past.read is not None:
        named = past.read[place]
        return None if named is None else named + 1
    last = past.batches.last_at(at)
    return 0 if last is None else last + 1


def _history(past: ViewHistory, entity: str, as_of: AsOf) -> EntityEvents | EntityVersions:
    definition, records = past.definition, past.records
    if isinstance(definition, Latest):
        versions = sorted(records.versions.get(entity, ()), key=lambda v: (v.slot, v.offset))
        if as_of != "served":
            return EntityVersions(definition, versions, [version.log_us for version in versions])
        brought = [(version, _brought(past, version.slot, version.offset)) for version in versions]
        kept = [(version, batch) for version, batch in brought if batch is not None]
        return EntityVersions(definition, [version for version, _ in kept], [batch for _, batch in kept])
    events = sorted(records.events.get(entity, ()), key=lambda event: event[:3])
    if as_of == "event":
        return EntityEvents(definition, events, None)
    if as_of == "log":
        return EntityEvents(definition, events, [event.log_us for event in events])
    placed = [(event, _brought(past, event.slot, event.offset)) for event in events if event.original]
    applied = [(event, batch) for event, batch in placed if batch is not None]
    return EntityEvents(definition, [event for event, _ in applied], [batch for _, batch in applied])


def _brought(past: ViewHistory, slot: int, offset: int) -> int | None:
    assert past.batches is not None
    return past.batches.that_brought(slot, offset)


def table_of(
    labels: ArrowLabels, vector: VectorDefinition, definitions: Mapping[str, Definition | Latest], values: Values
) -> pa.Table:
    """Return the columns of the labels and the features, with their own names."""
    table = labels.with_inputs(vector.inputs)
    parts = {part.name: part for part in vector.parts}
    for name in vector.order:
        if name in parts:
            data = types_of(definitions[parts[name].view])[parts[name].feature]
            table = table.append_column(pa.field(name, data), pa.array(values[name], data))
    return table


# The report ----------------------------------------------------------------------------------------------------------


def report_on(
    labels: ArrowLabels,
    values: Mapping[AsOf, Values],
    as_of: AsOf,
    beyond: Callable[[int | None], bool],
    unknown: Sequence[tuple[int, int]],
) -> dict[tuple[str, str, str], int]:
    """Count labels, missing values, and features that differ between modes: the same as `spark.training.assemble`."""
    modes = list(values)
    counts = Counter[tuple[str, str, str]]()
    counts["labels", "", ""] = labels.rows
    counts["without time", "", ""] = labels.at.count(None)
    counts["outside", "", ""] = sum(map(beyond, labels.at))
    counts["unknown", "", ""] = sum(
        any(start <= at < end for start, end in unknown) for at in labels.at if at is not None
    )
    for name, column in values[as_of].items():
        counts["missing", "", name] = column.count(None)
        for i, first in enumerate(modes):
            for second in modes[i + 1 :]:
                both = zip(values[first][name], values[second][name], strict=True)
                counts[first, second, name] = sum(a != b for a, b in both)
    return counts


def outside(
    windowed: Iterable[Definition], known_since: Callable[[Definition], int | Literal["always"] | None]
) -> Callable[[int | None], bool]:
    """Return the function that says whether the windows of a moment start before the available history."""
    reached: list[tuple[int, int, int]] = []  # window, step, and the first moment of the history
    for definition in windowed:
        since = known_since(definition)
        if since == "always":
            continue
        if since is None or definition.lifetime:
            return lambda _: True
        # An event after this moment was logged after `since`, even if its producer's clock was ahead.
        spans = {(f.window, f.step) for f in definition.windowed if f.window is not None}
        reached += [(window, step, since + definition.future) for window, step in spans]
    return lambda at: at is not None and any(floor(at - window, step) < first for window, step, first in reached)


# Files ---------------------------------------------------------------------------------------------------------------


def written(
    table: pa.Table, directory: Path, describe: Callable[[pa.Table], dict[str, Any]], manifest: str
) -> dict[str, Any]:
    """Write a Parquet file to a new directory, and then the manifest that `describe` makes of what the file holds.

    A file without a manifest is not a training set. Raise FileExistsError if the directory exists.
    """
    directory.mkdir(parents=True)
    file = directory / "part-00000.parquet"
    pq.write_table(table, file)
    document = describe(pq.read_table(file))
    beside = directory / f"{manifest}.unfinished"
    with beside.open("w") as text:
        json.dump(document, text, indent=1)
        text.flush()
        os.fsync(text.fileno())
    beside.rename(directory / manifest)
    return document
