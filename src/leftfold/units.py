"""Formats counts, lists, shares, durations and sizes for the texts that users read.

The durations that users write, and their exact form, are in `fold/durations.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from leftfold.fold.durations import SECOND

_CLOCK = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_EXACT = (*((name, seconds * SECOND) for name, seconds in _CLOCK), ("ms", 1_000))
# Decimal units, as disks and networks are sold.
_BYTES = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES = (("d", 86_400), ("h", 3_600), ("min", 60))
_SHOWN = 3  # names shown of a list; the others are only counted


def counted(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")


def percent(share: float) -> str:
    return f"{100 * share:.3g}%" if share >= 0.001 else "under 0.1%"


def rough(us: int) -> str:
    """A duration as rounded text, in the largest of d, h and m that fits at least twice, else in seconds."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if us >= 2 * length * SECOND:
            return f"{us / SECOND / length:.0f} {unit}"
    return f"{us / SECOND:.1f} s"


def size(number: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1_000:
            return f"{number:.3g} {unit}"
        number /= 1_000
    return f"{number:,.3g} TB"


def span(us: int) -> str:
    """A duration in its two largest units, rounded up, for users to read. `durations.text` is the exact form."""
    seconds = -(-us // SECOND)
    for place, (unit, large) in enumerate(_CLOCK[:-1]):
        if seconds >= large:
            smaller, least = _CLOCK[place + 1]
            count, rest = divmod(-(-seconds // least) * least, large)
            return f"{count}{unit} {rest // least}{smaller}" if rest else f"{count}{unit}"
    return f"{seconds}s"


def spoken(us: int) -> str:
    """An exact duration in common units: "7d 3h 2m"."""
    parts = []
    for name, unit in _EXACT:
        count, us = divmod(us, unit)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts) or "nothing"


def number(value: float) -> str:
    """A number as text: whole and large numbers with separators, others with three significant digits."""
    if math.isinf(value):
        return "∞"
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def amount(value: float, unit: str) -> str:
    if math.isinf(value):
        return "never"
    if unit in ("B", "B/s"):
        name, one_of = next(((n, s) for n, s in _BYTES if value >= s), ("B", 1.0))
        return f"{number(value / one_of)} {name}{unit[1:]}"
    if unit == "s":
        name, one_of = next(((n, s) for n, s in _TIMES if value >= s), ("s", 1))
        return f"{number(value / one_of)} {name}"
    one = value == 1 and unit.endswith("s") and "/" not in unit
    return f"{number(value)} {unit[:-1] if one else unit}".rstrip()
