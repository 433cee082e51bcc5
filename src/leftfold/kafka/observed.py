"""The state of a cluster at one moment: plain values that can be kept in a file and judged later, elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from pydantic import TypeAdapter

# A transaction ends with a marker. The marker takes an offset that a reader does not have to pass.
MARKER = 1


@dataclass(frozen=True)
class ObservedPartition:
    leader: int  # -1 if it has none
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int  # the first offset that it still holds; 0, like `end`, if it has no leader
    end: int  # the offset after the last replicated record
    size: int | None = None  # bytes of its largest copy; None if brokers do not report it


@dataclass(frozen=True)
class ObservedTopic:
    name: str
    id: str
    spread: tuple[ObservedPartition, ...]  # by partition number
    configs: dict[str, str]  # all that are in force, on whatever level they were set
    own: frozenset[str] = frozenset()  # the names of configs that were set on the topic itself

    @property
    def partitions(self) -> int:
        return len(self.spread)

    @property
    def replication(self) -> int:
        return min(len(p.replicas) for p in self.spread)

    @property
    def records(self) -> int:
        """The number of offsets that the topic holds: an upper bound of its records."""
        return sum(p.end - p.start for p in self.spread)

    @property
    def size(self) -> int | None:
        """Bytes of one copy of the topic; None if the size of any partition is unknown."""
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
    disks: tuple[ObservedDisk, ...] = ()  # empty if the broker does not report them


@dataclass(frozen=True)
class ObservedGroup:
    name: str
    state: str  # as Kafka names it: STABLE, EMPTY, …
    members: int
    owners: dict[str, int]  # topic -> number of members that read it
    positions: dict[str, dict[int, int]]  # committed offsets by topic and partition
    idle: int = 0  # members without any partition
    watched_s: int = 0  # seconds until its positions were read again; 0 if they were not
    # Partitions whose position had not moved then, although records wait: the log time (µs) of the first waiting
    # record.
    still: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedCluster:
    id: str
    seen_at: int  # µs
    brokers: tuple[ObservedBroker, ...]
    topics: dict[str, ObservedTopic]
    groups: dict[str, ObservedGroup] = field(default_factory=dict)

    def places(self, group: ObservedGroup) -> Iterator[tuple[str, int, int, ObservedPartition]]:
        """Yield topic name, partition number, position and partition for each position of a group."""
        for name, positions in group.positions.items():
            topic = self.topics.get(name)
            for number, at in positions.items() if topic is not None else ():
                if topic is not None and number < topic.partitions:
                    yield name, number, at, topic.spread[number]

    def lag(self, group: ObservedGroup) -> dict[str, int]:
        """Return a group's lag by topic, in offsets.

        The lag is the distance from the group's positions to the ends, over the partitions in which it has positions.
        """
        behind: dict[str, int] = {}
        for name, _, at, partition in self.places(group):
            behind[name] = behind.get(name, 0) + max(0, partition.end - at)
        return behind

    def unread(self, group: ObservedGroup) -> dict[str, dict[int, int]]:
        """Return the number of offsets after a group's position that still exist, by topic and partition.

        It leaves out a partition where the only such offset may be a transaction marker.
        """
        behind: dict[str, dict[int, int]] = {}
        for name, number, at, partition in self.places(group):
            if (left := partition.end - max(at, partition.start)) > MARKER:
                behind.setdefault(name, {})[number] = left
        return behind


def dump(cluster: ObservedCluster) -> bytes:
    return _adapter().dump_json(cluster)


def load(document: bytes) -> ObservedCluster:
    return _adapter().validate_json(document)


@cache
def _adapter() -> TypeAdapter[ObservedCluster]:
    return TypeAdapter(ObservedCluster)
