"""The hash of a record as it is in the log. It shows when another record has taken the place of a record.

It is XXH64 over the offset, the timestamp, the length of the key (-1 without a key), the key and the value. Each part
is seeded with the hash of the parts before it. Spark's `xxhash64` gives the same for these columns (spark/source.py),
so that either side can check the other.
"""

from __future__ import annotations

from collections.abc import Mapping

import xxhash

from leftfold.kafka.log_reader import LogReader
from leftfold.settings import Kafka

_SEED = 42  # Spark's


def record_hash(offset: int, log_us: int, key: bytes | None, value: bytes | None) -> int:
    """Return the hash as a signed 64-bit number, which is what a column of Spark holds."""
    numbers = (_number(offset, 8), _number(log_us, 8), _number(-1 if key is None else len(key), 4))
    digest = _SEED
    for part in (*numbers, key, value):
        if part is not None:
            digest = xxhash.xxh64_intdigest(part, digest)
    return digest - (1 << 64) if digest >> 63 else digest


def hashes_at(kafka: Kafka, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """Return the hash of the record at the given offset of each partition.

    Partitions without a record at their offset are left out.
    """
    if not offsets:
        return {}
    reader = LogReader(kafka)
    try:
        records = reader.read(topic, {p: (offset, offset + 1) for p, offset in offsets.items()})
        return {r.partition: record_hash(r.offset, r.log_us, r.key, r.value) for r in records}
    finally:
        reader.close()


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little", signed=True)
