"""Names of the topics and tables that Leftfold keeps in addition to the declared topics.

Topic names here do not have the namespace yet. The companion topics are ours even if the declared topic is external:
they get the profile's namespace like every topic of the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.sinks import ARCHIVES, OUTCOMES, Changelog
from leftfold.declare.topic import Topic


def receipts_topic() -> str:
    """The topic of receipts, which say what each batch of each view did. All views of a namespace share it."""
    return "leftfold.receipts"


def definitions_topic() -> str:
    """The topic of definitions: what each build of each view meant, kept for ever. All views share it."""
    return "leftfold.definitions"


def late_topic(topic: str) -> str:
    """The topic for late records: they reached the log later than the topic's lateness after they happened."""
    return f"{topic}.late"


def rejects_topic(topic: str) -> str:
    """The dead-letter topic, for records that are not an event of the topic or are from the future."""
    return f"{topic}.rejects"


def redrive_topic(topic: str) -> str:
    """The topic for corrected records. Each one replaces a record of the log."""
    return f"{topic}.redrive"


def consumers_topic() -> str:
    """The topic of the consumers' notes: where each began, and whether it is paused."""
    return "leftfold.consumers"


def dead_topic(consumer: str) -> str:
    """The dead-letter topic of a consumer."""
    return f"{consumer}.dead"


def again_topic(consumer: str) -> str:
    """The topic of a consumer's re-driven dead letters, which its own group reads."""
    return f"{consumer}.again"


def changelog_topic(view: str) -> str:
    return f"{view}.changelog"


def archive_table(lake: str, topic: Topic[Any]) -> str | None:
    """The path of a topic's archive; None if it has none."""
    return f"{lake}/{ARCHIVES}/{topic.name}" if topic.archive else None


def outcomes_table(lake: str, outcome: str) -> str:
    """The path of the table with the closed rows of an outcome."""
    return f"{lake}/{OUTCOMES}/{outcome}"


def receipts_table(lake: str, view: str) -> str:
    """The path of the table with the older receipts of a view that has a lake."""
    return f"{lake}/{receipts_topic()}/{view}"


def of_topic(topic: Topic[Any]) -> tuple[str, ...]:
    """The companion topics of a topic.

    A compacted topic has only rejects: none of its records are late, and a correction is simply the key's next record.
    """
    if topic.compacted:
        return (rejects_topic(topic.name),)
    return late_topic(topic.name), rejects_topic(topic.name), redrive_topic(topic.name)


def has_changelog(view: DeclaredView) -> bool:
    return any(isinstance(sink, Changelog) for sink in view.sinks)


def companions_of(catalog: Catalog) -> Iterator[str]:
    """All companion topics of a project."""
    yield receipts_topic()
    if catalog.views:
        yield definitions_topic()
    for topic in catalog.topics.values():
        yield from of_topic(topic)
    for view in catalog.views.values():
        if has_changelog(view):
            yield changelog_topic(view.name)
    if catalog.consumers:
        yield consumers_topic()
    for consumer in catalog.consumers:
        yield from (dead_topic(consumer), again_topic(consumer))
