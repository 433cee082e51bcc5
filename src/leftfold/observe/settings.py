"""Settings of topics and brokers as numbers, and the owner of each setting: the topic or the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from leftfold.kafka.observed import ObservedCluster, ObservedTopic
from leftfold.units import listed


def number(configs: Mapping[str, str], setting: str) -> int | None:
    """A setting as a number; None if the brokers do not report it. Some services hide settings; rules then skip it."""
    value = configs.get(setting)
    return None if value is None else int(value)


def least(cluster: ObservedCluster, setting: str) -> int | None:
    """The lowest value that any broker has; None if no broker reports it."""
    return min((n for b in cluster.brokers if (n := number(b.configs, setting)) is not None), default=None)


def is_compacted(topic: ObservedTopic) -> bool:
    return "compact" in topic.configs.get("cleanup.policy", "delete")


def by_owner(topics: Iterable[ObservedTopic], setting: str) -> tuple[list[ObservedTopic], list[ObservedTopic]]:
    """Split topics into those that set the setting themselves, and those that take it from the brokers.

    For the latter, one change on the brokers fixes all topics.
    """
    own: list[ObservedTopic] = []
    inherited: list[ObservedTopic] = []
    for topic in topics:
        (own if setting in topic.own else inherited).append(topic)
    return own, inherited


def taken_from_brokers(topics: Sequence[ObservedTopic], setting: str) -> str:
    """The text about topics that take a setting from the brokers, and so share one value."""
    take = "1 topic takes" if len(topics) == 1 else f"{len(topics):,} topics take"
    names = listed([topic.name for topic in topics])
    return f"{take} {setting}={topics[0].configs[setting]} from the brokers ({names})"


def of_a_tool(topic: ObservedTopic) -> bool:
    """Return whether the topic belongs to a tool, such as a registry or a monitor.

    By custom, the name of such a topic begins with "_". The readers of such a topic know how it is kept.
    """
    return topic.name.startswith("_")


# The number of replicas that must have a record before it counts as written.


SETTING = "min.insync.replicas"


def in_sync_for(copies: int) -> int:
    """The min.insync.replicas for a topic with so many replicas. With two or more, writing survives one lost broker."""
    return max(1, copies - 1)


def reachable(wanted: int, topic: ObservedTopic) -> int:
    """`wanted`, or the highest value with which one broker that is down stops no writer, if that is lower.

    A topic that already has `wanted`, and enough replicas for it, keeps it, even if then all replicas must be in sync.
    A lower value would lose more.
    """
    if topic.configs.get(SETTING) == str(wanted) and wanted <= topic.replication:
        return wanted
    return min(wanted, in_sync_for(topic.replication))
