"""Writes packed tiles, of one entity at a time. `packed` reads them and knows what the bytes mean.

What no read needs is left out. A past read is of a moment of the last day. So of two tiles that are older, every read
that takes one takes the newer one too, or a tile of a longer step that has all of it. So a minimum stays only where no
newer older tile has one as small, a coupon of a sketch only in the newest tile that has it, and so on (`_THINNED`).
Counts and sums stay.
"""

from __future__ import annotations

import json
from binascii import a2b_base64
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import gcd
from struct import pack
from typing import Any

from leftfold.fold import columns, sketches
from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.values import INT64
from leftfold.store import packed
from leftfold.store.packed import HALVES, LENGTH_CODES, LISTS, NULLS, WHOLE

# A past read is of a moment at most a day ago. An hour more, because clocks differ.
_READ_AT_MOST = 25 * 3_600 * SECOND
# The longest list that an answer has. A longer one costs more bytes than it saves time.
_ANSWERED_LIST = 64
_EXACT = 2.0**53  # below it a double holds every integer

_json = json.JSONEncoder(separators=(",", ":")).encode
_HALF = bytes.maketrans(bytes(range(16)), b"0123456789abcdef")

Partials = list[Any]  # of one column, one for each tile


def packed_row(definition: Definition, row: bytes | None, tail: Sequence[tuple[int, bytes]], at: int) -> bytes:
    """Return the packed value of one entity, as `packed.pack` says."""
    return _Row(definition, row, tail, at).written()


