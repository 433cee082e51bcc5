"""Interleaved pairs of runs, ours and bare, that do the same work; and the form in which every bench reports."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """The result of one comparison.

    `ratios` are ours / bare. They compare records a second, or times where `lower_is_better`. A case whose goal is None
    is reported, but not judged.
    """

    ratios: tuple[float, ...]
    goal: float | None
    outputs_equal: bool
    lower_is_better: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)  # other measurements to report

    @property
    def reached(self) -> bool:
        median = statistics.median(self.ratios)
        met = self.goal is None or (median <= self.goal if self.lower_is_better else median >= self.goal)
        return self.outputs_equal and met

    def as_json(self) -> dict[str, Any]:
        return {
            "ratio_median": round(statistics.median(self.ratios), 3),
            "ratio_min": round(min(self.ratios), 3),
            "ratio_max": round(max(self.ratios), 3),
            "pairs": len(self.ratios),
            "goal": self.goal,
            "lower_is_better": self.lower_is_better,
            "outputs_equal": self.outputs_equal,
            **self.figures,
        }

    def __str__(self) -> str:
        shown = self.as_json()
        goal = "no goal" if self.goal is None else f"goal {'at most ' if self.lower_is_better else ''}{self.goal}"
        seen = "".join(f"; {name} {value:g}" for name, value in self.figures.items())
        spread = f"{shown['ratio_min']}–{shown['ratio_max']}"
        return f"{shown['ratio_median']} ({spread}, {shown['pairs']} pairs, {goal}){seen}"


def interleave(name: str, pairs: int, ours: Callable[[], float], bare: Callable[[], float]) -> tuple[float, ...]:
    """Run pairs of both sides, and return the ratio of their speeds (ours / bare) for each pair.

    Each side returns the seconds that it took. The sides take turns in going first, so that neither profits from a
    warm cache.
    """
    ratios = []
    for number in range(pairs):
        if number % 2:
            theirs, mine = bare(), ours()
        else:
            mine, theirs = ours(), bare()
        ratios.append(theirs / mine)
        note(f"{name} pair {number + 1}: ours {mine:.2f} s, bare {theirs:.2f} s, ratio {theirs / mine:.3f}")
    return tuple(ratios)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
