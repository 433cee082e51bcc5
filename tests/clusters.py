"""Clusters as they might be observed, written down by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leftfold.kafka.observed import ObservedBroker, ObservedCluster, ObservedGroup, ObservedPartition, ObservedTopic
from leftfold.observe.observation import Observed, ObservedSubject


def seen_topic(
    name: str,
    partitions: int = 6,
    replicas: int = 3,
    configs: Mapping[str, str] | None = None,
    *,
    records: int = 0,
    size: int = 0,
    in_sync: int | None = None,
) -> ObservedTopic:
    """`records` and `size` (bytes of one copy) are spread evenly; leaders go round."""
    spread = []
    for number in range(partitions):
        copies = tuple((number + i) % max(3, replicas) + 1 for i in range(replicas))
        kept = copies if in_sync is None else copies[:in_sync]
        end = records // partitions
        spread.append(ObservedPartition(copies[0], copies, kept, 0, end, size // partitions))
    return ObservedTopic(name, f"id-of-{name}", tuple(spread), dict(configs or {}))


def seen_cluster(
    *topics: ObservedTopic, brokers: int = 3, groups: tuple[ObservedGroup, ...] = (), **configs: Any
) -> ObservedCluster:
    """`configs` are of every broker, with _ for a dot."""
    named = {name.replace("_", "."): str(value) for name, value in configs.items()}
    return ObservedCluster(
        id="c",
        seen_at=1_790_000_000_000_000,
        brokers=tuple(ObservedBroker(number + 1, None, named) for number in range(brokers)),
        topics={topic.name: topic for topic in topics},
        groups={group.name: group for group in groups},
    )


def seen(brokers: int, topics: Mapping[str, ObservedTopic], subjects: Mapping[str, ObservedSubject]) -> Observed:
    return Observed(seen_cluster(*topics.values(), brokers=brokers), dict(subjects))
