"""The only source of the current time. All other code takes times as arguments, so it can be tested and replayed."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)


def now_us() -> int:
    """The current time in microseconds since the epoch: the unit of every event time inside Leftfold."""
    return time.time_ns() // 1_000


def monotonic() -> float:
    """Seconds of a monotonic clock, for measuring durations; unrelated to the date."""
    return time.monotonic()
