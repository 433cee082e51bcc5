"""Settings of topics and brokers as numbers, and who set them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from leftfold.kafka.observed import ObservedCluster, ObservedTopic
from leftfold.plan.hazards.wording import listed


def number(configs: Mapping[str, str], setting: str) -> int | None:
    """None if the brokers do not tell it: some services hide settings, and of those nothing is said."""
    value = configs.get(setting)
    return None if value is None else int(value)


def least(cluster: ObservedCluster, setting: str) -> int | None:
    """The lowest that any broker has."""
    return min((n for b in cluster.brokers if (n := number(b.configs, setting)) is not None), default=None)


def is_compacted(topic: ObservedTopic) -> bool:
    return "compact" in topic.configs.get("cleanup.policy", "delete")


def by_owner(topics: Iterable[ObservedTopic], setting: str) -> tuple[list[ObservedTopic], list[ObservedTopic]]:
    """Those on which it was set, and those that take it from the brokers: there one change mends them all."""
    own: list[ObservedTopic] = []
    inherited: list[ObservedTopic] = []
    for topic in topics:
        (own if setting in topic.own else inherited).append(topic)
    return own, inherited


def taken_from_brokers(topics: Sequence[ObservedTopic], setting: str) -> str:
    """They have one value, the brokers'."""
    take = "1 topic takes" if len(topics) == 1 else f"{len(topics):,} topics take"
    names = listed([topic.name for topic in topics])
    return f"{take} {setting}={topics[0].configs[setting]} from the brokers ({names})"


def of_a_tool(topic: ObservedTopic) -> bool:
    """By custom the name of a tool's own topic (a registry's, a monitor's): its readers know how it is kept."""
    return topic.name.startswith("_")
