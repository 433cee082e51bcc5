"""Decides which tiles of a row a read of windowed features takes, and merges them into the values.

Which tiles those are depends on the moment only through its tile of the finest step. So they are prepared once for that
tile and used for every entity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.errors import StoreError
from leftfold.fold import columns
from leftfold.fold.definition import Definition, Span
from leftfold.fold.durations import text
from leftfold.fold.expressions import from_micros
from leftfold.fold.latest import Latest
from leftfold.fold.tiles import Tile, cover, floor
from leftfold.store.layout import LIFETIME_FIELD, PACKED_BATCH_FIELD, PACKED_FIELD, field
from leftfold.store.packed import unpack

Held = Mapping[bytes, bytes]  # the fields of a row, by name
_LIFETIME, _PACKED, _PACKED_BATCH = (n.encode() for n in (LIFETIME_FIELD, PACKED_FIELD, PACKED_BATCH_FIELD))


@dataclass(frozen=True)
class WindowedPart:
    """The values of one row of one view."""

    values: dict[str, Any]
    found: bool  # True if there was an event in any of its windows, or a lifetime value is alive
    batch: int  # the last batch that wrote any of it; -1 if there was nothing


@dataclass(frozen=True)
class _Cover:
    """The tiles of a span, in order of time, as indexes into the list of all fetched tiles."""

    span: Span
    places: list[int]
    columns: list[int]
    within: Span | None  # a shorter window whose tiles come after these, and are already merged

    @classmethod
    def of(cls, span: Span, places: list[int], columns: set[int], before: Sequence[_Cover]) -> _Cover:
        """Make the cover of a span, and reuse the cover of the shorter window before it if possible.

        Windows of one step end in the same tiles. So the longer window needs only the tiles before the shorter one's
        first.
        """
        inner = before[-1] if before else None
        reach = [] if inner is None else inner.all_places(before)
        if inner is None or not reach or places[-len(reach) :] != reach or not columns <= set(inner.columns):
            return cls(span, places, sorted(columns), None)
        return cls(span, places[: -len(reach)], sorted(columns), inner.span)

    def all_places(self, covers: Sequence[_Cover]) -> list[int]:
        inner = next((c for c in covers if c.span == self.within), None)
        return self.places + (inner.all_places(covers) if inner else [])


class TileRead:
    """A prepared read of one definition, at one moment or at any moment from `at` to `until`.

    `exact` is for a moment that is not after the newest event: then no tile may reach past the moment.
    """

    def __init__(self, definition: Definition, at: int, until: int, *, exact: bool) -> None:
        self._definition = definition
        self._exact = exact
        wanted: dict[Span, set[int]] = {}
        for feature in definition.windowed:
            wanted.setdefault(feature.span, set()).update(feature.columns)
        self._lifetimes = {span: sorted(numbers) for span, numbers in wanted.items() if span[0] is None}
        places: dict[Tile, int] = {}
        covers: list[_Cover] = []
        for span, numbers in sorted(wanted.items(), key=lambda item: (item[0][1], item[0][0] or 0)):
            window, step, _ = span
            if window is not None:
                steps = definition.steps if exact else [s for s in definition.steps if s >= step]
                tiles = cover(floor(at - window, step), until, steps, exact=exact)
                covers.append(_Cover.of(span, [places.setdefault(t, len(places)) for t in tiles], numbers, covers))
        self._covers = covers
        self.tiles = tuple(places)
        self._indexes = [tile.index for tile in places]
        self._names = [field(t.step, t.index, definition.rings[t.step]).encode() for t in places]
        self._places: dict[int, dict[int, int]] = {step: {} for step in definition.steps}  # by step and index
        for tile, place in places.items():
            self._places[tile.step][tile.index] = place
        self._slots = {
            step: {index % definition.rings[step]: index for index in indexes} for step, indexes in self._places.items()
        }

    def tiles_of(self, span: Span) -> list[Tile]:
        """Return the tiles from which a window is merged; empty for a span without a window."""
        mine = [cover for cover in self._covers if cover.span == span]
        return [self.tiles[i] for cover in mine for i in cover.all_places(self._covers)]

    def rows(self, held: Held, at: int) -> dict[int, Sequence[Any]]:
        """Return the tiles that a row has of `tiles`: for the place of each its index, batch and partials."""
        rows: dict[int, Sequence[Any]] = {}
        newer = False
        if (packed := held.get(_PACKED)) is not None:
            for step, tiles in unpack(self._definition, packed).items():
                places, slots = self._places[step], self._slots[step] if self._exact else {}
                ring = self._definition.rings[step]
                for tile in tiles:
                    if (place := places.get(tile[0])) is not None:
                        rows[place] = tile
                    elif slots.get(tile[0] % ring, tile[0]) < tile[0]:
                        newer = True
        indexes = self._indexes
        found = {i: held[name] for i, name in enumerate(self._names) if name in held}
        for i, row in zip(found, json.loads(b"[%b]" % b",".join(found.values())), strict=True):
            # A slot may still hold an older tile. That tile is outside of every window by now.
            if row[0] == indexes[i]:
                rows[i] = row
            elif row[0] > indexes[i]:
                newer = True
        if newer and self._exact:
            raise not_kept(self._definition, at, "newer tiles have replaced some that it needs")
        return rows

    def values(self, held: Held, at: int) -> WindowedPart:
        """Return the features at `at`, computed from what the store holds."""
        definition, tiles = self._definition, self.rows(held, at)
        lifetime = lifetime_in(held) if definition.lifetime else None
        merged: dict[tuple[Span, int], Any] = {}
        batch = -1
        for cover_ in self._covers:
            rows = [tiles[i] for i in cover_.places if i in tiles]
            by_column = list(zip(*rows, strict=True)) if rows else None
            batch = max(batch, *by_column[1]) if by_column else batch
            for number in cover_.columns:
                partials = by_column[2 + number] if by_column else ()
                if cover_.within is not None:
                    partials = (*partials, merged[cover_.within, number])
                merged[cover_.span, number] = columns.merge(definition.columns[number], partials)
        found = bool(tiles)
        if lifetime is not None:
            batch = max(batch, lifetime[1])
        for span, numbers in self._lifetimes.items():
            ttl = span[2]
            alive = lifetime is not None and (ttl is None or lifetime[0] >= at - ttl)
            found = found or alive
            for number in numbers:
                partials = (lifetime[2 + number],) if lifetime is not None and alive else ()
                merged[span, number] = columns.merge(definition.columns[number], partials)
        return WindowedPart(definition.finals(merged), found, batch)


def lifetime_in(held: Held) -> list[Any] | None:
    """Return what a row holds of all time: the newest event time, batch and partials; None if it has nothing."""
    value = held.get(_LIFETIME)
    return None if value is None else list(json.loads(value))


def newest_batch(held: Held) -> int:
    """Return the newest batch that wrote any of a row's fields; -1 if it has none."""
    batches = [json.loads(value)[1] for name, value in held.items() if name not in (_PACKED, _PACKED_BATCH)]
    if (packed := held.get(_PACKED_BATCH)) is not None:
        batches.append(int(packed.partition(b":")[0]))
    return max(batches, default=-1)


def not_kept(definition: Definition | Latest, at: int, why: str, *, instead: str = "") -> StoreError:
    """The error for a time that the store has no value of. `instead` is a time near it that it has."""
    return StoreError(
        "moment-not-kept",
        f"{definition.view} cannot be read as of {from_micros(at).isoformat()}",
        why=why,
        fix=f"read {instead}without at= for the value of now; for a value of any other time make a training set: "
        f"app.training_set(labels, {definition.view!r}, time=COLUMN)",
    )


def off_step(definition: Definition, at: int) -> StoreError:
    """The error for a time inside of a tile."""
    step = definition.steps[0]
    before = from_micros(at - at % step).isoformat()
    why = f"the store has values of now and of every whole {text(step)} of the past day, and this time is between two"
    return not_kept(definition, at, why, instead=f"at={before}, or ")
