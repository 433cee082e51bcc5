"""Writes packed tiles, for many entities at once. `packed` reads them and knows what the bytes mean.

The tiles of all entities are numpy arrays: a loop runs over columns, entities, texts or streams, never over tiles. A
partial is a kind and 64 bits: an int, the bits of a float, the key of a text, the length of a list or sketch, whose
elements are in arrays of their own, or the place of an odd value, which is kept as it is.
"""

from __future__ import annotations

import json
import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, pairwise
from operator import getitem
from typing import Any

import numpy as np

from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition
from leftfold.fold.values import INT64
from leftfold.store import packed, streams
from leftfold.store.streams import Array

Rows = Sequence[tuple[bytes | None, Sequence[tuple[int, bytes]]]]

# Kinds of partials and elements. They are bits, so that those of a stream can be or-ed. A column of one entity and step
# is written as JSON text if its partials, or their elements, are of several kinds or odd.
NULL, INT, FLOAT, BOOL, TEXT, LIST, SKETCH, ODD = (1 << bit for bit in range(8))
_KINDS: dict[type, int] = {type(None): NULL, int: INT, float: FLOAT, bool: BOOL, str: TEXT}
_KIND_OF_FORM = np.array([INT, FLOAT, FLOAT, BOOL, TEXT, SKETCH, ODD], np.uint8)
_FORM_OF_KIND = np.full(256, packed.JSON, np.uint8)
for _kind, _form in ((0, packed.INTS), (INT, packed.INTS), (FLOAT, packed.DOUBLES), (BOOL, packed.BOOLS)):
    _FORM_OF_KIND[_kind] = _form
_FORM_OF_KIND[TEXT], _FORM_OF_KIND[SKETCH], _FORM_OF_KIND[LIST] = packed.NAMES, packed.SKETCHES, packed.LISTS

# By form: floats may become ints, ints lose a power of ten. All else is as it is, also the length of a list or sketch.
_WAYS = np.full(packed.LISTS + 1, streams.AS_IT_IS)
_WAYS[packed.INTS], _WAYS[packed.DOUBLES] = streams.AS_INTS, streams.AS_FLOATS

_HEAD = np.dtype("u1, u1, <u2, <u4, <u4, <i8")
_STEP = np.dtype([("base", "<i8"), ("count", "<u4"), ("code", "u1")])
_COLUMN = np.dtype([("form", "u1"), ("code", "u1"), ("exponent", "u1"), ("lengths", "u1"), ("count", "<u4")])
_ENTITY = 32  # a text's key is its entity, shifted by so many bits, plus its number among the texts of the entity

_base64 = partial(b2a_base64, newline=False)


class _Texts(dict[str, int]):
    """The texts of one entity and their keys. A text that is missing is added."""

    def __init__(self, entity: int, texts: Sequence[str]) -> None:
        self._first = entity << _ENTITY
        super().__init__(zip(texts, count(self._first), strict=False))

    def __missing__(self, text: str) -> int:
        key = self[text] = self._first + len(self)
        return key


@dataclass(frozen=True)
class _Tiles:
    segments: Array  # of each tile: its entity x number of steps, plus the number of its step
    indexes: Array
    kinds: Array  # [column, tile]
    bits: Array  # [column, tile]
    starts: Array  # [column with elements, tile]: its first element
    element_kinds: Array
    elements: Array

    def __add__(self, more: _Tiles) -> _Tiles:
        return _Tiles(
            np.concatenate((self.segments, more.segments)),
            np.concatenate((self.indexes, more.indexes)),
            np.concatenate((self.kinds, more.kinds), axis=1),
            np.concatenate((self.bits, more.bits), axis=1),
            np.concatenate((self.starts, more.starts + len(self.elements)), axis=1),
            np.concatenate((self.element_kinds, more.element_kinds)),
            np.concatenate((self.elements, more.elements)),
        )


def packed_rows(definition: Definition, rows: Rows) -> list[bytes]:
    """Return the packed value of each entity, as `packed.pack` says."""
    return _Packing(definition).rows(rows) if rows else []


