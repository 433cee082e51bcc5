"""How long the log keeps what a topic holds, and how such spans are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.fold.durations import SECOND
from leftfold.kafka.observed import ObservedTopic
from leftfold.plan.hazards.facts import Facts
from leftfold.spec.topic import Topic

DAY = 86_400 * SECOND
FOR_EVER = 36_500 * DAY  # a declaration has no word for it; nobody waits for the end of a hundred years
_UNITS = (("d", DAY), ("h", 3_600 * SECOND), ("m", 60 * SECOND), ("s", SECOND), ("ms", 1_000))


def foreign(facts: Facts, topic: Topic[Any]) -> bool:
    """Whether somebody else configures it: then what is found holds, not what is declared."""
    return topic.external or facts.profile.topics == "checked"


def managed(facts: Facts) -> Iterator[tuple[Topic[Any], ObservedTopic]]:
    """Topics of ours that are there."""
    for topic in facts.catalog.topics.values():
        if (found := facts.found(topic)) is not None and not foreign(facts, topic):
            yield topic, found


def kept(facts: Facts, topic: Topic[Any]) -> int | None:
    """µs for which its records stay; None if that is for ever, or for who owns it to say."""
    if topic.compacted:
        return None
    if not foreign(facts, topic):
        return topic.retention
    found = facts.found(topic)
    return None if found is None else retention(found)


def retention(found: ObservedTopic) -> int | None:
    """As it is in force, in µs; None for ever."""
    return _micros(found.configs.get("retention.ms", "-1"))


def tombstones(found: ObservedTopic) -> int | None:
    """How long a deletion can be read of a compacted topic, in µs; None if it was not told."""
    return _micros(found.configs.get("delete.retention.ms", "-1"))


def _micros(milliseconds: str) -> int | None:
    return None if int(milliseconds) < 0 else int(milliseconds) * 1_000


def spoken(us: int) -> str:
    """All of it, in the units people say: "7d 3h 2m"."""
    parts = []
    for name, unit in _UNITS:
        number, us = divmod(us, unit)
        if number:
            parts.append(f"{number}{name}")
    return " ".join(parts) or "nothing"


def keep_longer(facts: Facts, topic: Topic[Any], us: int) -> str:
    """What to do so that a topic keeps its records for at least so long."""
    days = -(-us // DAY)
    if foreign(facts, topic):
        return f"ask the owner of {facts.name(topic)} for retention.ms={days * DAY // 1_000} ({days}d)"
    return f'declare retention="{days}d" for {topic.name}'


def keep_all(facts: Facts, topic: Topic[Any]) -> str:
    if foreign(facts, topic):
        return f"ask the owner of {facts.name(topic)} for retention.ms=-1"
    return f'declare retention="{FOR_EVER // DAY}d" for {topic.name} (a hundred years)'
