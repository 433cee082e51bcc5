"""What a feature means, said a second time and as plainly as possible: exact fractions, no tiles, no partials.

Shares no arithmetic with leftfold.fold, so that a mistake there does not hide here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    aggregate: str
    field: str | None
    window: int
    step: int
    at_least: float | None = None  # only events whose price is known and at least this
    kind: str = "int"
    scale: int = 0


def counted(asked: Asked, events: Sequence[Row], at: int) -> Any:
    """F_w(k, t) = aggregate of events with floor_h(t - w) <= time < t; `events` are in log order."""
    start = math.floor(Fraction(at - asked.window, asked.step)) * asked.step
    chosen = [e for e in events if start <= e["at"] < at]
    if asked.at_least is not None:
        chosen = [e for e in chosen if e["price"] is not None and e["price"] >= asked.at_least]
    if asked.aggregate == "count":
        return len(chosen)
    present = [e for e in chosen if e[asked.field or ""] is not None]
    if not present:
        return None
    if asked.aggregate == "last":
        newest = max(e["at"] for e in present)
        return [e[asked.field or ""] for e in present if e["at"] == newest][-1]
    if asked.kind == "int":
        return sum(Fraction(e[asked.field or ""]) for e in present)
    return _float_sum([e[asked.field or ""] for e in present], asked.scale)


def _float_sum(values: Sequence[float], scale: int) -> float | None:
    """Each value is rounded to `scale` decimals once, as a double is scaled; then the sum is exact."""
    total = Fraction(0)
    for value in values:
        scaled = value * 10.0**scale + 0.5
        if not -(2.0**63) < scaled < 2.0**63:
            return None
        total += math.floor(Fraction(scaled))
    return float(total / 10**scale)
