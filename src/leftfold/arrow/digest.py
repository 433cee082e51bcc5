"""Digests of rows, independent of their order: the same that Spark computes in `spark`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from leftfold.arrow.xxh64 import Hashes, hashed

_SEED = 42  # Spark's


def digest_of(table: pa.Table) -> str:
    """Return the number of rows, and the sum of their hashes: as `spark.training.assemble` does."""
    hashes = np.full(table.num_rows, _SEED, np.uint64)
    for column in table.columns:
        hashes = hashed(column, hashes)
    return f"{table.num_rows}-{int(hashes.sum(dtype=np.uint64)):016x}"


def sums_of(batch: pa.RecordBatch) -> tuple[int, int]:
    """Return two sums of hashes of the rows, modulo 2**64: as `spark.history.replayed` does.

    A missing value adds nothing to a hash, so the places of missing values are hashed too.
    """
    nulls = np.column_stack([np.asarray(column.is_null()) for column in batch.columns]).astype(np.uint8) + ord("0")
    texts = pa.array([row.tobytes() for row in nulls], pa.binary())
    return _sum(batch, texts, 0), _sum(batch, texts, 1)


def _sum(batch: pa.RecordBatch, nulls: pa.Array, salt: int) -> int:
    hashes: Hashes = np.full(batch.num_rows, _SEED, np.uint64)
    for column in (pa.array(np.full(batch.num_rows, salt, np.int32)), nulls, *batch.columns):
        hashes = hashed(column, hashes)
    return int(hashes.sum(dtype=np.uint64))
