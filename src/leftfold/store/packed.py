"""Packed tiles: the older tiles of one entity in one binary value, column by column. This module reads them.

Every tile comes back with its partials, equal in value and in type, but for two things: what no read needs (`packing`
says which), and the order of a sketch's values. The batch is that of the row: the greatest of all its tiles.
docs/reference/protocol.md has every byte. In short:

row     = head, step heads, column heads, names, data, answers
data    = offsets of the tiles of each step; then of each column: bitmap, lengths, values, as far as its head says so
answers = JSON: of each window the partials merged over all tiles, and how long they hold

`packing` writes them. Nothing here talks to a store.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from struct import unpack_from
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from leftfold.errors import StoreError
from leftfold.fold import columns, sketches
from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition

VERSION = 1
# Version, form of the names, size of the value, of the names and of the answers, batch, and the
# moment before which a past read is refused, because older tiles are no longer whole.
HEAD = struct.Struct("<BBxxIIIqq")
STEP = struct.Struct("<qIB")  # the least index, number of tiles, code of the offsets
SIZE = struct.Struct("<I")
ALWAYS_WHOLE = -(1 << 63)
FOREVER = (1 << 31) - 1  # seconds

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
    return int(HEAD.unpack_from(row)[5])


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
    return unpack_from(f"<{count}{CODES[code]}", row, at), at + count * _WIDTHS[code]


# The partials of a column: form with LISTS, code, power of ten, which tiles have one (None: all), lengths, where the
# values begin, and their number (of JSON the bytes). A tuple, because a read makes many of them.
_Stream = tuple[int, int, int, int | None, Sequence[int], int, int]


def merging(partial: Any) -> Any:
    """Return a partial in a form that can be merged."""
    return set(partial) if type(partial) is tuple else sketches.text(partial) if type(partial) is bytes else partial


def plain(partial: Any, size: int) -> Any:
    """Return a partial as JSON has it."""
    return sketches.text_of(partial, size) if type(partial) is tuple else merging(partial)


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _guarded(method: Callable[Concatenate[Packed, _P], _T]) -> Callable[Concatenate[Packed, _P], _T]:
    """Turn what a malformed value raises into an error that a user understands."""

    def read(self: Packed, /, *args: _P.args, **options: _P.kwargs) -> _T:
        try:
            return method(self, *args, **options)
        except (struct.error, ValueError, IndexError) as error:
            raise unreadable(self.definition, error) from error

    return read


class Packed:
    """A packed value, decoded only as far as it is asked for."""

    @_guarded
    def __init__(self, definition: Definition, row: bytes) -> None:
        self.definition, self._row = definition, row
        version, self._names_form, size, names, answers, self.batch, self.whole_since = HEAD.unpack_from(row)
        if version != VERSION:
            raise MalformedError(f"they have version {version}, this release reads {VERSION}")
        if size != len(row):
            raise other_size()
        self._names_at = HEAD.size + STEP.size * len(definition.steps) + 2 * len(definition.columns)
        self._names_end, self._answers_at = self._names_at + names, size - answers

    @cached_property
    def _places(self) -> tuple[dict[int, tuple[int, int, Sequence[int]]], int, int]:
        """The offsets, as below, the number of all tiles, and where the data of the columns begin."""
        row, at, first = self._row, self._names_end, 0
        offsets: dict[int, tuple[int, int, Sequence[int]]] = {}
        for number, step in enumerate(self.definition.steps):
            base, count, code = STEP.unpack_from(row, HEAD.size + STEP.size * number)
            some, at = numbers(row, at, count, code)
            offsets[step] = base, first, some
            first += count
        return offsets, first, at

    @property
    @_guarded
    def offsets(self) -> dict[int, tuple[int, int, Sequence[int]]]:
        """The least index of each step, the number of tiles before its tiles, and the offsets of its tiles."""
        return self._places[0]

    @cached_property
    def names(self) -> list[str]:
        data = self._row[self._names_at : self._names_end]
        if self._names_form == NAMES_JSON:
            names: list[str] = json.loads(data)
            return names
        return data.decode().split("\0") if self._names_form == NAMES_JOINED else []

    @cached_property
    def _streams(self) -> list[_Stream]:
        row, made = self._row, list[_Stream]()
        _, count, at = self._places
        for head in range(self._names_at - 2 * len(self.definition.columns), self._names_at, 2):
            first, second = row[head], row[head + 1]
            form, code, many, bits = first & 7, second & 15, count, None
            if form == SAME:
                made.append(made[second])
                continue
            if form == JSON:
                (many,) = SIZE.unpack_from(row, at)
                at += SIZE.size
                code = BYTES
            elif first & NULLS:
                end = at + (count + 7) // 8
                bits = int.from_bytes(row[at:end], "little")
                many, at = bits.bit_count(), end
            lengths: Sequence[int] = ()
            if first & LISTS or form == SKETCHES:
                lengths, at = numbers(row, at, many, LENGTH_CODES[first // LENGTHS & 3])
                many = sum(lengths)
                if many >= WHOLE and form == SKETCHES:
                    many -= sum([WHOLE for length in lengths if length >= WHOLE])
            made.append((form | first & LISTS, code, 10 ** (second >> 4), bits, lengths, at, many))
            at += (many + 1) // 2 if code == HALVES else many * _WIDTHS[code]
        if at != self._answers_at:
            raise other_size()
        return made

    def _of_tiles(self, stream: _Stream) -> Sequence[Any]:
        bits, count, partials = stream[3], self._places[1], self._there(stream)
        if bits is None:
            return partials
        some = iter(partials)
        return [next(some) if there == "1" else None for there in f"{bits:0{count}b}"[::-1]]

    def _there(self, stream: _Stream) -> Sequence[Any]:
        """Return the partials that are not null."""
        form, code, ten, _, lengths, at, many = stream
        if form == JSON:
            some: list[Any] = json.loads(self._row[at : at + many])
            return some
        raw = numbers(self._row, at, many, code)[0]
        if form == SKETCHES:
            return _sketches(raw, lengths)
        if form & LISTS:
            values = list(self._values(raw, form - LISTS, ten))
            ends = accumulate(lengths)
            return [values[end - many : end] for many, end in zip(lengths, ends, strict=True)]
        return self._values(raw, form, ten)

    def _values(self, raw: Sequence[Any], form: int, ten: int) -> Sequence[Any]:
        if form == NAMES:
            names = self.names
            return [names[value] for value in raw]
        if form == DECIMALS:  # divided, as a multiplication would give another float
            return [value / ten for value in raw]
        if form == BOOLS:
            return [value != 0 for value in raw]
        return raw if ten == 1 else [value * ten for value in raw]

    @_guarded
    def partials(self) -> list[Sequence[Any]]:
        """Return of each column the partials of all tiles. A sketch is a tuple of coupons, or bytes: its image."""
        partials = [self._of_tiles(stream) for stream in self._streams]
        if any(len(some) != self._places[1] for some in partials):
            raise other_size()
        return partials

    def tiles(self) -> dict[int, list[tuple[Any, ...]]]:
        """Return the tiles of each step, (index, batch, partial, partial, …), in order of index."""
        partials = self.partials()
        for number, column in enumerate(self.definition.columns):
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

    def bounds(self, runs: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """Return which tiles lie in runs of a step, a first index, and the index after the last; by their places."""
        found = []
        for step, low, high in runs:
            base, first, offsets = self.offsets[step]
            a, b = bisect_left(offsets, low - base), bisect_left(offsets, high - base)
            if a < b:
                found.append((first + a, first + b))
        return found

    @_guarded
    def merged(self, chosen: Sequence[int], bounds: Sequence[tuple[int, int]]) -> list[Any]:
        """Merge the partials of some columns, of tiles at places within bounds, which are in order of time."""
        every, streams = self.definition.columns, self._streams
        if not bounds:
            return [columns.merge(every[number], ()) for number in chosen]
        return [self._merged(every[number], streams[number], bounds) for number in chosen]

    def _merged(self, column: Column, stream: _Stream, bounds: Sequence[tuple[int, int]]) -> Any:
        form, code, ten, bits, lengths, at, many = stream
        if bits is not None:  # from places among all tiles to places among those that have a partial
            bounds = [((bits & (1 << a) - 1).bit_count(), (bits & (1 << b) - 1).bit_count()) for a, b in bounds]
        if form == SKETCHES and max(lengths, default=0) < WHOLE:
            coupons: set[int] = set()
            for a, b in bounds:
                coupons.update(self._words(at + 4 * sum(lengths[:a]), sum(lengths[a:b])))
            return coupons or None
        if column.aggregate in ("last", "last_n") and form != JSON:
            return self._newest(column, stream, bounds)
        # Where that gives the same, numbers are merged before they are turned into partials.
        if not (form == INTS or (form in (DECIMALS, DOUBLES) and column.aggregate in ("min", "max"))):
            some = [partial for a, b in bounds for partial in self._there(stream)[a:b]]
            return columns.merge(column, [merging(partial) for partial in some] if form == SKETCHES else some)
        raw = numbers(self._row, at, many, code)[0]
        merged = columns.merge(column, raw[slice(*bounds[0])] if len(bounds) == 1 else _chosen(raw, bounds))
        return merged if merged is None or ten == 1 else merged * ten if form == INTS else merged / ten

    def _newest(self, column: Column, stream: _Stream, bounds: Sequence[tuple[int, int]]) -> Any:
        """Merge values of which the newest count, so that few are looked at."""
        form, code, ten, _, lengths, at, many = stream
        raw, newest = numbers(self._row, at, many, code)[0], list[Any]()
        for a, b in reversed(bounds):
            end = sum(lengths[:b])
            for place in range(b - 1, a - 1, -1):
                if not form & LISTS:
                    return self._values(raw[place : place + 1], form, ten)[0]
                newest += raw[end - lengths[place] : end]
                end -= lengths[place]
                if len(newest) >= column.size:
                    break
        return list(self._values(newest[: column.size], form - LISTS, ten)) or None if form & LISTS else None

    def _words(self, at: int, many: int) -> Sequence[int]:
        return unpack_from(f"<{many}I", self._row, at)

    @_guarded
    def answers(self) -> Answers | None:
        """Return the answers; None if there are none."""
        text = self._row[self._answers_at :]
        if not text:
            return None
        answers = Answers(*json.loads(text))
        for every in answers.partials:
            while len(every) < len(answers.seconds):
                every.append(every[-1])
        return answers

    @_guarded
    def distinct(self, answer: Sequence[int], newer: Sequence[sketches.Sketch], size: int) -> Any:
        """Return the estimate, or the partial, of an answer's coupons and newer sketches.

        The answer has the number of its coupons, where they begin and end, and, if they are too many, their estimate.
        """
        count, begin, end, *estimate = answer
        row, more = self._row, set[int]()
        for coupons in newer:
            if isinstance(coupons, str):
                return sketches.union([set(self._words(begin, (end - begin) // 4)), *newer], size)
            more |= coupons
        for coupon in list(more):
            word, at = coupon.to_bytes(4, "little"), begin
            while (at := row.find(word, at, end)) >= 0:
                if (at - begin) % 4 == 0:
                    more.discard(coupon)
                    break
                at += 1
        if count + len(more) <= sketches.most_coupons(size):
            return count + len(more)
        return more.union(self._words(begin, (end - begin) // 4)) if more else estimate[0]


def _sketches(words: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, ...] | bytes]:
    made, at, words = list[tuple[int, ...] | bytes](), 0, tuple(words)
    for length in lengths:
        end = at + (length if length < WHOLE else length - WHOLE)
        some = words[at:end]
        made.append(some if length < WHOLE else struct.pack(f"<{len(some)}I", *some))
        at = end
    return made


def _chosen(values: Sequence[Any], bounds: Sequence[tuple[int, int]]) -> list[Any]:
    return [value for a, b in bounds for value in values[a:b]]


class Answers(NamedTuple):
    """The partials of each window, merged over all packed tiles. The windows are in the order of `spans`."""

    since: int
    seconds: Sequence[int]  # an answer holds from `since` on, for so long
    has_tiles: Sequence[bool]
    newest: Sequence[int | None]  # the greatest index of each step
    partials: Sequence[list[Any]]  # of each column, those of each window


def spans(definition: Definition) -> list[tuple[int, int]]:
    """Return the windows of a view that have answers: (step, window), in order."""
    return sorted({(f.step, f.window) for f in definition.windowed if f.window is not None})
