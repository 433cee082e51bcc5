"""The size of a batch: how much of its topics a stream reads in one, and how much of it in one task.

One rule, which runs and their sizing share. It never looks at engines: it is told what they have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from leftfold.declare.topic import Topic

# Offsets of a partition for one task: about a second of work for one core, so that a lost task costs little.
OFFSETS_PER_PARTITION = 50_000
# Bytes of a partition for one task, as the brokers store them: one record may be a thousand times as long as another.
BYTES_PER_PARTITION = 64 * 1_024 * 1_024
# A batch holds this much of what arrives. A batch of T seconds pays its fixed cost b once in T, and at a load of λ/R it
# settles at T = b ÷ (1 - λ/R): with a b of 0.8 s, four seconds are enough up to λ/R = 0.8. Views still take turns, and
# a stop, which waits for the batch, is still quick.
BACKLOG_S = 4


def declared_rate(topics: Iterable[Topic[Any]]) -> float | None:
    """The declared records a second of topics that one stream reads; None if none of them declares any."""
    return sum(topic.rate or 0.0 for topic in topics) or None


def offsets_per_task(record_bytes: float, most_offsets: int | None = None) -> int:
    """The most offsets of a partition that one task of a stream reads.

    `record_bytes` is the mean in the log; 0 if it is not known. `most_offsets` is the profile's own number.
    """
    return max(1, min(most_offsets or OFFSETS_PER_PARTITION, int(BYTES_PER_PARTITION / max(record_bytes, 1.0))))


def offsets_per_batch(per_task: int, partitions: int, *, rate: float | None, cores: int, every_s: int = 0) -> int:
    """The most offsets of all partitions together that one batch reads.

    Without a rate it is one task for each partition. With the declared records a second it is `BACKLOG_S` of them, in
    more tasks of that size, so no task needs more memory. Few cores bound it: a task is about a second of one.

    A stream that begins a batch only each `every_s` must take in one what arrives meanwhile, and as much again of a
    backlog. Without a rate that is what the cores read in the interval.
    """
    least, work = per_task * partitions, per_task * cores
    if every_s:
        return max(least, int(every_s * (work if rate is None else min(2 * rate, work))))
    return least if rate is None else max(least, int(BACKLOG_S * min(rate, work)))


def shared_task(per_task: int, in_batch: int, cores: int) -> int:
    """The most offsets of a partition in one task, so that a full batch of a large topic has a task for each core."""
    return min(per_task, math.ceil(in_batch / cores))
