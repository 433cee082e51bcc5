"""Packed tiles: the older tiles of one entity in one binary value, column by column. This module reads them.

Every tile comes back with its partials, equal in value and in type, but for two things: what no read needs (`packing`
says which), and the order of a sketch's values. The batch is that of the row: the greatest of all its tiles.
docs/reference/protocol.md has every byte. In short:

row     = head, step heads, column heads, names, data, answers
data    = offsets of the tiles of each step; then of each column: bitmap, lengths, values, as far as its head says so
answers = of each window the partials merged over all tiles, and how long they hold; column heads and data as above

`packing` writes them. Nothing here talks to a store.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from leftfold.errors import StoreError
from leftfold.fold import columns, sketches
from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND

VERSION = 1
# Version, form of the names, number of answers, size of the value, of the names and of the answers, batch, and the
# moment before which a past read is refused, because older tiles are no longer whole.
HEAD = struct.Struct("<BBHIIIqq")
STEP = struct.Struct("<qIB")  # the least index, number of tiles, code of the offsets
ANSWER = struct.Struct(
    "<q"
)  # since when the answers hold; then for each one its number of seconds, and whether it has tiles
SIZE = struct.Struct("<I")
ALWAYS_WHOLE = -(1 << 63)
HAS_TILES = 1 << 31
FOREVER = HAS_TILES - 1  # seconds

# A code is a place in this text: the type of all numbers of a stream, in little endian. One more is half bytes.
CODES = "BHIQbhiqd"
BYTES, DOUBLE, HALVES = CODES.index("B"), CODES.index("d"), len(CODES)
WORDS = CODES.index("I")
LENGTH_CODES = (BYTES, CODES.index("H"), WORDS, HALVES)
_WIDTHS = (1, 2, 4, 8, 1, 2, 4, 8, 8)
_DIGITS = bytes(int(chr(i), 16) if chr(i) in "0123456789abcdef" else 0 for i in range(256))

# The forms of a column. The last one is the same as an earlier column.
INTS, DECIMALS, DOUBLES, BOOLS, NAMES, SKETCHES, JSON, SAME = range(8)
LISTS, NULLS = 8, 16  # are added: the values are elements of lists; a bitmap says which tiles have a value
LENGTHS = 32  # times the place of the lengths' code among LENGTH_CODES is added
LEFT_OUT = 128  # of answers: this column has none
NO_NAMES, NAMES_JOINED, NAMES_JSON = range(3)

# A sketch of fewer values than this is its coupons. Else its length, less this number, is that of its image in words.
WHOLE = 512


class MalformedError(ValueError):
    """A packed value that no release of Leftfold writes, or only a newer one."""


def unpack(definition: Definition, row: bytes) -> dict[int, list[tuple[Any, ...]]]:
    """Return the tiles of each step, (index, batch, partial, partial, …), in order of index."""
    return Packed(definition, row).tiles()


def pack(definition: Definition, rows: Sequence[tuple[bytes | None, Sequence[tuple[int, bytes]], int]]) -> list[bytes]:
    """Return the packed value of each entity, with more tiles in it.

    An entity has its packed value, if there is one; further tiles as (step, JSON value); and the moment that its newest
    event is not before. Of tiles in one slot that with the greatest index stays. Of one index a further tile replaces
    the packed one, and a later one an earlier one. The result depends on the tiles, the greatest batch and the last
    moment only, however they were divided among calls.
    """
    from leftfold.store import packing  # a reader does not need it

    return [packing.packed_row(definition, *row) for row in rows]


def batch_of(row: bytes) -> int:
    """Return the greatest batch of the tiles that a packed value has ever had."""
    return int(HEAD.unpack_from(row)[6])


def unreadable(definition: Definition, error: Exception) -> StoreError:
    return StoreError(
        "packed-row-unreadable",
        f"the packed tiles of an entity of {definition.view} cannot be read",
        why=str(error if isinstance(error, MalformedError) else other_size()),
        fix="use the release of Leftfold that runs the view; if it is this one, "
        f"leftfold rebuild {definition.view} writes every row again",
    )


def other_size() -> MalformedError:
    return MalformedError("they do not end where their heads say so: the value was cut, or something else wrote it")


def numbers(row: bytes, at: int, count: int, code: int) -> tuple[Sequence[Any], int]:
    """Read a stream of numbers. Returns them, and where the stream ends."""
    if code == BYTES:
        return row[at : at + count], at + count
    if code == HALVES:
        end = at + (count + 1) // 2
        return row[at:end].hex().encode().translate(_DIGITS)[:count], end
    return struct.unpack_from(f"<{count}{CODES[code]}", row, at), at + count * _WIDTHS[code]


_ORDERED = ("min", "max")


@dataclass(frozen=True, slots=True)
class _Stream:
    """The partials of one column, as far as their place is known."""

    row: bytes
    names: Sequence[str]
    column: Column
    form: int  # with LISTS
    code: int
    ten: int
    bits: int | None  # which tiles have a partial; None: all
    lengths: Sequence[int]
    at: int
    count: int  # of values; of JSON bytes

    def raw(self) -> Sequence[Any]:
        return numbers(self.row, self.at, self.count, self.code)[0]

    def merged(self, bounds: Sequence[tuple[int, int]]) -> Any:
        """Merge the partials of tiles within bounds, which are in order of time."""
        if (bits := self.bits) is not None:  # the places among the partials that are there
            bounds = [((bits & (1 << a) - 1).bit_count(), (bits & (1 << b) - 1).bit_count()) for a, b in bounds]
        bounds = [(a, b) for a, b in bounds if a < b]
        form, aggregate = self.form, self.column.aggregate
        if form == SKETCHES and max(self.lengths, default=0) < WHOLE:
            return self._coupons(bounds)
        # What is merged before it is turned into partials gives the same, but it is one value that is turned.
        early = form == INTS or (aggregate in _ORDERED and form in (DECIMALS, DOUBLES)) or aggregate == "last"
        early = early and form not in (SKETCHES, JSON)
        every = self.raw() if early else self.partials()
        if len(bounds) == 1:
            ((a, b),) = bounds
            some = every[a:b]
        else:
            some = [value for a, b in bounds for value in every[a:b]]
        if not early and form == SKETCHES:
            some = [merging(partial) for partial in some]
        merged = columns.merge(self.column, some)
        return self._values((merged,), form)[0] if early and some else merged

    def partials(self) -> Sequence[Any]:
        """Return the partials that are there. A sketch is a tuple of its coupons, or the bytes of its image."""
        form = self.form
        if form == JSON:
            some: list[Any] = json.loads(self.row[self.at : self.at + self.count])
            return some
        if form == SKETCHES:
            return self._sketches()
        values = self._values(self.raw(), form & ~LISTS)
        if form & LISTS:
            values = list(values)
            ends = accumulate(self.lengths)
            return [values[end - many : end] for many, end in zip(self.lengths, ends, strict=True)]
        return values

    def of_tiles(self, count: int) -> Sequence[Any]:
        """Return the partials of all tiles."""
        partials = self.partials()
        if self.bits is None:
            return partials
        some = iter(partials)
        return [next(some) if there == "1" else None for there in f"{self.bits:0{count}b}"[::-1]]

    def _values(self, raw: Sequence[Any], form: int) -> Sequence[Any]:
        ten = self.ten
        match form:
            case 0 | 2:  # INTS, DOUBLES
                return raw if ten == 1 else [value * ten for value in raw]
            case 1:  # DECIMALS: divided, as a multiplication would give another float
                return [value / ten for value in raw]
            case 3:  # BOOLS
                return [value != 0 for value in raw]
        return [self.names[value] for value in raw]  # NAMES

    def _sketches(self) -> list[tuple[int, ...] | bytes]:
        made, at, words = list[tuple[int, ...] | bytes](), 0, tuple(self.raw())
        for length in self.lengths:
            end = at + (length if length < WHOLE else length - WHOLE)
            some = words[at:end]
            made.append(some if length < WHOLE else struct.pack(f"<{len(some)}I", *some))
            at = end
        return made

    def _coupons(self, bounds: Sequence[tuple[int, int]]) -> Any:
        coupons: set[int] = set()
        for a, b in bounds:
            start, many = self.at + 4 * sum(self.lengths[:a]), sum(self.lengths[a:b])
            coupons.update(struct.unpack_from(f"<{many}I", self.row, start))
        return coupons or None


def merging(partial: Any) -> Any:
    """Return a partial in a form that can be merged."""
    return set(partial) if type(partial) is tuple else sketches.text(partial) if type(partial) is bytes else partial


def plain(partial: Any, size: int) -> Any:
    """Return a partial as JSON has it."""
    return sketches.text_of(partial, size) if type(partial) is tuple else merging(partial)


class Packed:
    """A packed value, decoded only as far as it is asked for."""

    def __init__(self, definition: Definition, row: bytes) -> None:
        self._definition, self._row = definition, row
        with self._reading():
            head = HEAD.unpack_from(row)
            version, self._names_form, self._answered, size, names, answers, self.batch, self.whole_since = head
            if version != VERSION:
                raise MalformedError(f"they have version {version}, this release reads {VERSION}")
            if size != len(row):
                raise other_size()
            self._names_at = HEAD.size + STEP.size * len(definition.steps) + 2 * len(definition.columns)
            self._data_at, self._answers_at = self._names_at + names, size - answers
            self.count, places = 0, []
            for number, step in enumerate(definition.steps):
                base, count, code = STEP.unpack_from(row, HEAD.size + STEP.size * number)
                places.append((step, base, count, code, self.count))
                self.count += count
            self._places = places

    def _reading(self) -> _Reading:
        return _Reading(self._definition)

    @cached_property
    def names(self) -> list[str]:
        data = self._row[self._names_at : self._data_at]
        if self._names_form == NAMES_JSON:
            names: list[str] = json.loads(data)
            return names
        return data.decode().split("\0") if self._names_form == NAMES_JOINED else []

    @cached_property
    def offsets(self) -> dict[int, tuple[int, int, Sequence[int]]]:
        """Return of each step the least index, the number of tiles before its tiles, and the offsets of its tiles."""
        with self._reading():
            at, offsets = self._data_at, {}
            for step, base, count, code, first in self._places:
                some, at = numbers(self._row, at, count, code)
                offsets[step] = base, first, some
            self._columns_at = at
            return offsets

    @cached_property
    def _streams(self) -> list[_Stream | None]:
        _ = self.offsets
        with self._reading():
            heads = self._names_at - 2 * len(self._definition.columns)
            made, end = self._streams_at(heads, self._columns_at, self.count)
            if end != self._answers_at:
                raise other_size()
            return made

    def _streams_at(self, heads: int, at: int, count: int) -> tuple[list[_Stream | None], int]:
        row, names, made = self._row, self.names, list[_Stream | None]()
        for number, column in enumerate(self._definition.columns):
            first, second = row[heads + 2 * number], row[heads + 2 * number + 1]
            form, code, ten = first & 7, second & 15, 10 ** (second >> 4)
            if first & LEFT_OUT:
                made.append(None)
                continue
            if form == SAME:
                other = made[second]
                assert other is not None, "only a column that is there is referred to"
                made.append(replace(other, column=column))
                continue
            bits, many = None, count
            lengths: Sequence[int] = ()
            if form == JSON:
                (many,) = SIZE.unpack_from(row, at)
                at += SIZE.size
                made.append(_Stream(row, names, column, form, BYTES, 1, None, (), at, many))
                at += many
                continue
            if first & NULLS:
                size = (count + 7) // 8
                bits = int.from_bytes(row[at : at + size], "little")
                many, at = bits.bit_count(), at + size
            if first & LISTS or form == SKETCHES:
                lengths, at = numbers(row, at, many, LENGTH_CODES[first // LENGTHS & 3])
                many = sum(lengths)
                if form == SKETCHES and max(lengths, default=0) >= WHOLE:
                    many -= sum(WHOLE for length in lengths if length >= WHOLE)
            made.append(_Stream(row, names, column, form | first & LISTS, code, ten, bits, lengths, at, many))
            at += (many + 1) // 2 if code == HALVES else many * _WIDTHS[code]
        return made, at

    def partials(self) -> list[Sequence[Any]]:
        """Return of each column the partials of all tiles; those of sketches as a stream has them."""
        with self._reading():
            partials = [stream.of_tiles(self.count) for stream in self._streams if stream is not None]
            if any(len(some) != self.count for some in partials):
                raise other_size()
            return partials

    def tiles(self) -> dict[int, list[tuple[Any, ...]]]:
        """Return the tiles of each step, (index, batch, partial, partial, …), in order of index."""
        partials = self.partials()
        for number, column in enumerate(self._definition.columns):
            if column.aggregate == "distinct":
                partials[number] = [plain(partial, column.size) for partial in partials[number]]
        every = list(zip(*partials, strict=True))
        return {
            step: [
                (base + offset, self.batch, *row)
                for offset, row in zip(offsets, every[first : first + len(offsets)], strict=True)
            ]
            for step, (base, first, offsets) in self.offsets.items()
        }

    def newest(self) -> dict[int, int]:
        """Return of each step that has tiles the greatest index."""
        return {step: base + offsets[-1] for step, (base, _, offsets) in self.offsets.items() if len(offsets)}

    def bounds(self, runs: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """Return which tiles lie in runs of a step, a first index, and the index after the last; by their places."""
        found = []
        for step, low, high in runs:
            base, first, offsets = self.offsets[step]
            a, b = bisect_left(offsets, low - base), bisect_left(offsets, high - base)
            if a < b:
                found.append((first + a, first + b))
        return found

    def merged(self, number: int, bounds: Sequence[tuple[int, int]]) -> Any:
        """Merge the partials of one column, in tiles at these places."""
        with self._reading():
            stream = self._streams[number]
            assert stream is not None, "only answers leave columns out"
            return stream.merged(bounds)

    @cached_property
    def answers(self) -> Answers | None:
        """Return the answers; None if there are none."""
        many = self._answered
        if not many:
            return None
        with self._reading():
            row, at = self._row, self._answers_at
            (since,) = ANSWER.unpack_from(row, at)
            holds, heads = numbers(row, at + ANSWER.size, many, WORDS)
            streams, end = self._streams_at(heads, heads + 2 * len(self._definition.columns), many)
            if end != len(row):
                raise other_size()
            ends = [since + (hold & FOREVER) * SECOND for hold in holds]
            partials = [None if stream is None else stream.of_tiles(many) for stream in streams]
            return Answers(since, ends, [hold >= HAS_TILES for hold in holds], partials)


@dataclass(frozen=True, slots=True)
class Answers:
    """The partials of each window, merged over all packed tiles. The windows are in the order of `spans`."""

    since: int
    ends: Sequence[int]  # an answer holds at a moment from `since` on, before its end
    has_tiles: Sequence[bool]
    partials: Sequence[Sequence[Any] | None]  # of each column, those of each window; None if it was left out


def spans(definition: Definition) -> list[tuple[int, int]]:
    """Return the windows of a view that have answers: (step, window), in order."""
    return sorted({(f.step, f.window) for f in definition.windowed if f.window is not None})


@dataclass(frozen=True, slots=True)
class _Reading:
    """Turns what a malformed value raises into an error that a user understands."""

    definition: Definition

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (struct.error, ValueError, IndexError)) and not isinstance(error, StoreError):
            raise unreadable(self.definition, error) from error
