"""Offset ranges as values: which records of which partitions. Pure arithmetic; other modules turn times into offsets.

A range is half open: it includes its start and excludes its end. Offsets may have holes (compaction, transaction
markers). So a range says where records may be, not how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Offsets = dict[str, dict[int, int]]  # by topic and partition
# A slot is one number for a partition of one of several topics: the topic's place in the list times this, plus the
# partition.
SLOTS_PER_TOPIC = 1 << 20


def later(some: Offsets, others: Offsets) -> Offsets:
    """The later offset of the two in every partition that either has."""
    return {
        topic: {
            p: max(some.get(topic, {}).get(p, 0), others.get(topic, {}).get(p, 0))
            for p in {**some.get(topic, {}), **others.get(topic, {})}
        }
        for topic in {**some, **others}
    }


@dataclass(frozen=True, order=True)
class Range:
    """The offsets of one partition from `start` to `end`, without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} {self.start:,}–{self.end - 1:,}"

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Ranges:
    """A set of offsets: ordered ranges that neither overlap nor touch. Equal sets are equal values."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Ranges:
        """Make a set from any ranges. Ranges that overlap or touch are joined; empty ranges are dropped."""
        joined: list[Range] = []
        for span in sorted(r for r in ranges if r.start < r.end):
            last = joined[-1] if joined else None
            if last and (last.topic, last.partition) == (span.topic, span.partition) and span.start <= last.end:
                joined[-1] = Range(last.topic, last.partition, last.start, max(last.end, span.end))
            else:
                joined.append(span)
        return cls(tuple(joined))

    @classmethod
    def between(cls, starts: Offsets, ends: Offsets) -> Ranges:
        """The offsets from `starts` up to `ends`. A partition that is missing in `starts` begins at 0."""
        return cls.of(
            Range(topic, partition, starts.get(topic, {}).get(partition, 0), end)
            for topic, parts in ends.items()
            for partition, end in parts.items()
        )

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    def __len__(self) -> int:
        """The number of offsets, not of ranges."""
        return sum(map(len, self.ranges))

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges.of((*self.ranges, *other.ranges))

    def __and__(self, other: Ranges) -> Ranges:
        return Ranges.of(
            Range(a.topic, a.partition, max(a.start, b.start), min(a.end, b.end))
            for a in self.ranges
            for b in other.ranges
            if (a.topic, a.partition) == (b.topic, b.partition)
        )

    def __sub__(self, other: Ranges) -> Ranges:
        left = list(self.ranges)
        for gone in other.ranges:
            left = [piece for r in left for piece in _without(r, gone)]
        return Ranges.of(left)

    def tiled(self, most: int) -> list[Range]:
        """Split the set into ordered pieces of at most `most` offsets that do not overlap."""
        if most < 1:
            raise ValueError(f"a tile holds at least one offset, not {most}")
        return [
            Range(r.topic, r.partition, start, min(start + most, r.end))
            for r in self.ranges
            for start in range(r.start, r.end, most)
        ]

    def as_json(self) -> dict[str, dict[str, list[list[int]]]]:
        by_topic: dict[str, dict[str, list[list[int]]]] = {}
        for r in self.ranges:
            by_topic.setdefault(r.topic, {}).setdefault(str(r.partition), []).append([r.start, r.end])
        return by_topic

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Ranges:
        return cls.of(
            Range(topic, int(partition), start, end)
            for topic, parts in document.items()
            for partition, spans in parts.items()
            for start, end in spans
        )


def _without(r: Range, gone: Range) -> Iterator[Range]:
    if (r.topic, r.partition) != (gone.topic, gone.partition) or gone.end <= r.start or r.end <= gone.start:
        yield r
        return
    if r.start < gone.start:
        yield Range(r.topic, r.partition, r.start, gone.start)
    if gone.end < r.end:
        yield Range(r.topic, r.partition, gone.end, r.end)
