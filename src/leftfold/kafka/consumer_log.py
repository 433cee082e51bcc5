"""The consumers' own topic: where each began to read each partition, and whether it is paused.

Brokers forget the position of a group that was away for a week. Without the note of where it began, a consumer could
not tell this from a new group, and would begin again.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, ClassVar

from leftfold import clock
from leftfold.errors import LogError
from leftfold.fold.expressions import to_micros
from leftfold.kafka.document_log import DocumentLog
from leftfold.kafka.log_reader import scan

PAUSED = "paused"  # the key of a consumer's pause


def begun_key(topic_id: str, partition: int) -> str:
    return f"began/{topic_id}/{partition}"


def begun_note(topic: str, partition: int, *, of: int, offset: int) -> dict[str, Any]:
    """The note that a consumer began to read a partition at an offset. `of` is the topic's number of partitions."""
    return {"topic": topic, "partition": partition, "of": of, "offset": offset, "at": clock.now().isoformat()}


class ConsumerLog(DocumentLog):
    """The notes of all consumers of a namespace. The scope of a note is the consumer's name."""

    purpose: ClassVar[str] = "consumers note there where they began, and whether they are paused"

    def note(self, consumer: str, notes: dict[str, dict[str, Any] | None]) -> None:
        """Write notes; None removes one. Durable when this returns."""
        self.append(consumer, notes.items())

    def notes(self, consumer: str) -> dict[str, dict[str, Any]]:
        return {key: kept.document for key, kept in self.read(consumer).items()}

    def pauses(self) -> dict[str, int]:
        """Return since when each paused consumer is paused, µs."""
        since: dict[str, int] = {}
        for record in scan(self._kafka, self._topic, range(self._partitions)):
            consumer, _, key = (record.key or b"").decode().partition("/")
            if key == PAUSED:
                since.pop(consumer, None)
                if record.value is not None:
                    since[consumer] = to_micros(datetime.fromisoformat(json.loads(record.value)["since"]))
        return since

    def _not_written(self, scope: str, why: str) -> LogError:
        return LogError(
            "consumer-not-noted",
            f"a note of consumer {scope} was not acknowledged by {self._topic}",
            why=why,
            state="it may be in the topic or not; writing it again does no harm",
            fix="leftfold status shows whether the brokers run",
            retriable=True,
        )
