"""Numbers and names, as hazards spell them."""

from __future__ import annotations

from collections.abc import Sequence

from leftfold.fold.durations import SECOND

_SHOWN = 3  # names of a list; the rest is a number


def counted(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")


def percent(share: float) -> str:
    return f"{100 * share:.3g}%" if share >= 0.001 else "under 0.1%"


def rough(us: int) -> str:
    """To a precision that a person needs: the largest unit of which there are two or more."""
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
