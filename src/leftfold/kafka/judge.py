"""Decides in Python whether one record is accepted, by the same rules and in the same order as Spark.

It is for records that a user looks at or re-drives, and for small work on history. It is never in the path of a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.declare import reasons
from leftfold.declare.acceptance import ACCEPTED, Soundness, plain_check, untimely
from leftfold.declare.event import EventField, fields_of
from leftfold.declare.features import FUTURE_TOLERANCE
from leftfold.declare.keys import longest_key
from leftfold.declare.topic import Topic
from leftfold.fold.definition import Definition, Key, Origin
from leftfold.fold.durations import SECOND
from leftfold.fold.expressions import fields_of as fields_in
from leftfold.fold.latest import Latest
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


class ViewJudge:
    """Judges the records of one topic as a view does: by the fields that the view reads.

    `fields` are those that were decoded. If they are given, an event that is certainly sound is seen at once.
    """

    def __init__(
        self, definition: Definition | Latest, origin: Origin, fields: Mapping[str, EventField] | None = None
    ) -> None:
        keys, rules = [definition.keys], definition.rules
        names = [key.name for key in definition.keys]
        self._time = definition.time if isinstance(definition, Definition) else None
        self._longest_key, self._longest_deleted = longest_key(rules), longest_key(rules, names)
        judged = {*definition.judged(), *names, *(n for rule in rules for n in fields_in(rule))}
        self._judged = judged if self._time is None else judged | {self._time}
        self._flaw = Soundness(names if self._time is None else [*names, self._time], keys, rules).flaw
        self._is_plain = None if fields is None else plain_check(fields.values(), keys, rules)
        self._by_broker_only = self._time is not None and origin.log_time != "producer"
        self._lateness = origin.lateness
        self._future = definition.future if isinstance(definition, Definition) else 0

    def deletes(self, key: bytes | None) -> bool:
        """Return whether a record without a value deletes a row of a table."""
        return len(key or b"") <= self._longest_deleted

    def outcome(self, event: Mapping[str, Any] | None, key: bytes | None, log_us: int, by_broker: bool) -> str:
        """Return the outcome of a record. `event` are its decoded fields; None if it could not be decoded."""
        if event is None or (key is not None and len(key) > self._longest_key):
            return "rejected"
        if (self._is_plain is None or not self._is_plain(event)) and self._flaw(
            {name: value for name, value in event.items() if name in self._judged}
        ) is not None:
            return "rejected"
        if self._time is None:
            return ACCEPTED
        if self._by_broker_only and not by_broker:
            return "rejected"
        event_us = event[self._time]
        if event_us <= log_us and log_us - event_us <= self._lateness:
            return ACCEPTED
        return untimely(event_us, log_us, lateness=self._lateness, future=self._future) or ACCEPTED


def _rejected(reason: str) -> Judgement:
    return Judgement("rejected", reason)
