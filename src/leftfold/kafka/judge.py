"""Decides in Python whether one record is accepted, by the same rules and in the same order as Spark.

It is for records that a user looks at or re-drives. It is never in the path of a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.declare import reasons
from leftfold.declare.acceptance import Soundness, plain_check, untimely
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
        self._longest_key = longest_key(topic.rules)
        self._compacted = topic.compacted
        self._by_broker_only = topic.log_time != "producer" and not topic.compacted
        # Only a compacted topic may have no time; nothing of it is late.
        self._time = None if topic.compacted or topic.time is None else topic.time.name
        self._lateness = topic.lateness
        required = [field.name for field in fields.values() if not field.optional]
        keys = keyed or (topic.keys,)
        self._flaw = Soundness(required, keys, topic.rules).flaw
        self._is_plain = plain_check(fields.values(), keys, topic.rules)
        self._read: Read = (
            # Stricter than Spark in one point: Spark also accepts a number where text is declared.
            json_reader(topic.event, fields, text_of_all=False)
            if topic.format == "json"
            else avro_reader(topic.event, fields, schemas, bad_text="surrogateescape")
        )

    def record(
        self, key: bytes | None, value: bytes | None, log_us: int, by_broker: bool
    ) -> tuple[dict[str, Any] | None, Judgement | None]:
        """Return the fields of a record, if it can be decoded, and why it is not accepted, if so."""
        if key is not None and len(key) > self._longest_key:
            return None, _rejected(reasons.KEY_TOO_LONG)
        if value is None:
            return None, None if self._compacted else _rejected(reasons.NO_VALUE)
        event = self._read(value)
        if isinstance(event, str):
            return None, _rejected(event)
        return event, self.fields(event, log_us, by_broker)

    def fields(self, event: Mapping[str, Any], log_us: int, by_broker: bool) -> Judgement | None:
        """Return why an event is not accepted; None if it is.

        The event has the form that the algebra uses: plain values, times in microseconds.
        """
        if self._by_broker_only and not by_broker:
            return _rejected(reasons.NOT_BY_BROKER)
        is_plain = self._is_plain is not None and self._is_plain(event)
        if not is_plain and (unsound := self._flaw(event)) is not None:
            return _rejected(unsound)
        if self._time is None:
            return None
        event_us = event[self._time]
        if event_us <= log_us and log_us - event_us <= self._lateness:
            return None
        outcome = untimely(event_us, log_us, lateness=self._lateness, future=FUTURE_TOLERANCE)
        if outcome is None:
            return None
        text, us = (reasons.LATE, log_us - event_us) if outcome == "late" else (reasons.FUTURE, event_us - log_us)
        return Judgement(outcome, reasons.with_number(text, us // SECOND))


def _rejected(reason: str) -> Judgement:
    return Judgement("rejected", reason)
