"""The outcome of a sent record: *acknowledged*, *failed* (not in the log) or *unknown* (it may be in the log).

librdkafka knows the outcome of every message (`rd_kafka_message_status`), but its Python client does not pass it on. So
this module derives it from the error and from whether the record had a partition. In doubt the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import KafkaError, Message

Outcome = Literal["failed", "unknown"]
OnFailure = Callable[[Outcome], None]

# A broker gives these answers before it writes, and librdkafka does not retry after them. If a record has a partition,
# every other error leaves open what an earlier attempt did: timeouts, lost connections, too few replicas after the
# append, purges (a retry waits in the same queue as records that never left), or a producer id that the broker does not
# know. Even a timeout in the queue may belong to a retry. One case remains wrong: an answer was lost, and before the
# retry the right to write was taken away or a limit was lowered. Only librdkafka knows that it was a retry.
_REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,  # another record of its batch was invalid
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_NAMED = 5


def outcome_of(error: KafkaError, message: Message) -> Outcome:
    """Return the outcome of a record whose delivery report has an error.

    A record that was never assigned to a partition never left this process.
    """
    return "failed" if message.partition() is None or error.code() in _REFUSED else "unknown"


@dataclass
class Few:
    """The number of records with one outcome, their first error, and the keys of the first five."""

    records: int = 0
    error: KafkaError | None = None
    keys: list[str] = field(default_factory=list)

    def add(self, error: KafkaError, key: bytes | None) -> None:
        self.records += 1
        self.error = self.error or error
        if len(self.keys) < _NAMED:
            self.keys.append((key or b"").decode(errors="replace"))

    @property
    def reason(self) -> str:
        return "" if self.error is None else self.error.str()

    def __str__(self) -> str:
        more = " …" if self.records > len(self.keys) else ""
        return ", ".join(map(repr, self.keys)) + more


class Undelivered:
    """The records that were not acknowledged. It needs the same memory for one record as for a million."""

    def __init__(self) -> None:
        self.failed = Few()
        self.unknown = Few()

    def __len__(self) -> int:
        return self.failed.records + self.unknown.records

    def report(self, error: KafkaError | None, message: Message, on_failure: OnFailure | None = None) -> None:
        """Count a delivery report. It is the client's `on_delivery` callback."""
        if error is None:
            return
        outcome = outcome_of(error, message)
        key: Any = message.key()  # as the caller gave it: bytes or None
        (self.failed if outcome == "failed" else self.unknown).add(error, key)
        if on_failure is not None:
            on_failure(outcome)
