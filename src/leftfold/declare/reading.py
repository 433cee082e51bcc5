"""The input of a view: one topic, several topics of one event, or a stream made from topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leftfold.declare.event import Event
from leftfold.declare.stream import Stream, check_topics
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, SourceLine
from leftfold.fold.definition import Origin


@dataclass(frozen=True)
class Reading:
    topics: tuple[Topic[Any], ...]
    event: type[Event]  # the type of the rows that the view folds
    stream: Stream | None = None

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(Origin(t.name, t.lateness, t.log_time) for t in self.topics)


def reading(name: str, of: Any, source: SourceLine, *, compacted: bool = False) -> Reading:
    """Return the input of a view that was declared with `of`, and check it.

    `compacted` says what the view needs: a table needs a compacted topic, an aggregation needs every record.
    """
    if isinstance(of, Stream):
        read = Reading(of.topics, of.event, of)
    else:
        topics = of if isinstance(of, tuple) else (of,)
        check_topics(name, topics, source)
        read = Reading(topics, topics[0].event)
    for topic in read.topics:
        if topic.compacted != compacted and not (compacted and read.stream):  # a table refuses a stream itself
            raise DeclarationError(
                "topic-compacted" if topic.compacted else "topic-not-compacted",
                f"{name} reads topic {topic.name}, which is {'' if topic.compacted else 'not '}compacted",
                why="compaction deletes older records of a key, so an aggregate over them would change by itself"
                if topic.compacted
                else "a table is the newest record of each key, however old, and only compaction keeps it",
                fix="read it as a lf.Table, or declare a topic with retention"
                if topic.compacted
                else f"declare {topic.name} with compacted=True, or take lf.last of it in a lf.Features",
                source=source,
            )
    return read
