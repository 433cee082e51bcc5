"""Interleaved pairs of the same work done twice, and the form in which every bench reports."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """`ratios` are ours / bare: of records a second, or of times, where lower is better.

    A goal of None is reported, not judged.
    """

    ratios: tuple[float, ...]
    goal: float | None
    outputs_equal: bool
    lower_is_better: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)  # what else was seen

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
