"""One line of arithmetic, and the shape of everything that sizing advises."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

# Decimal, as disks and networks are sold.
_BYTES = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES = (("d", 86_400), ("h", 3_600), ("min", 60))


@dataclass(frozen=True)
class Line:
    """`formula` is in words, `numbers` the same with its numbers; `result` is infinite if it never comes to be."""

    name: str
    formula: str
    numbers: str
    result: float
    unit: str

    def __str__(self) -> str:
        return f"{self.name}: {self.formula} = {self.arithmetic}"

    @property
    def arithmetic(self) -> str:
        """The numbers and what they come to; a sum of one number is that number."""
        result = amount(self.result, self.unit)
        return result if result.startswith(self.numbers) else f"{self.numbers} = {result}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "result": self.result if math.isfinite(self.result) else None}


@dataclass(frozen=True)
class Advice:
    """What a person should know before they go on: `what` holds the numbers."""

    code: str
    what: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}\n    why: {self.why}\n    fix: {self.fix}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def table(lines: Iterable[Line]) -> str:
    """Names in a column; of each line the formula, then its numbers and the result below it."""
    shown = list(lines)
    width = max((len(line.name) for line in shown), default=0)
    rows = []
    for line in shown:
        rows.append(f"  {line.name:<{width}}  {line.formula}")
        rows.append(f"  {'':<{width}}  = {line.arithmetic}")
    return "\n".join(rows)


def number(value: float) -> str:
    """Whole ones and large ones with separators, others with three digits that count."""
    if math.isinf(value):
        return "∞"
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def amount(value: float, unit: str) -> str:
    if math.isinf(value):
        return "never"
    if unit in ("B", "B/s"):
        name, size = next(((n, s) for n, s in _BYTES if value >= s), ("B", 1.0))
        return f"{number(value / size)} {name}{unit[1:]}"
    if unit == "s":
        name, size = next(((n, s) for n, s in _TIMES if value >= s), ("s", 1))
        return f"{number(value / size)} {name}"
    one = value == 1 and unit.endswith("s") and "/" not in unit
    return f"{number(value)} {unit[:-1] if one else unit}".rstrip()
