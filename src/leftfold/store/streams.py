"""Streams of numbers and bits of many packed rows at once, as numpy arrays: read from bytes, reduced, written to bytes.

A stream is what one row has of one kind: the offsets of a step, the values of a column. Streams follow each other in
one flat array, and `counts` are their lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from leftfold.store import packed

Array = npt.NDArray[Any]

WIDTHS = np.array(packed.WIDTHS)  # in bytes, by code
TENS = 10 ** np.arange(19)
_DTYPES = ("<u1", "<u2", "<u4", "<u8", "<i1", "<i2", "<i4", "<i8", "<i8")  # by code; of a double the bits
_DECIMALS = (0, 2, 4, 6)  # tried in this order for the floats of a stream
_EXACT = 2.0**53  # below it a double holds every integer

# How a stream is written. The words of a sketch are always words of 32 bits. A natural number has up to 64 bits, which
# an int of numpy shows as a negative one. An int may be written without a common power of ten, a float as such an int.
AS_IT_IS, AS_INTS, AS_FLOATS, AS_WORDS, AS_NATURALS = range(5)


def records(buffer: Array, places: Array, kind: np.dtype[Any], many: int) -> Array:
    """Read so many records at each place."""
    if not many:
        return np.zeros((len(places), 0), kind)
    return buffer[places[:, None] + np.arange(kind.itemsize * many)].view(kind)


def ranges(starts: Array, counts: Array) -> Array:
    """Return start, start + 1, … of each range, one range after another."""
    starts, counts = starts.ravel(), counts.ravel()
    ends = np.cumsum(counts)
    places: Array = np.repeat(starts - (ends - counts), counts)
    places += np.arange(len(places))
    return places


def reduced(reduce: np.ufunc, values: Array, counts: Array, empty: int) -> Array:
    """Reduce streams that follow each other to one value each, in the shape of the counts."""
    flat = counts.ravel()
    out = np.full(len(flat), empty, values.dtype)
    some = np.flatnonzero(flat)
    if len(some):
        out[some] = reduce.reduceat(values.ravel(), (np.cumsum(flat) - flat)[some])
    return out.reshape(counts.shape)


def small(values: Array) -> Array:
    """Return natural numbers in the smallest type: numpy sorts those of up to 16 bits by radix."""
    return values.astype(np.min_scalar_type(values.max()))


def order_by(minor: Array, major: Array) -> Array:
    """Return the order by major, then minor; equals stay in their order."""
    order = np.argsort(small(minor), kind="stable")
    return order[np.argsort(small(major)[order], kind="stable")]


def last_of_equals(major: Array, minor: Array) -> Array:
    """Return which of the sorted pairs are the last of equal ones."""
    return np.append((major[1:] != major[:-1]) | (minor[1:] != minor[:-1]), True)


def read_numbers(data: bytes, places: Array, counts: Array, codes: Array) -> Array:
    """Read streams of numbers, one after another: ints, or the bits of doubles."""
    places, counts, codes = places.ravel(), counts.ravel(), codes.ravel()
    numbers = np.empty(counts.sum(), np.int64)
    starts = np.cumsum(counts) - counts
    for code in np.flatnonzero(np.bincount(codes[counts > 0], minlength=1)):
        some = (codes == code) & (counts > 0)
        begins = places[some]
        ends = begins + counts[some] * WIDTHS[code]
        cut = map(data.__getitem__, map(slice, begins.tolist(), ends.tolist()))
        read = np.frombuffer(b"".join(cut), _DTYPES[code])
        numbers[ranges(starts[some], counts[some])] = read.view(np.int64) if code == packed.LONGS else read
    return numbers


def read_bitmaps(data: bytes, places: Array, is_null: Array, counts: Array) -> Array:
    """Return of each partial whether there is one."""
    streams = np.broadcast_to(counts, is_null.shape)
    begins, many = places[is_null], streams[is_null]
    sizes = (many + 7) // 8
    cut = map(data.__getitem__, map(slice, begins.tolist(), (begins + sizes).tolist()))
    bits = np.unpackbits(np.frombuffer(b"".join(cut), np.uint8), bitorder="little")
    there = np.ones(streams.sum(), bool)
    starts = (np.cumsum(streams) - streams.ravel()).reshape(streams.shape)
    there[ranges(starts[is_null], many)] = bits[ranges(8 * (np.cumsum(sizes) - sizes), many)] > 0
    return there


class Buffer:
    """Bytes that grow, and of which every piece knows its place."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> int:
        """Append bytes. Returns where they begin."""
        self._parts.append(part)
        self._size += len(part)
        return self._size - len(part)

    def bytes(self) -> bytes:
        return b"".join(self._parts)


