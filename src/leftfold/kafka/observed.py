"""What a cluster looked like at one moment: plain values that can be kept in a file and judged later, elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from pydantic import TypeAdapter

# A transaction ends with a marker, which takes an offset that no reader needs to pass.
MARKER = 1


@dataclass(frozen=True)
class ObservedPartition:
    leader: int  # -1 if it has none
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int  # the first offset that it still has; 0, as the end, without a leader that could say
    end: int  # the offset after the last committed record
    size: int | None = None  # bytes of its largest copy; None if brokers would not say


@dataclass(frozen=True)
class ObservedTopic:
    name: str
    id: str
    spread: tuple[ObservedPartition, ...]  # by number
    configs: dict[str, str]  # in force, whoever set them
    own: frozenset[str] = frozenset()  # those of them that were set on the topic itself

    @property
    def partitions(self) -> int:
        return len(self.spread)

    @property
    def replication(self) -> int:
        return min(len(p.replicas) for p in self.spread)

    @property
    def records(self) -> int:
        """Offsets that it holds: an upper bound of its records."""
        return sum(p.end - p.start for p in self.spread)

    @property
    def size(self) -> int | None:
        """Bytes of one copy."""
        sizes = [p.size for p in self.spread]
        return None if None in sizes else sum(s for s in sizes if s is not None)


@dataclass(frozen=True)
class ObservedDisk:
    path: str
    total: int
    usable: int


@dataclass(frozen=True)
class ObservedBroker:
    id: int
    rack: str | None
    configs: dict[str, str]
    disks: tuple[ObservedDisk, ...] = ()  # empty if it would not say


@dataclass(frozen=True)
class ObservedGroup:
    name: str
    state: str  # as Kafka names it: STABLE, EMPTY, …
    members: int
    owners: dict[str, int]  # how many members read a topic
    positions: dict[str, dict[int, int]]  # committed offsets
    watched_s: int = 0  # how long after that its positions were looked at again; 0 if they were not
    # Where they were then the same, though records wait: the log time (µs) of the first that does, by partition.
    still: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedCluster:
    id: str
    seen_at: int  # µs
    brokers: tuple[ObservedBroker, ...]
    topics: dict[str, ObservedTopic]
    groups: dict[str, ObservedGroup] = field(default_factory=dict)

    def places(self, group: ObservedGroup) -> Iterator[tuple[str, int, int, ObservedPartition]]:
        """Topic, number, position and partition, wherever a group has a position."""
        for name, positions in group.positions.items():
            topic = self.topics.get(name)
            for number, at in positions.items() if topic is not None else ():
                if topic is not None and number < topic.partitions:
                    yield name, number, at, topic.spread[number]

    def lag(self, group: ObservedGroup) -> dict[str, int]:
        """Offsets between a group's positions and the ends of the partitions it has positions in, by topic."""
        behind: dict[str, int] = {}
        for name, _, at, partition in self.places(group):
            behind[name] = behind.get(name, 0) + max(0, partition.end - at)
        return behind

    def unread(self, group: ObservedGroup) -> dict[str, dict[int, int]]:
        """Offsets after its position that are still there, by topic and partition; not if they are only a marker."""
        behind: dict[str, dict[int, int]] = {}
        for name, number, at, partition in self.places(group):
            if (left := partition.end - max(at, partition.start)) > MARKER:
                behind.setdefault(name, {})[number] = left
        return behind


def dump(cluster: ObservedCluster) -> bytes:
    return _adapter().dump_json(cluster)


def load(kept: bytes) -> ObservedCluster:
    return _adapter().validate_json(kept)


@cache
def _adapter() -> TypeAdapter[ObservedCluster]:
    return TypeAdapter(ObservedCluster)
