"""The time for which the log keeps a topic's records, and the text for such a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.declare.topic import Topic
from leftfold.fold.durations import SECOND
from leftfold.hazards.hazard import Facts
from leftfold.kafka.observed import ObservedTopic

DAY = 86_400 * SECOND
FOR_EVER = 36_500 * DAY  # a declaration cannot say "for ever", so a hundred years stand for it


def foreign(facts: Facts, topic: Topic[Any]) -> bool:
    """Return whether somebody else configures the topic. Then the observed settings hold, not the declared ones."""
    return topic.external or facts.profile.topics == "checked"


def managed(facts: Facts) -> Iterator[tuple[Topic[Any], ObservedTopic]]:
    """Yield the topics that exist and that Leftfold configures."""
    for topic in facts.catalog.topics.values():
        if (observed := facts.found(topic)) is not None and not foreign(facts, topic):
            yield topic, observed


def retention_of(facts: Facts, topic: Topic[Any]) -> int | None:
    """The µs for which the topic keeps its records; None if for ever, or if another owner's topic was not found."""
    if topic.compacted:
        return None
    if not foreign(facts, topic):
        return topic.retention
    observed = facts.found(topic)
    return None if observed is None else retention(observed)


def retention(topic: ObservedTopic) -> int | None:
    """The retention in force, in µs; None if for ever."""
    return _micros(topic.configs.get("retention.ms", "-1"))


def tombstones(topic: ObservedTopic) -> int | None:
    """The time in µs for which a compacted topic keeps a tombstone; None if the brokers do not report it."""
    return _micros(topic.configs.get("delete.retention.ms", "-1"))


def _micros(milliseconds: str) -> int | None:
    return None if int(milliseconds) < 0 else int(milliseconds) * 1_000


def keep_longer(facts: Facts, topic: Topic[Any], us: int) -> str:
    """The advice that makes a topic keep its records for at least `us`."""
    days = -(-us // DAY)
    if foreign(facts, topic):
        return f"ask the owner of {facts.name(topic)} for retention.ms={days * DAY // 1_000} ({days}d)"
    return f'declare retention="{days}d" for {topic.name}'


def keep_all(facts: Facts, topic: Topic[Any]) -> str:
    if foreign(facts, topic):
        return f"ask the owner of {facts.name(topic)} for retention.ms=-1"
    return f'declare retention="{FOR_EVER // DAY}d" for {topic.name} (a hundred years)'
