"""The first log time of a record that was copied: a header, believed only on topics that declare log_time="header".

Pure, and the rule itself: spark/source.py says the same in Catalyst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from leftfold.fold.durations import SECOND

HEADER = "leftfold.log_time"  # microseconds, in decimal
# Of a record whose log time could not be believed where it was copied from: nor can it be here.
UNKNOWN = b"unknown"
DIGITS = "[0-9]{1,18}"  # a moment that fits 64 bits
# A record cannot have reached its first log after this one. Brokers' clocks agree within a minute.
AHEAD = 60 * SECOND


def header_of(headers: Iterable[tuple[str, bytes | None]] | None) -> bytes | None:
    """The last of that name, as Kafka's own clients have it; None if there is none."""
    found = [value or b"" for name, value in headers or () if name == HEADER]
    return found[-1] if found else None


def log_time_of(header: bytes | None, log_us: int, *, by_broker: bool) -> tuple[int, bool]:
    """The record's log time, and whether it is to be believed, of a record that this log's broker stamped `log_us`."""
    if header is None:
        return log_us, by_broker
    if by_broker and re.fullmatch(DIGITS.encode(), header) and int(header) <= log_us + AHEAD:
        return int(header), True
    return log_us, False
