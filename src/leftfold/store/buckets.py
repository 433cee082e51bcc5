"""The buckets of a store. A bucket is a part of the entities that has a mark of its own.

A store that can lose writes only as a whole has one bucket, and its mark is that of the build.
"""

from __future__ import annotations

import zlib


def bucket_of(entity: str, buckets: int) -> int:
    """Return the bucket of an entity, from 0."""
    return zlib.crc32(entity.encode()) % buckets if buckets > 1 else 0


def bucket_sql(column: str, buckets: int) -> str:
    """Return the same of a text column, as an expression of Spark's SQL."""
    return f"pmod(crc32({column}), {buckets})"
