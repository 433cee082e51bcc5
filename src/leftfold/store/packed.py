"""Packed tiles: the older tiles of one entity in one binary value, column by column. This module reads them.

Packing loses nothing: every tile comes back with the partials that its JSON has, equal in value and in type. Only the
batch is that of the row: the greatest of all its tiles. docs/reference/protocol.md has every byte. In short:

row     = head, step heads, column heads (of each step that has tiles), names, data (of each step that has tiles)
data    = offsets of the indexes, and of each column: bitmap, lengths, values, as far as its head says so

`packing` writes them. Nothing here talks to a store.
"""

from __future__ import annotations

import json
import struct
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, repeat
from operator import add, mul, truediv
from typing import Any

from leftfold.errors import StoreError
from leftfold.fold.definition import Definition

VERSION = 1
HEAD = struct.Struct("<BBxxIIq")  # version, form of the names, number and bytes of the names, batch
STEP = struct.Struct("<qIB")  # the least index, number of tiles, code of the offsets
COLUMN = struct.Struct("<BBBBI")  # form, code of the values, exponent, code of the lengths, number of values

# A code is a place in this text: the type of all numbers of a stream, in little endian.
CODES = "BHIQbhiqd"
WIDTHS = (1, 2, 4, 8, 1, 2, 4, 8, 8)
BYTES, WORDS, LONGS, DOUBLE = CODES.index("B"), CODES.index("I"), CODES.index("Q"), CODES.index("d")

# The forms of a column.
INTS, DECIMALS, DOUBLES, BOOLS, NAMES, SKETCHES, JSON = range(7)
LISTS, NULLS = 16, 32  # are added: the values are elements of lists; a bitmap says which tiles have a value
NAMES_JOINED, NAMES_JSON = range(2)

# A sketch of fewer coupons than this is a list of them. Its length is their number if its image is the short one, which
# DataSketches in C++ and Python writes, and this number more if it is the long one, with room for eight coupons, which
# Spark writes. From `WHOLE` on the length, less `WHOLE`, is the number of words of any other image. That is kept whole.
FULL_LIST = 8
WHOLE = 2 * FULL_LIST


class MalformedError(ValueError):
    """A packed value that no release of Leftfold writes, or only a newer one."""


def unpack(definition: Definition, row: bytes) -> dict[int, list[tuple[Any, ...]]]:
    """Return the tiles of each step, (index, batch, partial, partial, …), in order of index."""
    try:
        return _tiles(definition, row)
    except (struct.error, ValueError, IndexError) as error:
        raise unreadable(definition, error) from error


def pack(definition: Definition, rows: Sequence[tuple[bytes | None, Sequence[tuple[int, bytes]]]]) -> list[bytes]:
    """Return the packed value of each entity, with more tiles in it.

    An entity has its packed value, if there is one, and further tiles as (step, JSON value). Of tiles in one slot that
    with the greatest index stays. Of one index a further tile replaces the packed one, and a later one an earlier one.
    The result depends on the tiles and the greatest batch only, however they were divided among calls.
    """
    from leftfold.store import packing  # it needs numpy, which a reader does not

    return packing.packed_rows(definition, rows)


def batch_of(row: bytes) -> int:
    """Return the greatest batch of the tiles that a packed value has ever had."""
    *_, batch = HEAD.unpack_from(row)
    return int(batch)


def unreadable(definition: Definition, error: Exception) -> StoreError:
    return StoreError(
        "packed-row-unreadable",
        f"the packed tiles of an entity of {definition.view} cannot be read",
        why=str(error if isinstance(error, MalformedError) else other_size()),
        fix="use the release of Leftfold that runs the view; if it is this one, "
        f"leftfold rebuild {definition.view} writes every row again",
    )


def unknown_version(version: int) -> MalformedError:
    return MalformedError(f"they have version {version}, this release reads {VERSION}")


def other_size() -> MalformedError:
    return MalformedError("they do not end where their heads say so: the value was cut, or something else wrote it")


def other_names() -> MalformedError:
    return MalformedError("the texts are not as many as their heads say, or one of them occurs twice")


def names_in(form: int, count: int, data: bytes) -> list[str]:
    if form == NAMES_JSON:
        names: list[str] = json.loads(data)
        return names
    return data.decode().split("\0") if count else []


@cache
def list_heads(size: int) -> tuple[bytes, ...]:
    """Return what the image of a list begins with, by its length. `size` is log2 of its number of registers."""
    short = (bytes((2, 1, 7, size, 3, 8 if n else 12, n, 8)) for n in range(FULL_LIST))
    long = (bytes((2, 1, 7, size, 3, 0 if n else 4, n, 8)) for n in range(FULL_LIST))
    return (*short, *long)


