"""Durations: as users write them ("10m", "7d"), and as whole microseconds, the unit inside Leftfold."""

from __future__ import annotations

import re
from datetime import timedelta

from leftfold.errors import DeclarationError, SourceLine

SECOND = 1_000_000
_UNITS = {"ms": 1_000, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")

Duration = str | timedelta


def micros(value: Duration, *, option: str, source: SourceLine | None = None) -> int:
    """Convert a duration to microseconds. `option` is the name of the option being set, for the error message."""
    if isinstance(value, timedelta):
        result = value // timedelta(microseconds=1)
    elif isinstance(value, str) and (match := _TEXT.fullmatch(value.strip().lower())):
        result = round(float(match[1]) * _UNITS[match[2]])
    else:
        raise DeclarationError(
            "bad-duration",
            f"{option}={value!r} is not a duration",
            why="a duration is a number and one of ms, s, m, h, d, or a datetime.timedelta",
            fix=f'write for example {option}="10m"',
            source=source,
        )
    if result <= 0:
        raise DeclarationError(
            "duration-not-positive",
            f"{option} must be greater than 0, and is {value!r}",
            why="no event happens within a time of 0 or less",
            fix=f'write for example {option}="10m"',
            source=source,
        )
    return result


def text(us: int) -> str:
    """The duration as text, in the largest unit that divides it evenly. It parses back to the same duration."""
    for unit in ("d", "h", "m", "s", "ms"):
        if us % _UNITS[unit] == 0:
            return f"{us // _UNITS[unit]}{unit}"
    return f"{us / 1_000}ms"
