"""The names and clients that a consumer works with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leftfold.declare.topic import Topic
from leftfold.kafka.admin import Admin
from leftfold.kafka.consumer_log import ConsumerLog
from leftfold.kafka.group import LogPartition
from leftfold.kafka.registry import SchemaRegistry
from leftfold.settings import Kafka


@dataclass(frozen=True)
class ConsumerNames:
    """The names of a consumer's group and topics in the cluster."""

    group: str
    sources: Mapping[str, Topic[Any]]  # by the name in the cluster
    dead: str
    again: str
    to: str | None = None  # where returned events go


@dataclass(frozen=True)
class LogClients:
    """The clients that all consumers of a process share."""

    kafka: Kafka
    admin: Admin
    registry: SchemaRegistry
    notes: ConsumerLog

    def bounds(self, topics: Iterable[str]) -> dict[LogPartition, tuple[int, int]]:
        """Return the first offset and the end of each partition of these topics."""
        found: dict[LogPartition, tuple[int, int]] = {}
        for topic in topics:
            count = self.admin.partitions_of(topic)
            firsts, ends = self.admin.start_offsets(topic, count), self.admin.end_offsets(topic, count)
            found |= {LogPartition(topic, p): (firsts[p], ends[p]) for p in sorted(firsts)}
        return found
