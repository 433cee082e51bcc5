"""XXH64 over columns equals the library's, value by value."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from leftfold.arrow.types import MOMENT
from leftfold.arrow.xxh64 import hashed

CHANCE = random.Random(5)
TEXTS = ["", "ä", *("x" * n for n in range(1, 70)), "ünï" * 9, None, "a\x00b"]


def packed(form: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(form, value)


CASES: dict[str, tuple[list[Any], pa.DataType, Callable[[Any], bytes]]] = {
    "text": (TEXTS, pa.string(), str.encode),
    "bytes": ([b"", b"\xff\x00", None, b"y" * 33], pa.binary(), bytes),
    "long": ([0, -1, 2**63 - 1, -(2**63), None, 77], pa.int64(), packed("<q")),
    "int": ([0, -1, 2**31 - 1, None], pa.int32(), packed("<i")),
    "short": ([0, -3, None], pa.int16(), packed("<i")),
    "bool": ([True, False, None], pa.bool_(), packed("<i")),
    "double": ([0.5, -2.25e300, float("inf"), None], pa.float64(), packed("<d")),
    "float": ([0.5, -2.25, None], pa.float32(), packed("<f")),
    "moment": ([0, -1, 1_772_323_200_000_001, None], MOMENT, packed("<q")),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_library(case: str) -> None:
    values, kind, as_bytes = CASES[case]
    seeds = np.array([CHANCE.getrandbits(64) for _ in values], np.uint64)
    expected = [
        int(seed) if value is None else xxhash.xxh64_intdigest(as_bytes(value), int(seed))
        for value, seed in zip(values, seeds, strict=True)
    ]
    array = pa.array(values, kind)
    assert hashed(array, seeds).tolist() == expected
    chunks = pa.chunked_array([array.slice(0, 1), array.slice(1)])
    assert hashed(chunks, seeds).tolist() == expected


def test_all_zeros_and_all_nans_have_one_hash() -> None:
    nan = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\xff")[0]
    seeds = np.full(4, 42, np.uint64)
    found = hashed(pa.array([0.0, -0.0, float("nan"), nan], pa.float64()), seeds)
    assert found[0] == found[1]
    assert found[2] == found[3] == xxhash.xxh64_intdigest(struct.pack("<Q", 0x7FF8000000000000), 42)


def test_lists_fold_their_elements() -> None:
    array = pa.array([["a", None, "b"], [], None, ["c"]], pa.list_(pa.string()))
    seeds = np.array([1, 2, 3, 4], np.uint64)
    first = xxhash.xxh64_intdigest(b"b", xxhash.xxh64_intdigest(b"a", 1))
    assert hashed(array, seeds).tolist() == [first, 2, 3, xxhash.xxh64_intdigest(b"c", 4)]


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="no hash of"):
        hashed(pa.array([date(2026, 1, 1)], pa.date64()), np.zeros(1, np.uint64))
