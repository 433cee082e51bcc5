"""Decides which tiles of a row a read of windowed features takes, and merges them into the values.

Which tiles those are depends on the moment only through its tile of the finest step. So they are prepared once for that
tile and used for every entity.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from leftfold.errors import StoreError
from leftfold.fold import columns, sketches
from leftfold.fold.definition import Definition, Span
from leftfold.fold.durations import SECOND, text
from leftfold.fold.expressions import from_micros
from leftfold.fold.latest import Latest
from leftfold.fold.tiles import Tile, cover, floor
from leftfold.store.layout import LIFETIME_FIELD, PACKED_BATCH_FIELD, PACKED_FIELD, field
from leftfold.store.packed import Answers, Packed

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
    """The tiles of a span."""

    span: Span
    columns: list[int]
    places: list[int]  # in order of time, as indexes into the list of all fetched tiles
    members: frozenset[int]  # the same
    runs: list[tuple[int, int, int]]  # the same: step, first index, and the index after the last


def _runs(tiles: Iterable[Tile]) -> Iterator[tuple[int, int, int]]:
    for step, some in groupby(tiles, key=lambda tile: tile.step):
        indexes = [tile.index for tile in some]
        yield step, indexes[0], indexes[-1] + 1


class TileRead:
    """A prepared read of one definition, at one moment or at any moment from `at` to `until`.

    `exact` is for a moment that is not after the newest event: then no tile may reach past the moment.
    """

    def __init__(self, definition: Definition, at: int, until: int, *, exact: bool) -> None:
        self._definition = definition
        self._at, self._exact = at, exact
        wanted: dict[Span, set[int]] = {}
        for feature in definition.windowed:
            wanted.setdefault(feature.span, set()).update(feature.columns)
        self._lifetimes = {span: sorted(numbers) for span, numbers in wanted.items() if span[0] is None}
        places: dict[Tile, int] = {}
        self._joins = [columns.joining(column) for column in definition.columns]
        self._sizes = {n: c.size for n, c in enumerate(definition.columns) if c.aggregate == "distinct"}
        self._covers: list[_Cover] = []  # in the order of `packed.spans`
        for span, numbers in sorted(wanted.items(), key=lambda item: (item[0][1], item[0][0] or 0)):
            window, step, _ = span
            if window is not None:
                steps = definition.steps if exact else [s for s in definition.steps if s >= step]
                tiles = list(cover(floor(at - window, step), until, steps, exact=exact))
                mine = [places.setdefault(t, len(places)) for t in tiles]
                self._covers.append(_Cover(span, sorted(numbers), mine, frozenset(mine), list(_runs(tiles))))
        self.tiles = tuple(places)
        # At a past moment two tiles may share a field: then one of them at most is there.
        self._named: dict[bytes, list[tuple[int, int]]] = {}
        for tile, place in places.items():
            name = field(tile.step, tile.index, definition.rings[tile.step]).encode()
            self._named.setdefault(name, []).append((place, tile.index))
        self._places: dict[int, dict[int, int]] = {step: {} for step in definition.steps}  # by step and index
        for tile, place in places.items():
            self._places[tile.step][tile.index] = place
        self._slots = {
            step: {index % definition.rings[step]: index for index in indexes} for step, indexes in self._places.items()
        }

    def tiles_of(self, span: Span) -> list[Tile]:
        """Return the tiles from which a window is merged; empty for a span without a window."""
        return [self.tiles[place] for cover in self._covers if cover.span == span for place in cover.places]

    def rows(self, held: Held, at: int) -> dict[int, Sequence[Any]]:
        """Return the tiles that a row has of `tiles`: for the place of each its index, batch and partials."""
        rows: dict[int, Sequence[Any]] = {}
        newer = False
        if (value := held.get(_PACKED)) is not None:
            packed = Packed(self._definition, value)
            if self._exact and at < packed.whole_since:
                raise not_kept(self._definition, at, "a newer event has thinned tiles that it needs")
            for step, tiles in packed.tiles().items():
                places, slots = self._places[step], self._slots[step] if self._exact else {}
                ring = self._definition.rings[step]
                for tile in tiles:
                    if (place := places.get(tile[0])) is not None:
                        rows[place] = tile
                    elif slots.get(tile[0] % ring, tile[0]) < tile[0]:
                        newer = True
        loose, also_newer = self._loose(held)
        if (newer or also_newer) and self._exact:
            raise not_kept(self._definition, at, "newer tiles have replaced some that it needs")
        return rows | loose

    def _loose(self, held: Held) -> tuple[dict[int, list[Any]], bool]:
        """Return the wanted tiles that are fields, and whether one of them has been replaced by a newer one."""
        named = self._named
        found = [(*which, value) for name, value in held.items() if name in named for which in named[name]]
        rows: dict[int, list[Any]] = {}
        newer = False
        every = json.loads(b"[%b]" % b",".join([value for _, _, value in found]))
        for (place, index, _), row in zip(found, every, strict=True):
            # A slot may still hold an older tile. That tile is outside of every window by now.
            if row[0] == index:
                rows[place] = row
            elif row[0] > index:
                newer = True
        return rows, newer

    def values(self, held: Held, at: int) -> WindowedPart:
        """Return the features at `at`, computed from what the store holds."""
        definition = self._definition
        lifetime = lifetime_in(held) if definition.lifetime else None
        merged: dict[tuple[Span, int], Any] = {}
        found, batch = self._merged_beside(held, merged) or self._merged(self.rows(held, at), merged)
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

    def _merged(self, tiles: Mapping[int, Sequence[Any]], merged: dict[tuple[Span, int], Any]) -> tuple[bool, int]:
        """Merge all tiles. Returns whether there are any, and their newest batch."""
        batch = -1
        for cover_ in self._covers:
            rows = [tiles[place] for place in cover_.places if place in tiles]
            by_column = list(zip(*rows, strict=True)) if rows else None
            batch = max(batch, *by_column[1]) if by_column else batch
            for number in cover_.columns:
                partials = by_column[2 + number] if by_column else ()
                merged[cover_.span, number] = columns.merge(self._definition.columns[number], partials)
        return bool(tiles), batch

    def _merged_beside(self, held: Held, merged: dict[tuple[Span, int], Any]) -> tuple[bool, int] | None:
        """Merge packed tiles as a whole with those that are fields. Where their answers hold, they are merged already.

        Returns None where this is not the same as merging one by one: at a past moment; and if a field is not newer
        than all packed tiles, as after a late record.
        """
        value = held.get(_PACKED)
        if value is None or self._exact:
            return None
        packed = Packed(self._definition, value)
        answers = packed.answers()
        rows = self._newer_than(answers, held) if answers is not None and self._at >= answers.since else None
        if answers is None or rows is None:
            return None
        found, batch = bool(rows), max([row[1] for _, row in rows], default=-1)
        for number, cover_ in enumerate(self._covers):
            partials, has_tiles = self._of_packed(packed, answers, number, cover_)
            if has_tiles:
                found, batch = True, max(batch, packed.batch)
            mine = [row for place, row in rows if place in cover_.members]
            span = cover_.span
            for number_ in cover_.columns:
                merged[span, number_] = self._joined(packed, number_, partials[number_], mine)
        return found, batch

    def _newer_than(self, answers: Answers, held: Held) -> list[tuple[int, list[Any]]] | None:
        """Return the wanted tiles that are fields, with their places; None if one is not newer than all packed ones."""
        newest = dict(zip(self._definition.steps, answers.newest, strict=True))
        end = max([step * (index + 1) for step, index in newest.items() if index is not None])
        rows, _ = self._loose(held)
        in_order = sorted(rows.items(), key=lambda item: self.tiles[item[0]].start)
        for place, row in in_order:
            tile = self.tiles[place]
            index = newest[tile.step]
            if (index is not None and tile.index <= index) or tile.start + tile.step < end:
                return None
            for number, size in self._sizes.items():
                sketch = row[2 + number]
                if sketch is not None and (coupons := sketches.coupons(sketch, size)) is not None:
                    row[2 + number] = coupons or None
        return in_order

    def _joined(self, packed: Packed, number: int, partial: Any, rows: Sequence[Sequence[Any]]) -> Any:
        """Join a partial over packed tiles with those of newer tiles."""
        if type(partial) is list and number in self._sizes:
            newer = [row[2 + number] for row in rows if row[2 + number] is not None]
            return packed.distinct(partial, newer, self._sizes[number])
        for row in rows:
            if (newer := row[2 + number]) is not None:
                partial = newer if partial is None else self._joins[number](partial, newer)
        return partial

    def _of_packed(
        self, packed: Packed, answers: Answers, number: int, cover_: _Cover
    ) -> tuple[Mapping[int, Any], bool]:
        """Return the partials of a window over packed tiles, by column, and whether it has any tiles."""
        wanted, partials = cover_.columns, dict[int, Any]()
        if self._at < answers.since + answers.seconds[number] * SECOND:
            partials = {place: every[number] for place, every in enumerate(answers.partials)}
            wanted = [place for place in wanted if partials[place] is False]
            if not wanted:
                return partials, answers.has_tiles[number]
        bounds = packed.bounds(cover_.runs)
        partials.update(zip(wanted, packed.merged(wanted, bounds), strict=True))
        return partials, bool(bounds)


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
