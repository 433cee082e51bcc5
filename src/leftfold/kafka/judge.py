"""Decides in Python whether one record is accepted, by the same rules and in the same order as Spark.

It is for the few records that a user looks at or re-drives. It is never in the path of a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.declare import reasons
from leftfold.declare.acceptance import flaw, untimely
from leftfold.declare.event import fields_of
from leftfold.declare.features import FUTURE_TOLERANCE
from leftfold.declare.keys import longest_key
from leftfold.declare.topic import Topic
from leftfold.fold.definition import Key
from leftfold.kafka.decode import Schemas, avro_reader, json_reader


@dataclass(frozen=True)
class Judgement:
    """The reason why a record is not accepted."""

    outcome: str
    reason: str


Keyed = Sequence[tuple[Key, ...]]  # fields that records are keyed by: the topic's key, and the keys of its views


def judged_bytes(
    topic: Topic[Any],
    value: bytes | None,
    schemas: Schemas,
    *,
    log_us: int,
    by_broker: bool,
    key: bytes | None = None,
    keyed: Keyed = (),
) -> Judgement | None:
    """Return why a record is not accepted; None if it is, under what is declared and registered now.

    `key` is the record's own key.
    """
    if key is not None and len(key) > longest_key(topic.rules):
        return _rejected(reasons.KEY_TOO_LONG)
    if value is None:
        return _rejected(reasons.NO_VALUE)
    everything = fields_of(topic.event)
    if topic.format == "json":
        # Stricter than Spark in one point: Spark also accepts a number where text is declared.
        read = json_reader(topic.event, everything, text_of_all=False)(value)
    else:
        read = avro_reader(topic.event, everything, schemas, bad_text="surrogateescape")(value)
    if isinstance(read, str):
        return _rejected(read)
    return judged_fields(topic, read, log_us=log_us, by_broker=by_broker, keyed=keyed)


def judged_fields(
    topic: Topic[Any], event: Mapping[str, Any], *, log_us: int, by_broker: bool, keyed: Keyed = ()
) -> Judgement | None:
    """Return why an event is not accepted; None if it is.

    The event has the form that the algebra uses: plain values, times in microseconds.
    """
    if topic.log_time != "producer" and not by_broker:
        return _rejected(reasons.NOT_BY_BROKER)
    unsound = flaw(
        event,
        required=[field.name for field in fields_of(topic.event).values() if not field.optional],
        keys=keyed or (topic.keys,),
        rules=topic.rules,
    )
    if unsound is not None:
        return _rejected(unsound)
    assert topic.time is not None, "only a compacted topic has no time, and nothing of it is late"
    ahead = event[topic.time.name] - log_us
    match untimely(event[topic.time.name], log_us, lateness=topic.lateness, future=FUTURE_TOLERANCE):
        case "late":
            return Judgement("late", reasons.with_number(reasons.LATE, -ahead // 1_000_000))
        case "future":
            return Judgement("future", reasons.with_number(reasons.FUTURE, ahead // 1_000_000))
    return None


def _rejected(reason: str) -> Judgement:
    return Judgement("rejected", reason)
