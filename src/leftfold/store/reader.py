"""The fast read path: the features of one entity, merged from its tiles by the build's manifest.

Needs neither pyspark nor the declarations. One round trip while the active build stays the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.fold import columns
from leftfold.fold.definition import Definition, Windowed
from leftfold.fold.expressions import from_micros
from leftfold.fold.tiles import Tile, cover, floor
from leftfold.spec.features import Features, Provenance, make_row
from leftfold.spec.keys import entity_of
from leftfold.store.client import connect, reaching
from leftfold.store.layout import LedgerRow, Names, definition_in, field

R = TypeVar("R", bound=Features)


class Row:
    """A row read by a view's name: each feature an attribute."""

    def __init__(self, values: Mapping[str, Any], *, found: bool, read_at: datetime, provenance: Provenance) -> None:
        self.__dict__.update(values)
        self.values = dict(values)
        self.found = found
        self.read_at = read_at
        self.provenance = provenance

    def __getattr__(self, name: str) -> Any:
        if "provenance" not in self.__dict__:  # copy and pickle ask before there is anything
            raise AttributeError(name)
        raise AttributeError(f"{self.provenance.view} has no feature {name!r}; it has {', '.join(self.values)}")

    def __repr__(self) -> str:
        return f"{self.provenance.view}({', '.join(f'{n}={v!r}' for n, v in self.values.items())})"


@dataclass(frozen=True)
class _Followed:
    """The build of a view that this reader knows to be active."""

    build: str
    definition: Definition
    names: Names

    @cached_property
    def spans(self) -> dict[tuple[int, int], list[Windowed]]:
        """Features by (window, step): those share their tiles."""
        spans: dict[tuple[int, int], list[Windowed]] = {}
        for feature in self.definition.features:
            spans.setdefault((feature.window, feature.step), []).append(feature)
        return spans

    def covers(self, at: int) -> dict[tuple[int, int], list[Tile]]:
        steps = self.definition.steps
        return {
            (window, step): list(cover(floor(at - window, step), at, [s for s in steps if s >= step]))
            for window, step in self.spans
        }


class Reader:
    def __init__(self, url: str, namespace: str) -> None:
        self._client = connect(url)
        self._namespace = namespace
        self._followed: dict[str, _Followed] = {}

    def definition(self, view: str) -> Definition:
        return self._follow(view).definition

    def get(self, view: str, key: Mapping[str, Any]) -> Row:
        values, found, at, provenance = self._read(view, key)
        return Row(values, found=found, read_at=from_micros(at), provenance=provenance)

    def get_as(self, view: type[R], key: Mapping[str, Any]) -> R:
        name = view.__leftfold_definition__.view
        values, found, at, provenance = self._read(name, key)
        missing = [f.name for f in view.__leftfold_definition__.features if f.name not in values]
        if missing:
            raise StoreError(
                "feature-not-built",
                f"{name}.{missing[0]} is declared, but the active build {provenance.build} does not have it",
                why="the declaration is newer than what runs",
                fix="leftfold run builds it; readers move over when it has caught up",
            )
        return make_row(view, values, found=found, read_at=from_micros(at), provenance=provenance)

    def ledger(self, view: str) -> tuple[str, int, list[LedgerRow]] | None:
        """The active build of a view, its last applied batch and what became of its records; None if never built."""
        names = Names(self._namespace, view)
        with reaching(self._client):
            active = self._client.get(names.active)
            mark = self._client.hgetall(names.mark(active.decode())) if active else {}
        if not active:
            return None
        entries = {name.decode(): value.decode() for name, value in mark.items()}
        rows = [LedgerRow.parse(name, entry) for name, entry in entries.items() if ":" in name]
        return active.decode(), int(entries.get("batch", "-1")), rows

    def _read(self, view: str, key: Mapping[str, Any]) -> tuple[dict[str, Any], bool, int, Provenance]:
        at = clock.now_us()
        followed = self._followed.get(view) or self._follow(view)
        while True:
            entity = entity_of(followed.definition, key)
            covers = followed.covers(at)
            tiles, found, active, mark = self._fetch(followed, entity, covers)
            if active != followed.build:
                followed = self._follow(view)
                continue
            batch, newest = mark
            if newest >= at:  # events stamped ahead of this clock: answer for a moment that has them all
                at = newest + 1
                continue
            values = _merge(followed, covers, tiles)
            return values, found, at, Provenance(view, followed.build, batch)

    def _fetch(
        self, followed: _Followed, entity: str, covers: Mapping[tuple[int, int], list[Tile]]
    ) -> tuple[dict[Tile, list[Any]], bool, str | None, tuple[int, int]]:
        rings = followed.definition.rings
        wanted = list(dict.fromkeys(tile for tiles in covers.values() for tile in tiles))
        row = followed.names.row_prefix(followed.build) + entity
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hmget(row, [field(t.step, t.index, rings[t.step]) for t in wanted])
        pipeline.exists(row)
        pipeline.get(followed.names.active)
        pipeline.hmget(followed.names.mark(followed.build), ["batch", "newest"])
        with reaching(self._client):
            held, found, active, (batch, newest) = pipeline.execute()
        present = [(tile, value) for tile, value in zip(wanted, held, strict=True) if value is not None]
        decoded = json.loads(b"[" + b",".join(value for _, value in present) + b"]")
        # A slot may still hold an older tile: that one lies outside every window by now.
        tiles = {tile: row for (tile, _), row in zip(present, decoded, strict=True) if row[0] == tile.index}
        return tiles, bool(found), active and active.decode(), (int(batch or -1), int(newest or 0))

    def _follow(self, view: str) -> _Followed:
        names = Names(self._namespace, view)
        with reaching(self._client):
            active = self._client.get(names.active)
            document = active and self._client.get(names.manifest(active.decode()))
        if not document:
            raise StoreError(
                "view-not-built",
                f"the store has no view {view!r}" + (f" in namespace {self._namespace}" if self._namespace else ""),
                why="no run has written it yet, or its name is misspelt",
                fix="leftfold check lists the views that are declared; leftfold run builds them",
            )
        followed = _Followed(active.decode(), definition_in(json.loads(document)), names)
        self._followed[view] = followed
        return followed


def _merge(
    followed: _Followed, covers: Mapping[tuple[int, int], list[Tile]], tiles: Mapping[Tile, list[Any]]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for span, features in followed.spans.items():
        rows = [tiles[tile] for tile in covers[span] if tile in tiles]
        for feature in features:
            column = followed.definition.columns[feature.column]
            partials = (row[2 + feature.column] for row in rows)
            values[feature.name] = columns.final(column, columns.merge(column, partials))
    return {f.name: values[f.name] for f in followed.definition.features}
