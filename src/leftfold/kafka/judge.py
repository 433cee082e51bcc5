"""Decides in Python whether one record is accepted, by the same rules and in the same order as Spark.

It is for the few records that a user looks at or re-drives. It is never in the path of a view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.declare import reasons
from leftfold.declare.event import EventField, fields_of
from leftfold.declare.features import FUTURE_TOLERANCE
from leftfold.declare.keys import longest_key
from leftfold.declare.topic import Topic
from leftfold.fold.definition import Key
from leftfold.fold.expressions import evaluate
from leftfold.fold.values import entity_text
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
    fields = fields_of(topic.event).values()
    for field in fields:
        if not field.optional and event[field.name] is None:
            return _rejected(reasons.MISSING.format(field=field.name))
    for field in sorted(fields, key=lambda f: f.name):
        if (flaw := _unsound(field, event[field.name])) is not None:
            return _rejected(flaw)
    for keys in keyed or (topic.keys,):
        names = [k.name for k in keys]
        if len(entity_text([event[name] for name in names]).encode()) > longest_key(topic.rules, names):
            return _rejected(reasons.KEY_TOO_LONG)
    for rule in topic.rules:
        if evaluate(rule, event) is False:
            return _rejected(reasons.BROKEN.format(rule=reasons.rule_text(rule)))
    return _timely(topic, event, log_us)


def _timely(topic: Topic[Any], event: Mapping[str, Any], log_us: int) -> Judgement | None:
    assert topic.time is not None, "only a compacted topic has no time, and nothing of it is late"
    ahead = event[topic.time.name] - log_us
    if ahead < -topic.lateness:
        return Judgement("late", reasons.with_number(reasons.LATE, -ahead // 1_000_000))
    if ahead > FUTURE_TOLERANCE:
        return Judgement("future", reasons.with_number(reasons.FUTURE, ahead // 1_000_000))
    return None


def _rejected(reason: str) -> Judgement:
    return Judgement("rejected", reason)


def _unsound(field: EventField, value: Any) -> str | None:
    if field.repeated or value is None:
        return None
    if field.kind == "string" and not _is_utf8(value):
        return reasons.NOT_UTF8.format(field=field.name)
    if field.kind == "float" and not math.isfinite(value):
        return reasons.NOT_FINITE.format(field=field.name)
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
