"""Decodes and judges the records of a topic, and makes events of those that a handler gets."""

from __future__ import annotations

from typing import Any, cast

from leftfold.declare.event import trusted
from leftfold.declare.topic import Topic
from leftfold.kafka.judge import RecordJudge
from leftfold.kafka.registry import SchemaRegistry


class EventJudge:
    """Decodes and judges the records of one topic, and makes events of them."""

    def __init__(self, topic: Topic[Any], registry: SchemaRegistry) -> None:
        self.first_log = topic.log_time == "header"
        self._judge = RecordJudge(topic, registry.schema)
        self._make = trusted(topic.event)

    def __call__(
        self, key: bytes | None, value: bytes | None, log_us: int, by_broker: bool
    ) -> tuple[Any, str, str | None]:
        """Return the event, its outcome and the reason. Without an event, the record is rejected."""
        fields, verdict = self._judge.record(key, value, log_us=log_us, by_broker=by_broker)
        if verdict is None:
            return self._make(cast("dict[str, Any]", fields)), "accepted", None
        if verdict.outcome == "rejected" or fields is None:
            return None, verdict.outcome, verdict.reason
        return self._make(fields), verdict.outcome, verdict.reason
