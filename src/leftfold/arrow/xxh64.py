"""XXH64 over whole columns at once: the hash that Spark's `xxhash64` gives, each value seeded with a hash before it.

The library `xxhash` takes one value at a time. Numbers and short texts are hashed here by numpy, which is ten times as
fast; long texts by the library. Numpy's unsigned integers wrap, as the algorithm asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SHORT = 32  # bytes: from here on the algorithm has another beginning


def hashed(column: pa.ChunkedArray | pa.Array, seeds: Hashes) -> Hashes:
    """Return the hashes of a column's values. A missing value leaves its seed; a list folds its elements."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # a column without a chunk
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_list(array.type):
        return _of_lists(array, seeds)
    known = ~np.asarray(array.is_null())
    if not known.any():
        return seeds
    hashes = seeds.copy()
    present = array.drop_null()
    hashes[known] = _of_values(present, seeds[known])
    return hashes


def _of_values(array: pa.Array, seeds: Hashes) -> Hashes:
    data = array.type
    if pa.types.is_string(data) or pa.types.is_binary(data):
        return _of_bytes(array, seeds)
    if pa.types.is_boolean(data):
        return _of_ints(np.asarray(array.cast(pa.int8())), seeds)
    if pa.types.is_timestamp(data) or pa.types.is_int64(data):
        return _of_longs(np.asarray(array.cast(pa.int64())), seeds)
    if pa.types.is_integer(data) or pa.types.is_date32(data):
        return _of_ints(np.asarray(array.cast(pa.int32())), seeds)
    if pa.types.is_float32(data):
        return _of_ints(_one_form(np.asarray(array)).view(np.int32), seeds)
    if pa.types.is_float64(data):
        return _of_longs(_one_form(np.asarray(array)).view(np.int64), seeds)
    raise TypeError(f"no hash of {data}")


def _one_form(values: Any) -> Any:
    """Give every zero and every NaN one form, as Spark does."""
    values = values + values.dtype.type(0.0)
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _of_longs(values: Any, seeds: Hashes) -> Hashes:
    return _end(_with_eight(seeds + _P5 + np.uint64(8), values.astype(np.int64).view(np.uint64)))


def _of_ints(values: Any, seeds: Hashes) -> Hashes:
    four = values.astype(np.int32).view(np.uint32).astype(np.uint64)
    return _end(_with_four(seeds + _P5 + np.uint64(4), four))


def _of_bytes(array: pa.Array, seeds: Hashes) -> Hashes:
    """Hash texts of the same length together: as rows of a matrix of bytes."""
    if len(array) == 0:
        return seeds
    hashes = seeds.copy()
    array = array.cast(pa.binary())
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        if length >= _SHORT:
            for place in places:
                hashes[place] = xxhash.xxh64_intdigest(array[int(place)].as_py(), int(seeds[place]))
            continue
        matrix = data[offsets[places][:, None] + np.arange(length)]
        hashes[places] = _of_matrix(np.ascontiguousarray(matrix), int(length), seeds[places])
    return hashes


def _of_matrix(matrix: Any, length: int, seeds: Hashes) -> Hashes:
    hashes, place = seeds + _P5 + np.uint64(length), 0
    while place + 8 <= length:
        eight = np.ascontiguousarray(matrix[:, place : place + 8]).view("<u8").ravel()
        hashes, place = _with_eight(hashes, eight), place + 8
    if place + 4 <= length:
        four = np.ascontiguousarray(matrix[:, place : place + 4]).view("<u4").ravel().astype(np.uint64)
        hashes, place = _with_four(hashes, four), place + 4
    for last in range(place, length):
        hashes = _rotated(hashes ^ (matrix[:, last].astype(np.uint64) * _P5), 11) * _P1
    return _end(hashes)


def _of_lists(array: pa.Array, seeds: Hashes) -> Hashes:
    """Fold the first elements of all lists, then the second ones, and so on."""
    hashes = seeds.copy()
    lengths = np.asarray(array.value_lengths().fill_null(0))
    for number in range(int(lengths.max(initial=0))):
        places = np.flatnonzero(lengths > number)
        elements = pa.compute.list_element(array.take(pa.array(places)), number)
        hashes[places] = hashed(elements, hashes[places])
    return hashes


def _with_eight(hashes: Hashes, eight: Hashes) -> Hashes:
    return _rotated(hashes ^ (_rotated(eight * _P2, 31) * _P1), 27) * _P1 + _P4


def _with_four(hashes: Hashes, four: Hashes) -> Hashes:
    return _rotated(hashes ^ (four * _P1), 23) * _P2 + _P3


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _end(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
