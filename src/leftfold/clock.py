"""The only now(). Everything else takes times as arguments, so that it can be tested and replayed."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)


def now_us() -> int:
    """Microseconds since the epoch: the unit of every event time inside Leftfold."""
    return time.time_ns() // 1_000


def monotonic() -> float:
    """Seconds for measuring a duration; unrelated to the date."""
    return time.monotonic()
