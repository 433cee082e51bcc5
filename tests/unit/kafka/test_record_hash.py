"""The hash of a record. That Spark's is the same is for the engine tests."""

from __future__ import annotations

from itertools import combinations

from leftfold.kafka.record_hash import record_hash


def test_every_part_counts() -> None:
    records = [
        (5, 1_000, b"k", b"v"),
        (6, 1_000, b"k", b"v"),
        (5, 1_001, b"k", b"v"),
        (5, 1_000, b"kv", b""),
        (5, 1_000, b"", b"kv"),
        (5, 1_000, None, b"kv"),
        (5, 1_000, b"kv", None),
        (5, 1_000, None, None),
        (5, 1_000, b"", None),
        (5, 1_000, None, b""),
        (-5, 1_000, b"k", b"v"),
    ]
    for one, other in combinations(records, 2):
        assert record_hash(*one) != record_hash(*other), (one, other)


def test_it_fits_a_column_of_spark() -> None:
    found = [record_hash(n, n, b"k", bytes(n)) for n in range(100)]
    assert all(-(1 << 63) <= h < 1 << 63 for h in found)
    assert min(found) < 0 < max(found)
