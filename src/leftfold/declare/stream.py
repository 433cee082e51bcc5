"""Streams: a stateless function of DataFrames between topics and views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leftfold.declare.code import code_fingerprint
from leftfold.declare.event import Event, fields_of
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, SourceLine, caller

# The column in which a row of a stream keeps the position and time of the record that it was made from.
RECORD = "_record"


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows that a stateless function makes from single records: it filters, projects, explodes, or joins a small table.

    Each row has the event time of its record. Tests can call the stream with a plain DataFrame.
    """

    name: str
    topics: tuple[Topic[Any], ...]
    event: type[Event]
    time: str
    function: Callable[[Any], Any]
    fingerprint: str
    source: SourceLine

    def __call__(self, records: Any) -> Any:
        return self.function(records)


def stream(of: Topic[Any] | tuple[Topic[Any], ...], *, event: type[Event]) -> Callable[[Callable[[Any], Any]], Stream]:
    """Declare a function of DataFrames as a stream, which a view can take as `of=`. `event` is the type of its rows."""
    source = caller()
    topics = of if isinstance(of, tuple) else (of,)

    def decorate(function: Callable[[Any], Any]) -> Stream:
        check_topics(function.__name__, topics, source)
        time = topics[0].time
        known = fields_of(event).get(time.name) if time is not None else None
        if time is None or known is None or known.kind != "datetime":
            raise DeclarationError(
                "stream-time",
                f"{function.__name__} reads {topics[0].name}, which has no event time"
                if time is None
                else f"{function.__name__} gives {event.__name__}, which has no datetime field {time.name!r}",
                why="a row of a stream happened when its record happened, and keeps that time under its name",
                fix="read a topic with time=" if time is None else f"declare {time.name}: datetime in {event.__name__}",
                source=source,
            )
        name, code = function.__name__, code_fingerprint(function, source)
        return Stream(name, topics, event, time.name, function, code, source)

    return decorate


def check_topics(name: str, topics: tuple[Any, ...], source: SourceLine) -> None:
    if not topics or not all(isinstance(topic, Topic) for topic in topics):
        raise DeclarationError(
            "not-a-topic",
            f"{name} is declared of={topics[0] if len(topics) == 1 else topics!r}",
            why="a view is folded from the records of a topic, of several topics of one event, or of a stream",
            fix="pass a lf.Topic, a tuple of them, or a function under @lf.stream",
            source=source,
        )
    first = topics[0]
    for topic in topics[1:]:
        times = [t.time.name if t.time is not None else None for t in (first, topic)]
        if topic.event is not first.event or times[0] != times[1] or topic.format != first.format:
            raise DeclarationError(
                "topics-differ",
                f"{name} reads {first.name} and {topic.name}, which differ in event, time or format",
                why="several topics are read as one log of one event",
                fix="declare a view of each, and gather them in a lf.Vector",
                source=source,
            )
