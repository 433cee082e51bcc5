"""The partition of a key: Java's default partitioner. Pure Python; it imports no client."""

from __future__ import annotations


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as a producer with Java's partitioner chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return Kafka's variant of murmur2: seed and 32-bit arithmetic of org.apache.kafka.common.utils.Utils."""
    mixer, bits = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * mixer & bits
        k = (k ^ k >> 24) * mixer & bits
        h = (h * mixer & bits) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * mixer & bits
    h = (h ^ h >> 13) * mixer & bits
    return h ^ h >> 15