def write_bitmaps(buffer: Buffer, there: Array, is_null: Array, counts: Array) -> Array:
    """Write bitmaps. Returns where they begin and end, as [segment, column, 2]."""
    many = np.broadcast_to(counts, is_null.shape)[is_null]
    sizes = (many + 7) // 8
    bits = np.zeros(8 * sizes.sum(), np.uint8)
    chosen = np.repeat(is_null.ravel(), np.broadcast_to(counts, is_null.shape).ravel())
    bits[ranges(8 * (np.cumsum(sizes) - sizes), many)] = there.ravel()[chosen]
    ends = np.cumsum(sizes) + buffer.add(np.packbits(bits, bitorder="little").tobytes())
    pieces = np.zeros((2, *is_null.shape), np.int64)
    pieces[0][is_null], pieces[1][is_null] = ends - sizes, ends
    return pieces.T


def write_numbers(buffer: Buffer, numbers: Array, counts: Array, kinds: Array) -> Array:
    """Write streams of numbers. Returns of each: code, exponent, count, where it begins, and where it ends.

    The numbers are changed in place.
    """
    starts = np.cumsum(counts) - counts
    exponents = np.zeros(len(counts), np.int64)
    is_double = _scaled(numbers, starts, counts, kinds, exponents)
    low, high = (reduced(reduce, numbers, counts, 0) for reduce in (np.minimum, np.maximum))
    wide = np.flatnonzero((kinds == AS_INTS) & ((high >= 256) | (low <= -256)))
    if len(wide):
        places = ranges(starts[wide], counts[wide])
        factors = reduced(np.gcd, numbers[places], counts[wide], 0)
        exponents[wide] = (factors[:, None] % TENS[1:] == 0).sum(axis=1)
        tens = TENS[exponents[wide]]
        numbers[places] //= np.repeat(tens, counts[wide])
        low[wide] //= tens
        high[wide] //= tens
    unsigned = np.searchsorted([1 << 8, 1 << 16, 1 << 32], high, side="right")
    signed = 4 + np.searchsorted([1 << 7, 1 << 15, 1 << 31], np.maximum(high, -(low + 1)), side="right")
    codes = np.where(low < 0, signed, unsigned)
    codes[(kinds == AS_NATURALS) & (low < 0)] = packed.LONGS
    codes[kinds == AS_WORDS] = packed.WORDS
    codes[is_double] = packed.DOUBLE
    begins, sizes = np.zeros(len(counts), np.int64), counts * WIDTHS[codes]
    for code in np.flatnonzero(np.bincount(codes, minlength=1)):
        some = codes == code
        part = numbers[ranges(starts[some], counts[some])].astype(_DTYPES[code]).tobytes()
        begins[some] = np.cumsum(sizes[some]) - sizes[some] + buffer.add(part)
    return np.stack((codes, exponents, counts, begins, begins + sizes))


def _scaled(numbers: Array, starts: Array, counts: Array, kinds: Array, exponents: Array) -> Array:
    """Turn floats into decimals, in place, if all of a stream are exact. Returns which streams stay doubles."""
    left = np.flatnonzero((kinds == AS_FLOATS) & (counts > 0))
    for exponent in _DECIMALS if len(left) else ():
        places = ranges(starts[left], counts[left])
        bits = numbers[places]
        with np.errstate(all="ignore"):
            scaled = np.rint(bits.view(np.float64) * TENS[exponent])
            whole = np.where(np.abs(scaled) < _EXACT, scaled, 0).astype(np.int64)
        exact = (whole / TENS[exponent]).view(np.int64) == bits  # by bits: 0 is not -0.0
        fits = reduced(np.logical_and, exact, counts[left], 1)
        numbers[places] = np.where(np.repeat(fits, counts[left]), whole, bits)
        exponents[left[fits]] = exponent
        left = left[~fits]
        if not len(left):
            break
    is_double = np.zeros(len(counts), bool)
    is_double[left] = True
    return is_double
