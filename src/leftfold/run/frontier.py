"""The ends of a topic's partitions, and the log time that each of them has reached there."""

from __future__ import annotations

from leftfold import clock
from leftfold.kafka.admin import Admin

_MS = 1_000


def ends_reached(admin: Admin, topic: str, partitions: int) -> tuple[dict[int, int], list[int]]:
    """Return the stable end offset of each partition, and for each a moment (µs): no later record was logged before it.

    This is up to the difference of clocks, and only true of a topic whose log times are the brokers' own. A partition
    that is read to its end has reached the moment at which we asked, even if nothing was written to it for long: the
    broker stamps whatever it appends after that with a later time. Where a transaction is open, the records behind its
    beginning exist already, so the partition has only reached the log time at which it began.
    """
    now, written = clock.now_us(), admin.end_offsets(topic, partitions)
    ends = admin.stable_offsets(topic, partitions)
    moments = [
        now if end >= written[p] else _logged_at(admin, topic, partitions, p, end, now) for p, end in ends.items()
    ]
    return ends, moments


def _logged_at(admin: Admin, topic: str, partitions: int, partition: int, offset: int, now: int) -> int:
    """Return the log time (µs) that the partition has reached at `offset`, where an open transaction begins."""
    low, high = 0, now // _MS  # records logged at `low` or later begin at `offset` or before it
    while low + 1 < high:
        middle = (low + high) // 2
        at = admin.offsets_at(topic, partitions, middle * _MS)[partition]
        low, high = (middle, high) if at is not None and at <= offset else (low, middle)
    return low * _MS
