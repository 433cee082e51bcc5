"""The report on a training set: counts for each feature and over all labels. Plain values, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Report:
    as_of: str
    rows: int
    without_time: int  # labels without a moment, for which no feature can be computed
    outside: int  # labels whose windows reach back further than the history that still exists
    unknown: int  # labels at moments for which it is not known which batch was served
    missing: dict[str, int]  # by feature: the number of labels for which it has no value
    differ: dict[tuple[str, str], dict[str, int]]  # by pair of time rules, then feature: how many values differ

    @classmethod
    def of(
        cls, counts: Mapping[tuple[str, str, str], int], as_of: str, modes: Sequence[str], features: Sequence[str]
    ) -> Report:
        pairs = [(a, b) for i, a in enumerate(modes) for b in modes[i + 1 :]]
        return cls(
            as_of,
            counts["labels", "", ""],
            counts["without time", "", ""],
            counts["outside", "", ""],
            counts["unknown", "", ""],
            {name: counts["missing", "", name] for name in features},
            {(a, b): {name: counts[a, b, name] for name in features} for a, b in pairs},
        )

    def __str__(self) -> str:
        lines = [f"{self.rows:,} labels, as of {self.as_of}"]
        for number, what in (
            (self.without_time, "have no time, so they have no values"),
            (self.outside, "reach back beyond what the log still has"),
            (self.unknown, "are from hours for which it is not known which batch was served"),
        ):
            if number:
                lines.append(f"  {number:,} {what}")
        table = [["feature", "missing", *(f"{first} ≠ {second}" for first, second in self.differ)]]
        for name, missing in self.missing.items():
            table.append([name, f"{missing:,}", *(f"{counts[name]:,}" for counts in self.differ.values())])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for first, *rest in table:
            numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
            lines.append("  ".join(["", first.ljust(widths[0]), *numbers]))
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "as_of": self.as_of,
            "rows": self.rows,
            "without_time": self.without_time,
            "outside": self.outside,
            "unknown": self.unknown,
            "missing": self.missing,
            "differ": {f"{a}-{b}": counts for (a, b), counts in self.differ.items()},
        }
