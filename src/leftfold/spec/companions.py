"""Names of what Leftfold keeps beside the topics that a person declares. Topics are named before the namespace.

Ours also where the topic is somebody else's: they carry the profile's namespace like every topic of the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.spec.catalog import Catalog, DeclaredView
from leftfold.spec.sinks import ARCHIVES, Changelog
from leftfold.spec.topic import Topic


def receipts_topic() -> str:
    """What each batch of each view did; one for all views of a namespace."""
    return "leftfold.receipts"


def late_topic(topic: str) -> str:
    """Records that reached the log more than the topic's lateness after they happened."""
    return f"{topic}.late"


def rejects_topic(topic: str) -> str:
    """Records that are no event of the topic, or are from the future."""
    return f"{topic}.rejects"


def redrive_topic(topic: str) -> str:
    """Corrected records, each in the place of one in the log."""
    return f"{topic}.redrive"


def changelog_topic(view: str) -> str:
    return f"{view}.changelog"


def archive_table(lake: str, topic: Topic[Any]) -> str | None:
    """Where the archive of a topic is, if it has one."""
    return f"{lake}/{ARCHIVES}/{topic.name}" if topic.archive else None


def of_topic(topic: Topic[Any]) -> tuple[str, ...]:
    """Of a compacted topic nothing is late, and a correction is simply the key's next record."""
    if topic.compacted:
        return (rejects_topic(topic.name),)
    return late_topic(topic.name), rejects_topic(topic.name), redrive_topic(topic.name)


def has_changelog(view: DeclaredView) -> bool:
    return any(isinstance(sink, Changelog) for sink in view.sinks)


def companions_of(catalog: Catalog) -> Iterator[str]:
    """All of a project."""
    yield receipts_topic()
    for topic in catalog.topics.values():
        yield from of_topic(topic)
    for view in catalog.views.values():
        if has_changelog(view):
            yield changelog_topic(view.name)
