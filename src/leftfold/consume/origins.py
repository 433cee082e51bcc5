"""The origin of a record in flight: its place and time in the log, or those that it had before it was re-driven."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from leftfold.consume.lanes import Work
from leftfold.declare.first_log import header_of, log_time_of
from leftfold.declare.record import Record
from leftfold.fold.expressions import from_micros
from leftfold.kafka.dead_letters import DeadLetter, FirstPlace, RecordPlace, redriven_from
from leftfold.kafka.log_reader import headers_of

BY_BROKER = 2  # librdkafka's number for a timestamp that the broker set


class Origins:
    """Tells the origin of a consumer's records.

    `again` is the topic of its re-driven records. Records of the topics in `copied` may carry the log time of the log
    that they were copied from.
    """

    def __init__(self, again: str, copied: Collection[str]) -> None:
        self._again = again
        self._copied = copied

    def first(self, work: Work) -> FirstPlace | None:
        """Return what is known of a re-driven record; None for any other."""
        return redriven_from(work.message) if work.part.topic == self._again else None

    def place(self, work: Work) -> RecordPlace:
        """Return where the record was written first."""
        return _place(work, self.first(work))

    def log_time(self, message: Any, first: FirstPlace | None) -> tuple[int, bool]:
        """Return the log time of a record in microseconds, and whether a broker set it."""
        if first is not None:
            return first.log_us, first.by_broker
        kind, log_ms = message.timestamp()
        log_us, by_broker = log_ms * 1_000, kind == BY_BROKER
        if message.topic() not in self._copied:
            return log_us, by_broker
        return log_time_of(header_of(headers_of(message)), log_us, by_broker=by_broker)

    def record(self, work: Work) -> Record:
        """Return what a handler may ask about a record."""
        message, first = work.message, self.first(work)
        place = _place(work, first)
        headers = headers_of(message) if first is None else first.headers
        return Record(
            topic=place.topic,
            partition=place.partition,
            offset=place.offset,
            key=message.key(),
            log_time=from_micros(self.log_time(message, first)[0]),
            outcome=cast(Any, work.outcome),
            attempt=work.failures + 1 + (0 if first is None else first.attempts),
            redriven=first is not None,
            headers=dict(headers),
        )

    def letter(self, work: Work, outcome: str, reason: str) -> DeadLetter:
        """Return a record as a dead letter."""
        message, first = work.message, self.first(work)
        log_us, by_broker = self.log_time(message, first)
        return DeadLetter(
            place=_place(work, first),
            outcome=outcome,
            reason=reason,
            attempts=work.failures + (0 if first is None else first.attempts),
            log_us=log_us,
            by_broker=by_broker,
            key=message.key(),
            value=message.value(),
            headers=headers_of(message) if first is None else first.headers,
        )


def _place(work: Work, first: FirstPlace | None) -> RecordPlace:
    return RecordPlace(work.part.topic, work.part.partition, work.offset) if first is None else first.place
