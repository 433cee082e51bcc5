"""The features of all entities at one moment, from records that are in memory; and a table that somebody else made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from leftfold.arrow import OnlySparkError
from leftfold.arrow.features import EntityEvents, types_of
from leftfold.arrow.past import AcceptedEvent, ViewRecords
from leftfold.arrow.types import named, type_of
from leftfold.fold.definition import Definition, Key
from leftfold.fold.differences import Differences, common_kind, differences_of
from leftfold.fold.tiles import floor
from leftfold.fold.values import Kind, entity_text

_MOST_ROWS = 1_000_000  # of a table
_NOTHING: dict[str, Any] = {}


class EveryEntity:
    """All entities: what `ViewRecords` keeps the records of, if nobody asks for certain ones."""

    def __contains__(self, entity: object) -> bool:
        return True


class FeaturesAt:
    """One side of a comparison: the visible features of each entity at a moment."""

    def __init__(self, records: ViewRecords, at: int, starts: Mapping[int, int]) -> None:
        assert isinstance(records.definition, Definition)
        self.definition = records.definition
        self.kinds = self.definition.kinds()
        self.types = types_of(self.definition)
        self._at = at
        self.nothing = EntityEvents(self.definition, [], None).at(at, 0)
        begins = [floor(at - f.window, f.step) for f in self.definition.windowed if f.window is not None]
        since = None if self.definition.lifetime else min(begins)

        def reached(event: AcceptedEvent) -> bool:
            if event.event_us >= at or (since is not None and event.event_us < since):
                return False
            # A re-driven record counts only if its original lies in the range.
            return event.original or event.offset >= starts.get(event.slot, 0)

        chosen = ((entity, [e for e in events if reached(e)]) for entity, events in records.events.items())
        self._events = {entity: events for entity, events in chosen if events}

    @property
    def names(self) -> Sequence[str]:
        return self.definition.visible

    def entities(self) -> Iterable[str]:
        return self._events

    def of(self, entity: str) -> dict[str, Any] | None:
        """Return the features of an entity; None if none of its events is in reach of a feature."""
        events = self._events.get(entity)
        if events is None:
            return None
        return EntityEvents(self.definition, sorted(events, key=lambda e: e[:3]), None).at(self._at, 0)


class ForeignTable:
    """The other side: a directory of Parquet files. `columns` maps our names to the names in the table."""

    def __init__(self, directory: Path, mine: FeaturesAt, columns: Mapping[str, str]) -> None:
        keys = mine.definition.keys
        table = _read(directory)
        names = {key.name: columns.get(key.name, key.name) for key in keys}
        missing = next((theirs for theirs in names.values() if theirs not in table.column_names), None)
        if missing is not None:
            raise OnlySparkError(f"{directory} has no column {missing}")
        renames = {theirs: ours for ours, theirs in columns.items() if ours not in names}
        features = {renames.get(c, c): c for c in table.column_names if c not in names.values()}
        self.names = list(features)
        self.kinds: dict[str, Kind] = {}
        for name in set(features) & set(mine.names):
            self.kinds[name] = _kind(name, table.schema.field(features[name]).type, mine)
        values = {name: table.column(features[name]).to_pylist() for name in self.kinds}
        self._rows: dict[str, dict[str, Any]] = {}
        for place, entity in enumerate(_entities(table, keys, names)):
            if entity in self._rows:
                raise OnlySparkError(f"{directory} has several rows of {entity}")
            self._rows[entity] = {name: column[place] for name, column in values.items()}
        self.nothing = _NOTHING

    def entities(self) -> Iterable[str]:
        return self._rows

    def of(self, entity: str) -> dict[str, Any] | None:
        return self._rows.get(entity)


def compared(left: FeaturesAt, right: FeaturesAt | ForeignTable, *, tolerance: float, top: int) -> Differences:
    """Compare the features that both sides have."""
    common = [name for name in left.names if name in right.names]
    kinds: dict[str, Kind] = {}
    for name in common:
        kind = common_kind(left.kinds[name], right.kinds[name])
        if kind is None or (isinstance(right, FeaturesAt) and _is_list(left, name) != _is_list(right, name)):
            raise OnlySparkError(f"{name} has another type on each side")
        kinds[name] = kind

    def pairs() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        for entity in dict.fromkeys([*left.entities(), *right.entities()]):
            yield entity, left.of(entity) or left.nothing, right.of(entity) or right.nothing

    return differences_of(pairs(), kinds, common, left.nothing, tolerance=tolerance, top=top)


def _is_list(side: FeaturesAt, name: str) -> bool:
    return bool(pa.types.is_list(side.types[name]))


def _read(directory: Path) -> pa.Table:
    if (directory / "_delta_log").exists():
        raise OnlySparkError(f"{directory} is a Delta table")
    shown = [directory]
    if directory.is_dir():
        shown = [path for path in sorted(directory.iterdir()) if not path.name.startswith((".", "_"))]
    if not shown or any(not path.is_file() for path in shown):
        raise OnlySparkError(f"{directory} is not a directory of Parquet files alone")
    try:
        if sum(pq.read_metadata(path).num_rows for path in shown) > _MOST_ROWS:
            raise OnlySparkError(f"{directory} has more than {_MOST_ROWS:,} rows")
        tables = [pq.read_table(path) for path in shown]
    except (pa.ArrowInvalid, OSError) as error:
        raise OnlySparkError(f"{directory} cannot be read: {error}") from error
    if any(table.schema.remove_metadata() != tables[0].schema.remove_metadata() for table in tables):
        raise OnlySparkError(f"the files in {directory} have several schemas")
    return pa.concat_tables(tables)


def _kind(name: str, data: pa.DataType, mine: FeaturesAt) -> Kind:
    """Return the kind of a column of the table. Only a number may have another type than our feature."""
    known = named(data)
    if known is not None and not pa.types.is_list(data) and known[0] in ("int", "float"):
        return known[0]
    if data != mine.types[name]:
        raise OnlySparkError(f"{name} has type {data} in the table")
    return mine.kinds[name]


def _entities(table: pa.Table, keys: Sequence[Key], names: Mapping[str, str]) -> list[str]:
    parts = []
    for key in keys:
        column = table.column(names[key.name])
        known = named(column.type)
        fits = column.type == type_of(key.kind) or (key.kind == "int" and known is not None and known[0] == "int")
        if not fits or column.null_count:
            raise OnlySparkError(f"the key {names[key.name]} has type {column.type} in the table, or is missing")
        parts.append(column.to_pylist())
    return [entity_text(part) for part in zip(*parts, strict=True)]
