"""What becomes of one record, judged in Python by the rules and in the order that Spark uses.

For the few records that a person looks at or re-drives; never in the path of a view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leftfold.fold.expressions import evaluate
from leftfold.kafka.decode import Schemas, avro_reader, json_reader
from leftfold.spec import reasons
from leftfold.spec.event import EventField, fields_of
from leftfold.spec.features import FUTURE_TOLERANCE
from leftfold.spec.topic import Topic


@dataclass(frozen=True)
class Verdict:
    """Why a record is not accepted."""

    outcome: str
    reason: str


def judged_bytes(
    topic: Topic[Any], value: bytes | None, schemas: Schemas, *, log_us: int, by_broker: bool
) -> Verdict | None:
    """None if the record is accepted under what is declared and registered now."""
    if value is None:
        return _rejected(reasons.NO_VALUE)
    everything = fields_of(topic.event)
    if topic.format == "json":
        # Stricter than Spark in one point: Spark reads a number where text is declared.
        read = json_reader(topic.event, everything, text_of_all=False)(value)
    else:
        read = avro_reader(topic.event, everything, schemas, bad_text="surrogateescape")(value)
    if isinstance(read, str):
        return _rejected(read)
    return judged_fields(topic, read, log_us=log_us, by_broker=by_broker)


def judged_fields(topic: Topic[Any], event: Mapping[str, Any], *, log_us: int, by_broker: bool) -> Verdict | None:
    """The same of an event as the algebra sees it: plain values, times in microseconds."""
    if topic.log_time != "producer" and not by_broker:
        return _rejected(reasons.NOT_BY_BROKER)
    fields = fields_of(topic.event).values()
    for field in fields:
        if not field.optional and event[field.name] is None:
            return _rejected(reasons.MISSING.format(field=field.name))
    for field in sorted(fields, key=lambda f: f.name):
        if (flaw := _unsound(field, event[field.name])) is not None:
            return _rejected(flaw)
    for field in fields:
        for rule in field.rules:
            if evaluate(rule, event) is False:
                return _rejected(reasons.BROKEN.format(rule=reasons.rule_text(rule)))
    return _timely(topic, event, log_us)


def _timely(topic: Topic[Any], event: Mapping[str, Any], log_us: int) -> Verdict | None:
    assert topic.time is not None, "only a compacted topic has no time, and nothing of it is late"
    ahead = event[topic.time.name] - log_us
    if ahead < -topic.lateness:
        return Verdict("late", reasons.with_number(reasons.LATE, -ahead // 1_000_000))
    if ahead > FUTURE_TOLERANCE:
        return Verdict("future", reasons.with_number(reasons.FUTURE, ahead // 1_000_000))
    return None


def _rejected(reason: str) -> Verdict:
    return Verdict("rejected", reason)


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
