"""From moments to offsets. Time only finds them: from then on a replay knows offsets alone, and can be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leftfold.kafka.admin import Admin
from leftfold.ranges import Ranges
from leftfold.spark.source import Source

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

Offsets = dict[str, dict[int, int]]  # by topic and partition


@dataclass(frozen=True)
class Frozen:
    """Of every partition where it starts and ends, also where that is nothing."""

    topic: str
    starts: dict[int, int]
    ends: dict[int, int]

    @property
    def ranges(self) -> Ranges:
        return Ranges.between({self.topic: self.starts}, {self.topic: self.ends})


def frozen(admin: Admin, topic: str, partitions: int, *, start: int | None = None, end: int | None = None) -> Frozen:
    """What the log holds from the first record stamped at `start` or later, up to the first stamped at `end` or later.

    Moments in µs; None is all there is. Log times step back now and then, so a record that is older than `start` may
    follow, and one that is newer may come before it. Ends are those of ended transactions: nothing before them changes.
    """
    firsts, stable = admin.start_offsets(topic, partitions), admin.stable_offsets(topic, partitions)
    starts, ends = dict(firsts), dict(stable)
    if start is not None:
        found = admin.offsets_at(topic, partitions, start)
        starts = {p: stable[p] if at is None else max(at, firsts[p]) for p, at in found.items()}
    if end is not None:
        found = admin.offsets_at(topic, partitions, end)
        ends = {p: stable[p] if at is None else min(at, stable[p]) for p, at in found.items()}
    return Frozen(topic, starts, ends)


def frozen_history(
    session: SparkSession, admin: Admin, source: Source, *, start: int | None, end: int | None
) -> Frozen:
    """The same of a topic that is archived: what archive and log hold together."""
    from leftfold.spark.history import starts_since

    (topic,), (partitions,) = source.topics, source.partitions
    stable = admin.stable_offsets(topic, partitions)
    starts, ends = (starts_since(session, source, admin, moment)[0][topic] for moment in (start, end))
    return Frozen(
        topic,
        {p: min(at, stable[p]) for p, at in starts.items()},
        stable if end is None else {p: min(at, stable[p]) for p, at in ends.items()},
    )


def as_offsets(ranges: Ranges, topic: str, partitions: int) -> tuple[Offsets, Offsets]:
    """Starts and ends of every partition that the topic has, as a read wants them; nothing is read of one left out."""
    starts = dict.fromkeys(range(partitions), 0)
    ends = dict(starts)
    for r in ranges:
        starts[r.partition], ends[r.partition] = r.start, r.end
    return {topic: starts}, {topic: ends}