class _Packing:
    """One call: the texts and the odd values of its entities."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._columns = definition.columns
        self._listed = np.array([c.aggregate in ("last_n", "distinct") for c in definition.columns])
        self._steps = len(definition.steps)
        self._texts: list[_Texts] = []
        self._odd: list[Any] = []

    def rows(self, rows: Rows) -> list[bytes]:
        try:
            tiles, batches = self._read([row for row, _ in rows])
        except (struct.error, ValueError, IndexError) as error:
            raise packed.unreadable(self._definition, error) from error
        tail = self._tail([tiles for _, tiles in rows], batches)
        return self._write(tiles if tail is None else tiles + tail, batches)

    # Tiles as JSON ---------------------------------------------------------------------------------------------------

    def _tail(self, tails: Sequence[Sequence[tuple[int, bytes]]], batches: Array) -> _Tiles | None:
        """Read tiles that are not packed, and raise the batches to theirs."""
        values = [value for tail in tails for _, value in tail]
        if not values:
            return None
        indexes, numbers, *columns = zip(*json.loads(b"[%b]" % b",".join(values)), strict=True)
        entities = np.repeat(np.arange(len(tails)), [len(tail) for tail in tails])
        np.maximum.at(batches, entities, np.array(numbers, np.int64))
        places = {step: place for place, step in enumerate(self._definition.steps)}
        steps = [places[step] for tail in tails for step, _ in tail]
        made = [self._partials(column, some, entities) for column, some in zip(self._columns, columns, strict=True)]
        sizes = np.cumsum([0, *(len(m[4]) for m in made)])
        listed = np.flatnonzero(self._listed)
        return _Tiles(
            entities * self._steps + steps,
            np.array(indexes, np.int64),
            np.array([m[0] for m in made], np.uint8).reshape(-1, len(values)),
            np.array([m[1] for m in made], np.int64).reshape(-1, len(values)),
            np.array([made[c][2] + sizes[c] for c in listed], np.int64).reshape(-1, len(values)),
            np.concatenate([np.empty(0, np.uint8), *(m[3] for m in made)]),
            np.concatenate([np.empty(0, np.int64), *(m[4] for m in made)]),
        )

    def _partials(
        self, column: Column, values: Sequence[Any], entities: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Return the kinds and bits of JSON values, the start of their elements, and kinds and bits of all elements."""
        kinds = _kinds(values, LIST if column.aggregate == "last_n" else ODD)
        nothing = np.empty(0, np.int64)
        if column.aggregate == "distinct":
            images = _images(values)
            words = np.frombuffer(b"".join(images), "<u4").astype(np.int64)
            lengths = np.array(list(map(len, images))) // 4
            starts = np.cumsum(lengths) - lengths
            kinds[lengths > 0] = SKETCH
            sizes = np.zeros(len(lengths), np.int64)
            known = kinds == SKETCH
            sizes[known] = _sketch_lengths(words, starts[known], lengths[known], column.size)
            bits = self._scalars(kinds, values, entities) + sizes
            is_list = known & (sizes < packed.WHOLE)
            return kinds, bits, starts + 2 * is_list, np.full(len(words), INT, np.uint8), words
        if (kinds == LIST).any():
            lists = [value if kind == LIST else () for value, kind in zip(values, kinds.tolist(), strict=True)]
            lengths = np.array(list(map(len, lists)))
            flat, of = list(chain.from_iterable(lists)), np.repeat(entities, lengths)
            element_kinds = _kinds(flat, ODD)
            elements = self._scalars(element_kinds, flat, of)
            bits = self._scalars(kinds, values, entities) + lengths
            return kinds, bits, np.cumsum(lengths) - lengths, element_kinds, elements
        return kinds, self._scalars(kinds, values, entities), np.zeros(len(values), np.int64), nothing, nothing

    def _scalars(self, kinds: Array, values: Sequence[Any], entities: Array) -> Array:
        """Return the bits of values; 0 where they are nulls, lists or sketches."""
        bits = np.zeros(len(values), np.int64)
        for kind in np.flatnonzero(np.bincount(kinds)):
            if kind in (NULL, LIST, SKETCH):
                continue
            places = np.flatnonzero(kinds == kind)
            some = values if len(places) == len(values) else [values[place] for place in places.tolist()]
            if kind == FLOAT:
                bits[places] = np.array(some, np.float64).view(np.int64)
            elif kind == TEXT:
                bits[places] = list(map(getitem, map(self._texts.__getitem__, entities[places].tolist()), some))
            elif kind == ODD:
                bits[places] = range(len(self._odd), len(self._odd) + len(some))
                self._odd += some
            else:
                bits[places] = np.array(some, np.int64)
        return bits

    # Packed tiles ----------------------------------------------------------------------------------------------------

    def _read(self, rows: Sequence[bytes | None]) -> tuple[_Tiles, Array]:
        """Read packed rows. Returns their tiles, and their batches."""
        empty = packed.HEAD.pack(packed.VERSION, 0, 0, 0, -1) + bytes(packed.STEP.size * self._steps)
        data = b"".join(present := [row or empty for row in rows])
        ends = np.cumsum(list(map(len, present)))
        segments, steps, columns, data_at, batches = self._heads(data, ends)
        of, counts = segments // max(self._steps, 1), steps["count"].astype(np.int64)
        form = columns["form"] & ~np.uint8(packed.NULLS)
        is_null = columns["form"] != form
        is_list = form & packed.LISTS > 0
        has_lengths, is_json = is_list | (form == packed.SKETCHES), form == packed.JSON
        many = columns["count"].astype(np.int64)

        # Where the streams of each segment are: the offsets; then of each column bitmap, lengths and values.
        parts = np.empty((len(segments), len(self._columns), 3), np.int64)
        parts[:, :, 0] = is_null * ((counts + 7) // 8)[:, None]
        parts[:, :, 1] = has_lengths * counts[:, None] * streams.WIDTHS[columns["lengths"]]
        parts[:, :, 2] = many * streams.WIDTHS[columns["code"]]
        flat = parts.reshape(len(segments), 3 * len(self._columns))
        sizes = np.column_stack((counts * streams.WIDTHS[steps["code"]], flat))
        places = _places(sizes, of, data_at, ends)
        bitmaps_at, lengths_at, values_at = places[:, 1:].reshape(parts.shape).T

        # From here on by column, then segment.
        form, is_null, is_list = form.T, is_null.T, is_list.T
        has_lengths, is_json, many = has_lengths.T, is_json.T, many.T
        exponents, codes, length_codes = (columns[name].T for name in ("exponent", "code", "lengths"))
        tiles = np.broadcast_to(counts, form.shape).ravel()
        value_counts = np.where(is_json, 0, np.where(has_lengths, counts, many))
        numbers = streams.read_numbers(
            data,
            np.where(has_lengths, lengths_at, values_at),
            value_counts,
            np.where(has_lengths, length_codes, codes),
        )
        plain = np.where(has_lengths | is_json, packed.BOOLS, form)  # a length is as it is, like a boolean
        self._understand(numbers, plain, exponents, value_counts, of)
        kinds: Array = np.repeat(np.where(is_list, LIST, _KIND_OF_FORM[form & 15]).astype(np.uint8).ravel(), tiles)
        there = np.repeat(~is_json.ravel(), tiles)
        if is_null.any():
            present_bits = streams.read_bitmaps(data, bitmaps_at, is_null, counts)
            kinds[~present_bits] = NULL
            there &= present_bits | np.repeat(has_lengths.ravel(), tiles)
        bits: Array = np.zeros(len(kinds), np.int64)
        bits[there] = numbers
        kinds, bits = (array.reshape(len(self._columns), len(there) // len(self._columns)) for array in (kinds, bits))

        listed = self._listed
        element_counts = np.where(has_lengths, many, 0)[listed]
        elements = streams.read_numbers(data, values_at[listed], element_counts, codes[listed])
        within = np.where(is_list, form & 15, packed.INTS)[listed]
        self._understand(elements, within, exponents[listed], element_counts, of)
        element_kinds = np.repeat(_KIND_OF_FORM[within.ravel()], element_counts.ravel())
        lengths = _lengths(kinds[listed], bits[listed])
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        indexes = np.repeat(steps["base"], counts) + streams.read_numbers(data, places[:, 0], counts, steps["code"])
        read = _Tiles(np.repeat(segments, counts), indexes, kinds, bits, starts, element_kinds, elements)
        json_streams = [(c, s, data[values_at[c, s] : values_at[c, s] + many[c, s]]) for c, s in np.argwhere(is_json)]
        return self._with_json(read, json_streams, of, counts), batches.copy()

    def _heads(self, data: bytes, ends: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Read all heads and the texts.

        Returns the segments that have tiles, their step heads and column heads; and of each row, where its data begin,
        and its batch.
        """
        begins = np.concatenate(([0], ends[:-1]))
        buffer = np.frombuffer(data, np.uint8)
        heads = streams.records(buffer, begins, _HEAD, 1)[:, 0]
        versions, forms, _, names, names_sizes, batches = (heads[name] for name in _HEAD.names or ())
        if (versions != packed.VERSION).any():
            raise packed.unknown_version(versions[versions != packed.VERSION][0])
        steps = streams.records(buffer, begins + _HEAD.itemsize, _STEP, self._steps)
        active = steps["count"] > 0
        segments = np.flatnonzero(active)
        columns_size = _COLUMN.itemsize * len(self._columns)
        columns_at = begins + _HEAD.itemsize + _STEP.itemsize * self._steps
        heads_at = columns_at[:, None] + columns_size * (np.cumsum(active, axis=1) - active)
        columns = streams.records(buffer, heads_at.ravel()[segments], _COLUMN, len(self._columns))
        names_at = columns_at + columns_size * active.sum(axis=1)
        data_at = names_at + names_sizes
        if (data_at > ends).any():
            raise packed.other_size()
        each = zip(*(array.tolist() for array in (forms, names, names_at, data_at)), strict=True)
        for entity, (form, many, at, end) in enumerate(each):
            self._texts.append(_Texts(entity, packed.names_in(form, many, data[at:end])))
            if len(self._texts[-1]) != many:
                raise packed.other_names()
        return segments, steps.ravel()[segments], columns, data_at, batches

    def _understand(self, numbers: Array, forms: Array, exponents: Array, counts: Array, of: Array) -> None:
        """Turn the numbers of streams into bits, in place."""
        starts = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
        for chosen in ((forms == packed.INTS) & (exponents > 0), forms == packed.DECIMALS, forms == packed.NAMES):
            if not chosen.any():
                continue
            places, many = streams.ranges(starts[chosen], counts[chosen]), counts[chosen]
            form = forms[chosen][0]
            if form == packed.NAMES:
                limits = np.array(list(map(len, self._texts)))[np.broadcast_to(of, forms.shape)[chosen]]
                if (numbers[places] >= np.repeat(limits, many)).any():
                    raise packed.other_names()
                numbers[places] += np.repeat(np.broadcast_to(of, forms.shape)[chosen] << _ENTITY, many)
            elif form == packed.INTS:
                numbers[places] *= np.repeat(streams.TENS[exponents[chosen]], many)
            else:
                numbers[places] = (numbers[places] / np.repeat(streams.TENS[exponents[chosen]], many)).view(np.int64)

    def _with_json(
        self, tiles: _Tiles, json_streams: Sequence[tuple[int, int, bytes]], of: Array, counts: Array
    ) -> _Tiles:
        """Fill in the columns that are JSON text."""
        ends = np.cumsum(counts)
        kinds, elements = [tiles.element_kinds], [tiles.elements]
        for place, segment, text in json_streams:
            tile = slice(ends[segment] - counts[segment], ends[segment])
            values = json.loads(text)
            made = self._partials(self._columns[place], values, np.full(len(values), of[segment]))
            tiles.kinds[place, tile], tiles.bits[place, tile] = made[:2]
            if self._listed[place]:
                tiles.starts[self._listed[:place].sum(), tile] = made[2] + sum(map(len, elements))
                kinds.append(made[3])
                elements.append(made[4])
        return replace(tiles, element_kinds=np.concatenate(kinds), elements=np.concatenate(elements))

    # Writing ---------------------------------------------------------------------------------------------------------

    def _write(self, tiles: _Tiles, batches: Array) -> list[bytes]:
        chosen = self._newest(tiles)
        indexes, segments = tiles.indexes[chosen], tiles.segments[chosen]
        kinds, bits, starts = (array.take(chosen, axis=1) for array in (tiles.kinds, tiles.bits, tiles.starts))
        firsts = np.flatnonzero(np.diff(segments, prepend=-1))
        counts = np.diff(firsts, append=len(segments))
        stays = replace(tiles, segments=segments, indexes=indexes, kinds=kinds, bits=bits, starts=starts)
        form, within, is_null = self._forms(stays, counts)
        buffer = streams.Buffer()
        is_json = form == packed.JSON
        texts = self._write_json(buffer, stays, is_json, counts)
        lengths = _lengths(kinds[self._listed], bits[self._listed])
        places = streams.ranges(starts, lengths)
        element_kinds, elements = tiles.element_kinds[places], tiles.elements[places]
        names = self._number_names(kinds, bits, element_kinds, elements)

        # All numbers: the offsets, the partials or their lengths, and the elements.
        tile_counts = np.broadcast_to(counts, form.shape)
        is_list = form == packed.LISTS
        has_lengths = is_list | (form == packed.SKETCHES)
        value_counts, values = tile_counts, bits.ravel()
        if is_null.any() or is_json.any():
            kept = (kinds != NULL).ravel() | np.repeat(has_lengths.ravel(), tile_counts.ravel())
            value_counts, values = streams.reduced(np.add, kept.astype(np.int64), tile_counts, 0), values[kept]
        element_counts = streams.reduced(np.add, lengths, tile_counts[: len(lengths)], 0)
        is_sketch = (form == packed.SKETCHES)[self._listed]
        ways = (
            np.full(len(counts), streams.AS_NATURALS),
            _WAYS[form],
            np.where(is_sketch, streams.AS_WORDS, _WAYS[within[self._listed]]),
        )
        written = streams.write_numbers(
            buffer,
            np.concatenate((indexes - np.repeat(indexes[firsts], counts), values, elements)),
            np.concatenate((counts, value_counts.ravel(), element_counts.ravel())),
            np.concatenate([way.ravel() for way in ways]),
        )
        bounds = (len(counts), len(counts) + value_counts.size)
        offset_part, value_part, element_part = np.split(written, bounds, axis=1)
        value_part = value_part.reshape(len(written), *form.shape)
        part = value_part.copy()
        part[:, self._listed] = element_part.reshape(len(written), *element_counts.shape)
        part = np.where(has_lengths, part, value_part)

        plain = np.where(is_list, within, form)
        is_decimal = (plain == packed.DOUBLES) & (part[0] != packed.DOUBLE)
        plain = np.where(is_decimal, packed.DECIMALS, plain)
        head = np.zeros((len(firsts), len(self._columns)), _COLUMN)
        head["form"] = (plain + is_list * packed.LISTS + is_null * packed.NULLS).T
        head["code"], head["exponent"] = part[0].T, part[1].T
        head["lengths"] = np.where(has_lengths, value_part[0], 0).T
        head["count"] = np.where(is_json, texts[1] - texts[0], part[2]).T
        pieces = np.zeros((len(firsts), 1 + 3 * len(self._columns), 2), np.int64)
        pieces[:, 0] = offset_part[3:].T
        pieces[:, 1::3] = streams.write_bitmaps(buffer, kinds != NULL, is_null, counts)
        pieces[:, 2::3] = np.where(has_lengths, value_part[3:], 0).T
        pieces[:, 3::3] = np.where(is_json, texts, part[3:]).T
        steps = np.zeros(len(batches) * self._steps, _STEP)
        active = segments[firsts]
        steps["base"][active], steps["count"][active], steps["code"][active] = indexes[firsts], counts, offset_part[0]
        bounds_of_rows = np.searchsorted(active, np.arange(len(batches) + 1) * self._steps)
        return _joined(batches, steps, head, names, pieces, buffer.bytes(), bounds_of_rows)

    def _forms(self, tiles: _Tiles, counts: Array) -> tuple[Array, Array, Array]:
        """Return the form of each column of each segment, that of its elements, and whether it needs a bitmap.

        The form of a list is `LISTS`, that of floats `DOUBLES`.
        """
        lengths = _lengths(tiles.kinds[self._listed], tiles.bits[self._listed])
        shape = (len(self._columns), len(counts))
        tile_counts = np.broadcast_to(counts, shape)
        found = streams.reduced(np.bitwise_or, tiles.kinds, tile_counts, NULL)
        element_counts = streams.reduced(np.add, lengths, tile_counts[: len(lengths)], 0)
        element_kinds = tiles.element_kinds[streams.ranges(tiles.starts, lengths)]
        found_within = streams.reduced(np.bitwise_or, element_kinds, element_counts, 0)
        form = _FORM_OF_KIND[found & ~np.uint8(NULL)]
        within = np.zeros(shape, np.uint8)
        within[self._listed] = np.where(form[self._listed] == packed.LISTS, _FORM_OF_KIND[found_within], 0)
        is_json = (form == packed.JSON) | (within == packed.JSON)
        return np.where(is_json, packed.JSON, form), np.where(is_json, 0, within), (found & NULL > 0) & ~is_json

    def _write_json(self, buffer: streams.Buffer, tiles: _Tiles, is_json: Array, counts: Array) -> Array:
        """Write columns as JSON text, and make them null.

        Returns where the texts begin and end, as [2, column, segment].
        """
        ends = np.cumsum(counts)
        places = np.zeros((2, *is_json.shape), np.int64)
        for place, segment in np.argwhere(is_json):
            tile = slice(ends[segment] - counts[segment], ends[segment])
            texts = list(self._texts[tiles.segments[tile][0] // self._steps])
            values = list(self._values(tiles, place, range(len(tiles.segments))[tile], texts))
            text = json.dumps(values, separators=(",", ":")).encode()
            at = buffer.add(text)
            places[:, place, segment] = at, at + len(text)
            tiles.kinds[place, tile], tiles.bits[place, tile] = NULL, 0
        return places

    def _newest(self, tiles: _Tiles) -> Array:
        """Return which tiles stay, in order of entity, step and index."""
        if not len(tiles.segments):
            return np.empty(0, np.int64)
        steps = tiles.segments % self._steps
        rings = np.array([self._definition.rings[step] for step in self._definition.steps])
        least = np.full(self._steps, np.iinfo(np.int64).max)
        np.minimum.at(least, steps, tiles.indexes)
        order = streams.order_by((tiles.indexes - least[steps]).view(np.uint64), tiles.segments)
        indexes, segments = tiles.indexes[order], tiles.segments[order]
        order = order[streams.last_of_equals(segments, indexes)]
        indexes, segments = tiles.indexes[order], tiles.segments[order]
        firsts = np.flatnonzero(np.diff(segments, prepend=-1))
        counts = np.diff(firsts, append=len(segments))
        ring = rings[segments[firsts] % self._steps]
        spans = (indexes[firsts + counts - 1] - indexes[firsts]).view(np.uint64)
        crowded = spans >= ring.astype(np.uint64)
        if crowded.any():
            some = np.flatnonzero(np.repeat(crowded, counts))
            slots = indexes[some] % np.repeat(ring[crowded], counts[crowded])
            by_slot = streams.order_by(slots, segments[some])
            last = streams.last_of_equals(segments[some][by_slot], slots[by_slot])
            order = np.delete(order, some[by_slot[~last]])
        return order

    def _number_names(self, kinds: Array, bits: Array, element_kinds: Array, elements: Array) -> list[list[str]]:
        """Replace the keys of texts by numbers among those that their entity still has, in order of occurrence."""
        bits = bits.reshape(-1)  # still the same memory
        at, element_at = np.flatnonzero(kinds == TEXT), np.flatnonzero(element_kinds == TEXT)
        keys = np.concatenate((bits[at], elements[element_at]))
        sizes = np.array([len(texts) for texts in self._texts])
        begins = np.cumsum(sizes) - sizes
        keys = begins[keys >> _ENTITY] + (keys & ((1 << _ENTITY) - 1))
        first = np.full(sizes.sum(), -1)
        first[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)  # of equal keys the last assignment stays: the first place
        is_first = np.zeros(len(keys), bool)
        is_first[first[first >= 0]] = True
        names = keys[is_first]
        of = np.repeat(np.arange(len(sizes)), sizes)[names]
        if len(names):
            names = names[np.argsort(streams.small(of), kind="stable")]
        used = np.bincount(of, minlength=len(sizes))
        first[names] = np.arange(len(names)) - np.repeat(np.cumsum(used) - used, used)
        bits[at], elements[element_at] = np.split(first[keys], (len(at),))
        local = (names - np.repeat(begins, used)).tolist()
        bounds = pairwise([0, *np.cumsum(used).tolist()])
        return [
            list(map(list(texts).__getitem__, local[begin:end]))
            for texts, (begin, end) in zip(self._texts, bounds, strict=True)
        ]

    def _values(self, tiles: _Tiles, place: int, chosen: Sequence[int], texts: list[str]) -> Iterator[Any]:
        """Yield the partials of some tiles of one entity as they were."""
        listed = self._listed[:place].sum()
        size = self._columns[place].size
        for tile in chosen:
            kind, bits = int(tiles.kinds[place, tile]), int(tiles.bits[place, tile])
            if kind not in (LIST, SKETCH):
                yield self._value(kind, bits, texts)
                continue
            start = int(tiles.starts[listed, tile])
            if kind == LIST:
                both = zip(tiles.element_kinds[start : start + bits], tiles.elements[start : start + bits], strict=True)
                yield [self._value(int(k), int(b), texts) for k, b in both]
                continue
            words = tiles.elements[start : start + packed.words_of(bits)].astype("<u4").tobytes()
            yield _base64(packed.image(bits, words, size)).decode()

    def _value(self, kind: int, bits: int, texts: list[str]) -> Any:
        match kind:
            case 1:  # NULL
                return None
            case 4:  # FLOAT
                return struct.unpack("<d", struct.pack("<q", bits))[0]
            case 8:  # BOOL
                return bool(bits)
            case 16:  # TEXT
                return texts[bits & ((1 << _ENTITY) - 1)]
            case 128:  # ODD
                return self._odd[bits]
        return bits


def _places(sizes: Array, of: Array, data_at: Array, ends: Array) -> Array:
    """Return where each stream begins. `of` is the row of each line of `sizes`."""
    totals = np.zeros(len(ends), np.int64)
    np.add.at(totals, of, sizes.sum(axis=1))
    if (data_at + totals != ends).any():
        raise packed.other_size()
    places: Array = (np.cumsum(sizes) - sizes.ravel()).reshape(sizes.shape)
    places += (data_at - (np.cumsum(totals) - totals))[of][:, None]
    return places


def _joined(
    batches: Array, steps: Array, columns: Array, names: list[list[str]], pieces: Array, data: bytes, bounds: Array
) -> list[bytes]:
    """Return the rows. `bounds` are those of a row in the segments, `pieces` those of all streams in the data."""
    some = pieces[:, :, 1] > pieces[:, :, 0]
    cut = list(map(data.__getitem__, map(slice, *pieces[some].T.tolist())))
    cut_bounds = np.concatenate(([0], np.cumsum(some.sum(axis=1))))[bounds]
    step_data, step_size = steps.tobytes(), steps.nbytes // len(batches)
    column_data, column_size = columns.tobytes(), columns[:1].nbytes
    rows = []
    every = zip(batches.tolist(), pairwise(bounds.tolist()), pairwise(cut_bounds.tolist()), names, strict=True)
    for entity, (batch, (begin, end), (cut_begin, cut_end), texts) in enumerate(every):
        form, blob = _names_written(texts)
        head = packed.HEAD.pack(packed.VERSION, form, len(texts), len(blob), batch)
        step_heads = step_data[entity * step_size : (entity + 1) * step_size]
        column_heads = column_data[begin * column_size : end * column_size]
        rows.append(b"".join((head, step_heads, column_heads, blob, *cut[cut_begin:cut_end])))
    return rows


def _kinds(values: Sequence[Any], lists: int) -> Array:
    types = set(map(type, values))
    if len(types) == 1 and not (int in types and (min(values) < -INT64 or max(values) >= INT64)):
        (only,) = types
        return np.full(len(values), lists if only is list else _KINDS.get(only, ODD), np.uint8)
    return np.array([lists if type(value) is list else _kind_of(value) for value in values], np.uint8)


def _kind_of(value: Any) -> int:
    return ODD if type(value) is int and not -INT64 <= value < INT64 else _KINDS.get(type(value), ODD)


def _images(values: Sequence[Any]) -> list[bytes]:
    """Return the bytes of sketches; nothing for a value whose text or words could not be made of them again."""
    texts = ["" if value is None else value for value in values]
    try:
        images = list(map(a2b_base64, texts))
        same = b"\n".join(map(_base64, images)) == "\n".join(texts).encode()  # base64 has no line breaks
    except (TypeError, ValueError):
        same = False
    if not same:
        return [b""] if len(values) == 1 else [image for value in values for image in _images([value])]
    return [image if len(image) >= 8 and len(image) % 4 == 0 else b"" for image in images]


def _sketch_lengths(words: Array, starts: Array, lengths: Array, size: int) -> Array:
    """Return the length of each image, as `packed.WHOLE` says."""
    heads = np.array([struct.unpack("<II", head) for head in packed.list_heads(size)])
    second = words[starts + 1]
    coupons = second >> 16 & 0xFF
    long = lengths == 2 + packed.FULL_LIST
    made = np.minimum(coupons, packed.FULL_LIST - 1) + long * packed.FULL_LIST
    same = (words[starts] == heads[made, 0]) & (second == heads[made, 1]) & (coupons < packed.FULL_LIST)
    same &= long | (lengths == 2 + coupons)
    after = np.flatnonzero(long & same)  # what follows the coupons must be empty
    behind = words[starts[after, None] + 2 + np.arange(packed.FULL_LIST)]
    same[after] = ((behind == 0) | (np.arange(packed.FULL_LIST) < coupons[after, None])).all(axis=1)
    sizes: Array = np.where(same, made, lengths + packed.WHOLE)
    return sizes


def _lengths(kinds: Array, bits: Array) -> Array:
    """Return the number of elements of partials: those of a sketch are words."""
    words = np.where(bits < packed.WHOLE, bits % packed.FULL_LIST, bits - packed.WHOLE)
    return np.where(kinds == LIST, bits, np.where(kinds == SKETCH, words, 0))


def _names_written(names: list[str]) -> tuple[int, bytes]:
    text = "\0".join(names)
    if text.count("\0") < max(len(names), 1):
        try:
            return packed.NAMES_JOINED, text.encode()
        except UnicodeEncodeError:  # a lone surrogate, which only JSON can have
            pass
    return packed.NAMES_JSON, json.dumps(names, separators=(",", ":")).encode()