def image(length: int, words: bytes, size: int) -> bytes:
    """Return the image of a sketch of such a length."""
    if length >= WHOLE:
        return words
    whole = list_heads(size)[length] + words
    return whole if length < FULL_LIST else whole.ljust(8 + 4 * FULL_LIST, b"\0")


def words_of(length: int) -> int:
    """Return the number of words that are kept of a sketch of such a length."""
    return length % FULL_LIST if length < WHOLE else length - WHOLE


@cache
def _column_heads(columns: int) -> struct.Struct:
    return struct.Struct("<" + COLUMN.format.removeprefix("<") * columns)


def _tiles(definition: Definition, row: bytes) -> dict[int, list[tuple[Any, ...]]]:
    version, names_form, names_count, names_size, batch = HEAD.unpack_from(row)
    if version != VERSION:
        raise unknown_version(version)
    steps = [STEP.unpack_from(row, HEAD.size + i * STEP.size) for i in range(len(definition.steps))]
    heads = _column_heads(len(definition.columns))
    heads_at = HEAD.size + len(steps) * STEP.size
    at = heads_at + sum(1 for _, count, _ in steps if count) * heads.size
    names = names_in(names_form, names_count, row[at : at + names_size])
    at += names_size
    tiles: dict[int, list[tuple[Any, ...]]] = {}
    for step, (base, count, code) in zip(definition.steps, steps, strict=True):
        if not count:
            tiles[step] = []
            continue
        head = heads.unpack_from(row, heads_at)
        heads_at += heads.size
        offsets = _numbers(row, at, count, code)
        at += count * WIDTHS[code]
        columns: list[Iterable[Any]] = [map(add, repeat(base), offsets), repeat(batch)]
        for place, column in enumerate(definition.columns):
            partials, at = _column(row, at, count, head[5 * place : 5 * place + 5], names, column.size)
            columns.append(partials)
        tiles[step] = list(zip(*columns, strict=False))  # strict would never end: the batch repeats
    if at != len(row):
        raise other_size()
    return tiles


def _numbers(row: bytes, at: int, count: int, code: int) -> Sequence[Any]:
    if code == BYTES:
        return row[at : at + count]
    return struct.unpack_from(f"<{count}{CODES[code]}", row, at)


def _column(
    row: bytes, at: int, count: int, head: tuple[int, int, int, int, int], names: list[str], size: int
) -> tuple[Iterable[Any], int]:
    """Return the partials of a column of one step, and where the data after them begin."""
    form, code, exponent, lengths_code, many = head
    if form == JSON:
        return json.loads(row[at : at + many]), at + many
    present = ""
    if form & NULLS:
        bits = int.from_bytes(row[at : at + (count + 7) // 8], "little")
        present = f"{bits:0{count}b}"[::-1]
        at += (count + 7) // 8
        form -= NULLS
    lengths: Sequence[int] = ()
    if form & LISTS or form == SKETCHES:
        lengths = _numbers(row, at, count, lengths_code)
        at += count * WIDTHS[lengths_code]
    end = at + many * WIDTHS[code]
    partials: Iterable[Any]
    if form == SKETCHES:
        partials = _sketches(row, at, lengths, size)
    else:
        partials = _values(form & ~LISTS, _numbers(row, at, many, code), exponent, names)
    if form & LISTS:
        elements = list(partials)
        partials = [elements[end - many : end] for many, end in zip(lengths, accumulate(lengths), strict=True)]
    if present and lengths:
        partials = [p if there == "1" else None for p, there in zip(partials, present, strict=True)]
    elif present:
        some = iter(partials)
        partials = [next(some) if there == "1" else None for there in present]
    return partials, end


def _values(form: int, numbers: Sequence[Any], exponent: int, names: list[str]) -> Iterable[Any]:
    match form:
        case 0 if exponent:  # INTS
            return map(mul, numbers, repeat(10**exponent))
        case 0 | 2:  # INTS, DOUBLES
            return numbers
        case 1:  # DECIMALS: divided, as a multiplication would give another float
            return map(truediv, numbers, repeat(10**exponent))
        case 3:  # BOOLS
            return map(bool, numbers)
        case 4:  # NAMES
            return map(names.__getitem__, numbers)
    raise MalformedError(f"they have a column of form {form}, which this release does not know")


def _sketches(row: bytes, at: int, lengths: Sequence[int], size: int) -> list[str]:
    texts = []
    for length in lengths:
        end = at + 4 * words_of(length)
        texts.append(b2a_base64(image(length, row[at:end], size), newline=False).decode())
        at = end
    return texts
