"""Interleaved pairs of the same work done twice, and the form in which every bench reports."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """`ratios` are ours / bare in records a second: above 1 we are faster. A goal of None is reported, not judged."""

    ratios: tuple[float, ...]
    goal: float | None
    outputs_equal: bool

    @property
    def reached(self) -> bool:
        return self.outputs_equal and (self.goal is None or statistics.median(self.ratios) >= self.goal)

    def as_json(self) -> dict[str, Any]:
        return {
            "ratio_median": round(statistics.median(self.ratios), 3),
            "ratio_min": round(min(self.ratios), 3),
            "ratio_max": round(max(self.ratios), 3),
            "pairs": len(self.ratios),
            "goal": self.goal,
            "outputs_equal": self.outputs_equal,
        }

    def __str__(self) -> str:
        shown = self.as_json()
        goal = "no goal" if self.goal is None else f"goal {self.goal}"
        return f"{shown['ratio_median']} ({shown['ratio_min']}–{shown['ratio_max']}, {shown['pairs']} pairs, {goal})"


def interleave(name: str, pairs: int, ours: Callable[[], float], bare: Callable[[], float]) -> tuple[float, ...]:
    """Each side returns its seconds. Who goes first alternates, so that neither profits from a warmed cache."""
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
