"""Decides in Python whether one record is accepted, by the same rules and in the same order as Spark.

It is for records that a user looks at or re-drives. It is never in the path of a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.declare import reasons
from leftfold.declare.acceptance import Soundness, untimely
from leftfold.declare.event import fields_of
from leftfold.declare.features import FUTURE_TOLERANCE
from leftfold.declare.keys import longest_key
from leftfold.declare.topic import Topic
from leftfold.fold.definition import Key
from leftfold.fold.durations import SECOND
from leftfold.kafka.decode import Read, Schemas, avro_reader, json_reader


@dataclass(frozen=True)
class Judgement:
    """The reason why a record is not accepted."""

    outcome: str
    reason: str


Keyed = Sequence[tuple[Key, ...]]  # fields that records are keyed by: the topic's key, and the keys of its views


class RecordJudge:
    """Judges the records of one topic, under what is declared and registered now.

    `keyed` are all keys that are made of its events; by default the topic's own.
    """

    def __init__(self, topic: Topic[Any], schemas: Schemas, keyed: Keyed = ()) -> None:
        fields = fields_of(topic.event)
        self._topic = topic
        self._longest_key = longest_key(topic.rules)
        required = [field.name for field in fields.values() if not field.optional]
        self._soundness = Soundness(required, keyed or (topic.keys,), topic.rules)
        self._read: Read = (
            # Stricter than Spark in one point: Spark also accepts a number where text is declared.
            json_reader(topic.event, fields, text_of_all=False)
            if topic.format == "json"
            else avro_reader(topic.event, fields, schemas, bad_text="surrogateescape")
        )

    def record(
        self, key: bytes | None, value: bytes | None, *, log_us: int, by_broker: bool
    ) -> tuple[dict[str, Any] | None, Judgement | None]:
        """Return the fields of a record, if it can be decoded, and why it is not accepted, if so."""
        if key is not None and len(key) > self._longest_key:
            return None, _rejected(reasons.KEY_TOO_LONG)
        if value is None:
            return None, None if self._topic.compacted else _rejected(reasons.NO_VALUE)
        event = self._read(value)
        if isinstance(event, str):
            return None, _rejected(event)
        return event, self.fields(event, log_us=log_us, by_broker=by_broker)

    def fields(self, event: Mapping[str, Any], *, log_us: int, by_broker: bool) -> Judgement | None:
        """Return why an event is not accepted; None if it is.

        The event has the form that the algebra uses: plain values, times in microseconds.
        """
        topic = self._topic
        if topic.log_time != "producer" and not by_broker and not topic.compacted:
            return _rejected(reasons.NOT_BY_BROKER)
        if (unsound := self._soundness.flaw(event)) is not None:
            return _rejected(unsound)
        if topic.compacted or topic.time is None:  # only a compacted topic may have no time; nothing of it is late
            return None
        event_us = event[topic.time.name]
        outcome = untimely(event_us, log_us, lateness=topic.lateness, future=FUTURE_TOLERANCE)
        if outcome is None:
            return None
        text, us = (reasons.LATE, log_us - event_us) if outcome == "late" else (reasons.FUTURE, event_us - log_us)
        return Judgement(outcome, reasons.with_number(text, us // SECOND))


def _rejected(reason: str) -> Judgement:
    return Judgement("rejected", reason)
