"""One line of arithmetic, and the shape of everything that sizing advises."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from leftfold.units import amount


@dataclass(frozen=True)
class Line:
    """One calculation. `formula` has words, `numbers` the same with numbers. `result` is infinite for "never"."""

    name: str
    formula: str
    numbers: str
    result: float
    unit: str

    def __str__(self) -> str:
        return f"{self.name}: {self.formula} = {self.arithmetic}"

    @property
    def arithmetic(self) -> str:
        """The numbers and their result. If the numbers are already the result, it is shown once."""
        result = amount(self.result, self.unit)
        return result if result.startswith(self.numbers) else f"{self.numbers} = {result}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "result": self.result if math.isfinite(self.result) else None}


@dataclass(frozen=True)
class Advice:
    """Advice that a user should read before continuing. `what` holds the numbers."""

    code: str
    what: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}\n    why: {self.why}\n    fix: {self.fix}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def table(lines: Iterable[Line]) -> str:
    """A table with the names in one column. Next to each name is the formula; below it, the numbers and the result."""
    shown = list(lines)
    width = max((len(line.name) for line in shown), default=0)
    rows = []
    for line in shown:
        rows.append(f"  {line.name:<{width}}  {line.formula}")
        rows.append(f"  {'':<{width}}  = {line.arithmetic}")
    return "\n".join(rows)
