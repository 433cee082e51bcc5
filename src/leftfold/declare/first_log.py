"""The first log time of a copied record, kept in a header. Only topics with log_time="header" believe the header.

Pure Python. It is the reference for this rule; spark/source.py implements the same rule in Catalyst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from leftfold.fold.durations import SECOND

HEADER = "leftfold.log_time"  # microseconds, as decimal digits
# The header's value if the log time could not be believed in the source topic. So it cannot be believed here either.
UNKNOWN = b"unknown"
DIGITS = "[0-9]{1,18}"  # a moment that fits 64 bits
# A record cannot have reached its first log after this log. The clocks of brokers agree within a minute.
AHEAD = 60 * SECOND


def header_of(headers: Iterable[tuple[str, bytes | None]] | None) -> bytes | None:
    """The value of the last header of that name, as Kafka's own clients choose it; None if there is none."""
    values = [value or b"" for name, value in headers or () if name == HEADER]
    return values[-1] if values else None


def log_time_of(header: bytes | None, log_us: int, *, by_broker: bool) -> tuple[int, bool]:
    """Return the log time of a record, and whether it can be believed.

    `log_us` is the record's time stamp in this log. `by_broker` says that a broker set it, not the producer.
    """
    if header is None:
        return log_us, by_broker
    if by_broker and re.fullmatch(DIGITS.encode(), header) and int(header) <= log_us + AHEAD:
        return int(header), True
    return log_us, False
