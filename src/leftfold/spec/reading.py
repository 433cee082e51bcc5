"""What a view reads: one topic, several topics of one event, or a stream made of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leftfold.errors import DeclarationError, Source
from leftfold.fold.definition import Origin
from leftfold.spec.event import Event
from leftfold.spec.stream import Stream, check_topics
from leftfold.spec.topic import Topic


@dataclass(frozen=True)
class Reading:
    topics: tuple[Topic[Any], ...]
    event: type[Event]  # of the rows that the view folds
    stream: Stream | None = None

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(Origin(t.name, t.lateness, t.log_time) for t in self.topics)


def reading(name: str, of: Any, source: Source, *, compacted: bool = False) -> Reading:
    """`compacted` is what the view needs: a table the newest record of each key, an aggregation every record."""
    if isinstance(of, Stream):
        read = Reading(of.topics, of.event, of)
    else:
        topics = of if isinstance(of, tuple) else (of,)
        check_topics(name, topics, source)
        read = Reading(topics, topics[0].event)
    for topic in read.topics:
        if topic.compacted != compacted and not (compacted and read.stream):  # a table of a stream is refused as such
            raise DeclarationError(
                "topic-compacted" if topic.compacted else "topic-not-compacted",
                f"{name} reads topic {topic.name}, which is {'' if topic.compacted else 'not '}compacted",
                why="compaction deletes older records of a key, so an aggregate over them would change by itself"
                if topic.compacted
                else "a table is the newest record of each key, however old, and only compaction keeps that",
                fix="read it as a lf.Table, or declare a topic with retention"
                if topic.compacted
                else f"declare {topic.name} with compacted=True, or take lf.last of it in a lf.Features",
                source=source,
            )
    return read
