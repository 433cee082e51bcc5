"""The status of topics: where each partition is, which offsets it holds, its size and its rate. Read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from leftfold.kafka.admin import Admin
from leftfold.kafka.observe import RATE_S, observe_topics, records_since
from leftfold.kafka.observed import ObservedTopic
from leftfold.observe.durability import Durability, durability_of
from leftfold.settings import Kafka
from leftfold.units import size, spoken


@dataclass(frozen=True)
class PartitionStatus:
    partition: int
    leader: int | None  # None: no in-sync replica is alive, and the partition cannot be read or written
    replicas: tuple[int, ...]  # brokers; the first one is the preferred leader
    in_sync: tuple[int, ...]
    first: int  # the oldest offset that is still there
    end: int  # the high-water mark: the offset that the next readable record gets
    bytes: int | None  # of one copy; None if brokers do not report it
    rate: float  # offsets per second, over the last minute


@dataclass(frozen=True)
class TopicStatus:
    topic: str  # its name in the cluster
    declared: str | None  # the declaration's name; None if the project does not declare it
    id: str
    kept: str
    durability: Durability
    offsets: int  # the number of offsets that are held: an upper bound of its records
    bytes: int | None  # of one copy; None if brokers do not report it
    partitions: tuple[PartitionStatus, ...]

    @property
    def rate(self) -> float:
        return sum(p.rate for p in self.partitions)

    @property
    def short_of_replicas(self) -> int:
        """The number of partitions of which a replica is not in sync."""
        return sum(len(p.in_sync) < len(p.replicas) for p in self.partitions)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "durability": self.durability.as_json(), "rate": self.rate}


def topic_statuses(
    kafka: Kafka, admin: Admin, names: list[str] | None, declared: Mapping[str, str]
) -> list[TopicStatus]:
    """Return the status of the topics in `names` that exist, or of all topics but Kafka's own, by name.

    `declared` gives the declaration's name for a name in the cluster.
    """
    topics = observe_topics(admin, kafka, names)
    recent = records_since(admin, topics.values(), RATE_S)
    return [_status(topic, recent, declared.get(name)) for name, topic in sorted(topics.items())]


def _status(topic: ObservedTopic, recent: Mapping[tuple[str, int], int], declared: str | None) -> TopicStatus:
    partitions = tuple(
        PartitionStatus(
            number,
            part.leader if part.leader >= 0 else None,
            part.replicas,
            part.in_sync,
            part.start,
            part.end,
            part.size,
            recent.get((topic.name, number), 0) / RATE_S,
        )
        for number, part in enumerate(topic.spread)
    )
    kept, durability = _kept(topic.configs), durability_of(topic)
    return TopicStatus(topic.name, declared, topic.id, kept, durability, topic.records, topic.size, partitions)


def _kept(configs: Mapping[str, str]) -> str:
    """Describe how long records are kept, as the settings say: by time, by size, the newest of each key."""
    policy = configs.get("cleanup.policy", "delete")
    parts = ["the newest record of each key"] if "compact" in policy else []
    if "delete" in policy:
        longest_ms, most = int(configs.get("retention.ms", "-1")), int(configs.get("retention.bytes", "-1"))
        parts.append("for ever" if longest_ms < 0 else spoken(longest_ms * 1_000))
        parts += [f"at most {size(most)} a partition"] if most >= 0 else []
    return ", ".join(parts)
