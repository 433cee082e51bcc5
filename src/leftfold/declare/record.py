"""The record of an event, as a consumer's handler sees it, and the exceptions that the handler may raise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Self

from leftfold.fold.durations import SECOND, Duration, micros


@dataclass(frozen=True, slots=True)
class Record:
    """The place of an event in the log. `attempt` counts from 1; `redriven` means that it was a dead letter before.

    `outcome` says how its time was judged: "late" and "future" records reach a consumer too.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    log_time: datetime
    outcome: Literal["accepted", "late", "future"] = "accepted"
    attempt: int = 1
    redriven: bool = False
    headers: Mapping[str, bytes | None] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The same text at every delivery of this record: the idempotency key of what a handler does elsewhere."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def fake(cls, topic: str = "test", partition: int = 0, offset: int = 0) -> Self:
        """Make a record for a unit test of a handler."""
        return cls(topic, partition, offset, None, datetime.now(UTC))


class Unprocessable(Exception):  # noqa: N818 # a handler says what the record is, not that it met an error
    """Raised by a handler: no attempt will ever succeed, so the record is a dead letter at once."""


class NotNow(Exception):  # noqa: N818 # a handler says when, not that it met an error
    """Raised by a handler: the record is handed over again after this time. It does not count as an attempt."""

    def __init__(self, after: Duration) -> None:
        super().__init__(f"not now, again after {after}")
        self.after_s = micros(after, option="NotNow") / SECOND