class _Row:
    def __init__(self, definition: Definition, row: bytes | None, tail: Sequence[tuple[int, bytes]], at: int) -> None:
        self._definition = definition
        self._batch = -1
        self._indexes: dict[int, list[int]] = {step: [] for step in definition.steps}
        self._partials: dict[int, list[Partials]] = {
            step: [[] for _ in definition.columns] for step in definition.steps
        }
        self._whole_since = packed.ALWAYS_WHOLE
        if row is not None:
            self._read(packed.Packed(definition, row))
        self._add(tail)
        self._at = max([at, *(step * indexes[-1] for step, indexes in self._indexes.items() if indexes)])
        self._is_time = -INT64 + _READ_AT_MOST <= self._at < INT64
        # Producers may stamp a log with any time, so a tile may lie after moments that are read.
        if self._is_time and all(origin.log_time != "producer" for origin in definition.origins):
            self._drop_and_thin(max(self._whole_since, self._at - _READ_AT_MOST))

    # Tiles -----------------------------------------------------------------------------------------------------------

    def _read(self, row: packed.Packed) -> None:
        self._batch, self._whole_since = row.batch, row.whole_since
        every = row.partials()
        for number, column in enumerate(self._definition.columns):
            if column.aggregate == "distinct" and str in set(map(type, every[number])):
                every[number] = [_coupons(partial, column.size) for partial in every[number]]
        for step, (base, first, offsets) in row.offsets.items():
            self._indexes[step] = [base + offset for offset in offsets]
            self._partials[step] = [list(partials[first : first + len(offsets)]) for partials in every]

    def _add(self, tail: Sequence[tuple[int, bytes]]) -> None:
        if not tail:
            return
        tiles = json.loads(b"[%b]" % b",".join(value for _, value in tail))
        self._batch = max([self._batch, *(tile[1] for tile in tiles)])
        for step in self._definition.steps:
            fresh = {tile[0]: tile[2:] for (mine, _), tile in zip(tail, tiles, strict=True) if mine == step}
            if not fresh:
                continue
            added: list[Partials] = [
                list(partials) for partials in zip(*(fresh[i] for i in sorted(fresh)), strict=True)
            ]
            for column, partials in zip(self._definition.columns, added, strict=True):
                if column.aggregate == "distinct":
                    partials[:] = [_coupons(partial, column.size) for partial in partials]
            indexes, partials_ = self._indexes[step], self._partials[step]
            new = sorted(fresh)
            if not indexes or new[0] > indexes[-1]:
                indexes += new
                for partials, more in zip(partials_, added, strict=True):
                    partials.extend(more)
            else:
                rows = dict(zip(indexes, zip(*partials_, strict=True), strict=True))
                rows |= zip(new, zip(*added, strict=True), strict=True)
                self._indexes[step] = sorted(rows)
                self._partials[step] = list(map(list, zip(*(rows[i] for i in sorted(rows)), strict=True)))
            self._drop_replaced(step)

    def _drop_replaced(self, step: int) -> None:
        """Keep, of tiles in one slot, the one with the greatest index."""
        indexes, ring = self._indexes[step], self._definition.rings[step]
        if indexes[-1] - indexes[0] < ring:
            return
        kept = set({index % ring: index for index in indexes}.values())
        self._keep(step, [place for place, index in enumerate(indexes) if index in kept])

    def _keep(self, step: int, places: Sequence[int]) -> None:
        self._indexes[step] = [self._indexes[step][place] for place in places]
        self._partials[step] = [[partials[place] for place in places] for partials in self._partials[step]]

    def _drop_and_thin(self, since: int) -> None:
        """Drop tiles that no read reaches any more, and thin those that end before any moment that is read."""
        self._whole_since = since
        definition = self._definition
        for step, indexes in self._indexes.items():
            if not indexes or (indexes[0] + 1) * step > since:
                continue
            # A past moment is reached by tiles of shorter steps than the window's own, within one of the next step.
            longer = next((s for s in definition.steps if s > step), 0)
            longest = max(longer, *(f.window for f in definition.windowed if f.window is not None and f.step <= step))
            dropped = bisect_left(indexes, (since - longest) // step - 1)
            if dropped:
                self._keep(step, range(dropped, len(indexes)))
            old = bisect_right(self._indexes[step], since // step - 1)
            for column, partials in zip(definition.columns, self._partials[step], strict=True):
                if old > 1 and column.aggregate in _THINNED:
                    kinds, thin = _THINNED[column.aggregate]
                    if kinds is None or set(map(type, partials[:old])) <= kinds:
                        partials[:old] = thin(column, partials[:old])

    # Bytes -----------------------------------------------------------------------------------------------------------

    def written(self) -> bytes:
        definition = self._definition
        listed = [
            list(chain.from_iterable(self._partials[step][number] for step in definition.steps))
            for number in range(len(definition.columns))
        ]
        names = _Names()
        heads, data, words = _columns_written(definition.columns, listed, names)
        step_heads, offsets = [], []
        for step in definition.steps:
            indexes = self._indexes[step]
            base = indexes[0] if indexes else 0
            stream, code = _numbers([index - base for index in indexes])
            step_heads.append(packed.STEP.pack(base, len(indexes), code))
            offsets.append(stream)
        form, texts = names.written()
        front = b"".join((*step_heads, heads, texts, *offsets))
        before = packed.HEAD.size + len(front)
        answers = self._answers({number: before + at for number, at in words.items()})
        body = b"".join((front, *data, answers))
        size = packed.HEAD.size + len(body)
        head = (packed.VERSION, form, size, len(texts), len(answers), self._batch, self._whole_since)
        return packed.HEAD.pack(*head) + body

    # Answers ---------------------------------------------------------------------------------------------------------

    def _answers(self, words: Mapping[int, int]) -> bytes:
        """Return what `packed.Answers` reads. `words` are where the coupons of columns begin."""
        definition, at = self._definition, self._at
        used = _columns_of(definition)
        if not used or not self._is_time or not any(self._indexes.values()):
            return b""
        seconds, has_tiles = [], []
        partials: list[Partials] = [[] for _ in definition.columns]
        shorter: list[tuple[int, int, int]] = []
        known: set[int] = set()  # the columns of the shorter window
        for (step, window), chosen in used.items():
            runs, until = self._reached(step, at - window)
            # The newest packed tile starts before any moment that is read. So a window takes all tiles after its first.
            places = [(s, a, b) for s, a, b in runs if a < b]
            held = packed.FOREVER if until is None else min((until + window - at) // SECOND, packed.FOREVER - 1)
            seconds.append(max(held, 0))
            has_tiles.append(bool(places))
            # A longer window often has the tiles of a shorter one and some before them.
            inner = shorter[0] if len(places) == len(shorter) == 1 and places[0][::2] == shorter[0][::2] else None
            for number, mine in enumerate(partials):
                if number not in chosen:
                    mine.append(None)
                elif inner is not None and number in known and mine[-1] is not False:
                    older = (places[0][0], places[0][1], inner[1])
                    mine.append(self._answer(number, [older], words, mine[-1]))
                else:
                    mine.append(self._answer(number, places, words))
            shorter = places
            known = {n for n in chosen if definition.columns[n].aggregate != "distinct"}
        for mine in partials:
            while len(mine) > 1 and (mine[-1] is mine[-2] or repr(mine[-1]) == repr(mine[-2])):
                mine.pop()
        newest = [indexes[-1] if indexes else None for indexes in self._indexes.values()]
        return _json([at, seconds, has_tiles, newest, partials]).encode()

    def _answer(
        self, number: int, places: Sequence[tuple[int, int, int]], words: Mapping[int, int], newer: Any = None
    ) -> Any:
        """Return what tiles of one column are, merged, with a newer partial; False if a read has to merge them."""
        column = self._definition.columns[number]
        if (column.aggregate == "last_n" and column.size > _ANSWERED_LIST) or (
            column.aggregate == "distinct" and len(places) > 1
        ):
            return False
        tiles = [p for s, a, b in places for p in self._partials[s][number][a:b] if p is not None]
        if column.aggregate != "distinct":
            try:
                return columns.merge(column, tiles if newer is None else [*tiles, newer])
            except TypeError:  # partials of several kinds, which only a read that needs them may refuse
                return False
        if number not in words:
            return False if tiles else None
        if not tiles:
            return None
        ((step, first, _),) = places
        before = chain.from_iterable(self._partials[s][number] for s in self._definition.steps if s < step)
        skipped = sum(map(len, filter(None, chain(before, self._partials[step][number][:first]))))
        begin, found = words[number] + 4 * skipped, set[int]().union(*tiles)
        answer = [len(found), begin, begin + 4 * sum(map(len, tiles))]
        if len(found) > sketches.most_coupons(column.size):
            answer.append(sketches.estimate(found, column.size))
        return answer

    def _reached(self, step: int, start: int) -> tuple[list[tuple[int, int, int]], int | None]:
        """Return which tiles a window takes that begins at a moment, and until which beginning it takes the same.

        The tiles of each step as the places of the first and of the one after the last, in order of time. None if it
        takes the same for ever. A tile of one step is taken if it starts before the first tile of the next step could,
        at the first multiple of that step. So the set changes when the oldest tile is left behind; and when a tile of a
        longer step is, of which shorter ones take the place.
        """
        low, runs, changes = start - start % step, list[tuple[int, int, int]](), list[int]()
        steps = [s for s in self._definition.steps if s >= step]
        for this, longer in zip(steps, (*steps[1:], None), strict=True):
            indexes = self._indexes[this]
            first = bisect_left(indexes, -(-low // this))
            end = len(indexes) if longer is None else bisect_left(indexes, -(-low // longer) * longer // this)
            runs.append((this, first, end))
            if first < end:
                changes.append(indexes[first] * this + step)
            if longer is not None and end < len(indexes):
                at = indexes[end] * this
                changes.append(at - at % longer + step)
        return runs, min(changes, default=None)


@lru_cache(maxsize=16)
def _columns_of(definition: Definition) -> dict[tuple[int, int], set[int]]:
    """Return the columns that the features of each window read."""
    used: dict[tuple[int, int], set[int]] = {span: set() for span in packed.spans(definition)}
    for feature in definition.windowed:
        if feature.window is not None:
            used[feature.step, feature.window].update(feature.columns)
    return used


def _coupons(partial: Any, size: int) -> Any:
    """Return a sketch as its coupons, in order; as bytes if it has registers; and as it is if it is neither."""
    if type(partial) is not str:
        return partial
    try:
        found = sketches.coupons(partial, size)
        if found is not None and len(found) < WHOLE:
            return tuple(sorted(found)) or None
        image = a2b_base64(partial)
    except ValueError:
        return partial
    return image if len(image) >= 8 and len(image) % 4 == 0 and sketches.text(image) == partial else partial


# Thinning ------------------------------------------------------------------------------------------------------------
# Each takes the partials of older tiles, in order of time.


def _extremes(column: Column, partials: Partials) -> Partials:
    better: Callable[[Any, Any], bool] = (lambda a, b: a < b) if column.aggregate == "min" else (lambda a, b: a > b)
    kept: Partials = [None] * len(partials)
    best = None
    for place in range(len(partials) - 1, -1, -1):
        partial = partials[place]
        if partial is not None and (best is None or better(partial, best)):
            kept[place] = best = partial
    return kept


def _newest_one(column: Column, partials: Partials) -> Partials:
    kept: Partials = [None] * len(partials)
    for place in range(len(partials) - 1, -1, -1):
        if partials[place] is not None:
            kept[place] = partials[place]
            break
    return kept


def _newest_some(column: Column, partials: Partials) -> Partials:
    kept: Partials = [None] * len(partials)
    left = column.size
    for place in range(len(partials) - 1, -1, -1):
        if left and partials[place]:
            kept[place] = partials[place][:left]
            left -= len(kept[place])
    return kept


def _newest_coupons(column: Column, partials: Partials) -> Partials:
    kept: Partials = [None] * len(partials)
    seen: set[int] = set()
    for place in range(len(partials) - 1, -1, -1):
        partial = partials[place]
        if type(partial) is tuple:
            kept[place] = tuple(coupon for coupon in partial if coupon not in seen) or None
            seen.update(partial)
        else:
            kept[place] = partial
    return kept


# With the kinds that the partials must have; None if any will do.
_NUMBERS: frozenset[type] = frozenset((int, float, type(None)))
_THINNED: Mapping[str, tuple[frozenset[type] | None, Callable[[Column, Partials], Partials]]] = {
    "min": (_NUMBERS, _extremes),
    "max": (_NUMBERS, _extremes),
    "last": (None, _newest_one),
    "last_n": (frozenset((list, type(None))), _newest_some),
    "distinct": (None, _newest_coupons),
}


# Columns -------------------------------------------------------------------------------------------------------------


class _Names(dict[str, int]):
    """The texts of a row, each with its number. A text that is missing is added."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def written(self) -> tuple[int, bytes]:
        if not self:
            return packed.NO_NAMES, b""
        text = "\0".join(self)
        if text.count("\0") == len(self) - 1:
            try:
                return packed.NAMES_JOINED, text.encode()
            except UnicodeEncodeError:  # a lone surrogate, which only JSON can have
                pass
        return packed.NAMES_JSON, _json(list(self)).encode()


def _columns_written(
    every: Sequence[Column], listed: Sequence[Partials], names: _Names
) -> tuple[bytes, list[bytes], dict[int, int]]:
    """Return the heads of columns, their data, and where in these the words of each column of coupons begin."""
    heads, data, size = bytearray(), list[bytes](), 0
    written: dict[bytes, int] = {}
    words: dict[int, int] = {}
    for number, (column, partials) in enumerate(zip(every, listed, strict=True)):
        head, stream, count = _column(column, partials, names)
        same = written.setdefault(head + stream, number)
        if same != number and same < 256:
            heads += bytes((packed.SAME, same))
            if same in words:
                words[number] = words[same]
            continue
        heads += head
        data.append(stream)
        size += len(stream)
        if count:
            words[number] = size - 4 * count
    return bytes(heads), data, words


def _column(column: Column, partials: Partials, names: _Names) -> tuple[bytes, bytes, int]:
    """Return the head of a column, its data, and the number of words at their end if they are coupons."""
    kinds = set(map(type, partials))
    first, there = 0, b""
    some: Sequence[Any] = partials
    if type(None) in kinds:
        kinds.discard(type(None))
        first = NULLS
        some = [partial for partial in partials if partial is not None]
        bits = "".join(["0" if partial is None else "1" for partial in reversed(partials)]) if some else "0"
        there = int(bits, 2).to_bytes((len(partials) + 7) // 8, "little")
    if kinds <= {tuple, bytes} and kinds:
        lengths = [len(p) if type(p) is tuple else WHOLE + len(p) // 4 for p in some]
        counted, code = _lengths(lengths)
        words = b"".join([pack(f"<{len(p)}I", *p) if type(p) is tuple else p for p in some])
        count = 0 if bytes in kinds else sum(lengths)
        return bytes((first + packed.SKETCHES + code, packed.WORDS)), b"".join((there, counted, words)), count
    if kinds == {list} and column.aggregate == "last_n":
        made = _values(list(chain.from_iterable(some)), names)
        if made is not None:
            form, code, exponent, stream = made
            counted, length_code = _lengths(list(map(len, some)))
            head = bytes((first + LISTS + form + length_code, code + 16 * exponent))
            return head, b"".join((there, counted, stream)), 0
    elif list not in kinds and (made := _values(some, names, kinds)) is not None:
        form, code, exponent, stream = made
        return bytes((first + form, code + 16 * exponent)), there + stream, 0
    texts = [packed.plain(partial, column.size) for partial in partials]
    text = _json(texts).encode()
    return bytes((packed.JSON, 0)), packed.SIZE.pack(len(text)) + text, 0


def _lengths(lengths: Sequence[int]) -> tuple[bytes, int]:
    stream, code = _numbers(lengths)
    return stream, packed.LENGTHS * LENGTH_CODES.index(code)


def _values(
    values: Sequence[Any], names: _Names, kinds: Iterable[type] | None = None
) -> tuple[int, int, int, bytes] | None:
    """Return form, code, exponent and bytes of values of one kind; None if they need JSON."""
    kinds = set(map(type, values)) if kinds is None else set(kinds)
    if not kinds:
        return packed.INTS, 0, 0, b""
    writes = _WRITES.get(kinds.pop())
    return None if kinds or writes is None else writes(values, names)


def _bools(values: Sequence[bool], _: _Names) -> tuple[int, int, int, bytes]:
    stream, code = _numbers(list(map(int, values)))
    return packed.BOOLS, code, 0, stream


def _texts(values: Sequence[str], names: _Names) -> tuple[int, int, int, bytes]:
    stream, code = _numbers([names[value] for value in values])
    return packed.NAMES, code, 0, stream


def _ints(values: Sequence[int], _: _Names) -> tuple[int, int, int, bytes] | None:
    low, high = min(values), max(values)
    if low < -INT64 or high >= INT64:
        return None
    exponent = 0
    if high >= 256 or low <= -256:
        common = gcd(*values)
        while exponent < 15 and common % 10 == 0:
            common //= 10
            exponent += 1
        if exponent:
            ten = 10**exponent
            values, low, high = [value // ten for value in values], low // ten, high // ten
    stream, code = _in_width(values, low, high)
    return packed.INTS, code, exponent, stream


def _floats(values: Sequence[float], _: _Names) -> tuple[int, int, int, bytes]:
    for exponent in (0, 2, 4, 6):
        ten = 10**exponent
        try:
            whole = [round(value * ten) for value in values]
        except (OverflowError, ValueError):  # infinite, or no number
            break
        exact = [number / ten for number in whole]
        if exact == values and max(map(abs, whole)) < _EXACT and (0 not in whole or repr(exact) == repr(values)):
            stream, code = _numbers(whole)
            return packed.DECIMALS, code, exponent, stream
    return packed.DOUBLES, packed.DOUBLE, 0, pack(f"<{len(values)}d", *values)


def _numbers(values: Sequence[int]) -> tuple[bytes, int]:
    """Return whole numbers in the smallest width, and its code."""
    return _in_width(values, min(values), max(values)) if values else (b"", HALVES)


def _in_width(values: Sequence[int], low: int, high: int) -> tuple[bytes, int]:
    if low >= 0:
        if high < 16:
            digits = bytes(values).translate(_HALF)
            return bytes.fromhex((digits + b"0" if len(values) % 2 else digits).decode()), HALVES
        if high < 256:
            return bytes(values), 0
        code = 1 if high < 1 << 16 else 2 if high < 1 << 32 else 3
    else:
        reach = max(high, -(low + 1))
        code = 4 if reach < 1 << 7 else 5 if reach < 1 << 15 else 6 if reach < 1 << 31 else 7
    return pack(f"<{len(values)}{packed.CODES[code]}", *values), code


_WRITES: Mapping[type, Callable[[Sequence[Any], _Names], tuple[int, int, int, bytes] | None]] = {
    int: _ints,
    float: _floats,
    bool: _bools,
    str: _texts,
}
