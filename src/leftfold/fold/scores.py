"""The quality of scores, from counts that can be added up: AUC, log loss, Brier score and calibration.

Scores are counted in cells. The edges of the cells are quantiles of the scores themselves, because a grid of fixed
edges has too few cells where all scores lie close together. Counts over the same edges can be added in any order:
sums are whole numbers of 10⁻¹², so adding them loses nothing.

This module is plain arithmetic: who counts, and over which predictions, is not known here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

# Between two edges lies at most a 1,024th of the scores, so at most a 512th of the more frequent class. Pairs of a
# positive and a negative between the same edges count one half. So the AUC is off by less than 1/1,024.
QUANTILES = 1_024
LEAST = 50  # of each class: with fewer, the standard error of an AUC is about 0.04 or more
UNIT = 10**12
GROUPS = 10  # of the calibration table
CLIP = 2.0**-52  # as in scikit-learn: a log loss of a certain and wrong answer is 36, not infinite


@dataclass(frozen=True, slots=True)
class Cell:
    """The predictions with a score between two edges, or exactly on one."""

    positives: int = 0
    negatives: int = 0
    scores: int = 0  # the sum of the scores, in units

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.positives + other.positives, self.negatives + other.negatives, self.scores + other.scores)


@dataclass(frozen=True)
class ScoreCounts:
    """Counts of scores by cell and class, with the sums that log loss and Brier score need.

    Cell 2i holds the scores below edge i and above the one before, cell 2i+1 those that are equal to edge i. So a
    frequent score, which is an edge, has a cell of its own.
    """

    edges: tuple[float, ...]
    cells: Mapping[int, Cell] = field(default_factory=dict)
    log_loss: int = 0  # the sum over all predictions, in units
    squared: int = 0  # the sum of (score - label)², in units
    outside: int = 0  # scores below 0 or above 1; the sums leave them out

    def __add__(self, other: ScoreCounts) -> ScoreCounts:
        if self.edges is not other.edges and self.edges != other.edges:
            raise ValueError("counts of scores over different edges cannot be added")
        none = Cell()
        cells = {at: self.cells.get(at, none) + other.cells.get(at, none) for at in {**self.cells, **other.cells}}
        return ScoreCounts(
            self.edges,
            cells,
            self.log_loss + other.log_loss,
            self.squared + other.squared,
            self.outside + other.outside,
        )

    @cached_property
    def positives(self) -> int:
        return sum(cell.positives for cell in self.cells.values())

    @cached_property
    def negatives(self) -> int:
        return sum(cell.negatives for cell in self.cells.values())

    @property
    def rows(self) -> int:
        return self.positives + self.negatives

    @property
    def ordered(self) -> list[tuple[int, Cell]]:
        return sorted(self.cells.items())


@dataclass(frozen=True)
class CalibrationGroup:
    """Predictions with scores next to each other: what was said, and what happened."""

    rows: int
    score: float  # their mean score
    rate: float  # the share of positives among them


@dataclass(frozen=True)
class Figures:
    """The quality of scores. A figure that cannot be told is None, and `reasons` says why."""

    rows: int
    positives: int
    base_rate: float | None = None
    auc: float | None = None
    auc_error: float | None = None  # the standard error, after Hanley and McNeil
    auc_rounding: float | None = None  # the most by which cells can have changed the AUC
    log_loss: float | None = None
    brier: float | None = None
    calibration_error: float | None = None  # the mean distance of score and rate in `calibration`
    calibration_noise: float | None = None  # that distance, as chance alone makes it
    calibration: tuple[CalibrationGroup, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)  # by figure

    def as_json(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in self.__dataclass_fields__}
        groups = [{"rows": g.rows, "score": g.score, "rate": g.rate} for g in self.calibration]
        return {**figures, "calibration": groups, "reasons": dict(self.reasons)}


# Counting ------------------------------------------------------------------------------------------------------------


def quantile_edges(scores: Sequence[float], quantiles: int = QUANTILES) -> tuple[float, ...]:
    """Return the distinct values at the quantiles of some scores. Each is one of the scores."""
    ordered = sorted(scores)
    places = {max(0, math.ceil(len(ordered) * n / quantiles) - 1) for n in range(1, quantiles)} if ordered else set()
    return tuple(sorted({ordered[place] + 0.0 for place in places}))  # + 0.0: there are two zeros


def cell_of(edges: Sequence[float], score: float) -> int:
    place = bisect_left(edges, score)
    return 2 * place + (place < len(edges) and edges[place] == score)


def counted(rows: Iterable[tuple[float, bool]], edges: Sequence[float]) -> ScoreCounts:
    """Count pairs of a score and its label."""
    cells: dict[int, list[int]] = {}
    log_loss = squared = outside = 0
    for score, label in rows:
        cell = cells.setdefault(cell_of(edges, score), [0, 0, 0])
        cell[not label] += 1
        if not 0.0 <= score <= 1.0:
            outside += 1
            continue
        cell[2] += round(score * UNIT)
        clipped = min(max(score, CLIP), 1.0 - CLIP)
        log_loss += round(-math.log(clipped if label else 1.0 - clipped) * UNIT)
        squared += round((score - label) ** 2 * UNIT)
    return ScoreCounts(tuple(edges), {at: Cell(*cell) for at, cell in cells.items()}, log_loss, squared, outside)


# Figures -------------------------------------------------------------------------------------------------------------


def figures(counts: ScoreCounts, *, least: int = LEAST) -> Figures:
    """Return all figures of some counts. With fewer than `least` positives or negatives there are none."""
    rows, positives, negatives = counts.rows, counts.positives, counts.negatives
    base_rate = positives / rows if rows else None
    if min(positives, negatives) < max(least, 1):
        kind, number = ("positives", positives) if positives <= negatives else ("negatives", negatives)
        why = f"{number} {kind}: fewer than {least} say too little"
        names = ("auc", "log_loss", "brier", "calibration_error")
        return Figures(rows, positives, base_rate, reasons=dict.fromkeys(names, why))
    auc, rounding = _area(counts)
    error = standard_error(auc, positives, negatives)
    ranked = Figures(rows, positives, base_rate, auc, auc_error=error, auc_rounding=rounding)
    if counts.outside:
        why = f"{counts.outside} of {rows} scores are not between 0 and 1: they are no probabilities"
        return replace(ranked, reasons=dict.fromkeys(("log_loss", "brier", "calibration_error"), why))
    groups = tuple(_groups(counts))
    return replace(
        ranked,
        log_loss=counts.log_loss / UNIT / rows,
        brier=counts.squared / UNIT / rows,
        calibration_error=sum(g.rows * abs(g.score - g.rate) for g in groups) / rows,
        calibration_noise=sum(math.sqrt(g.rows * g.score * (1 - g.score) * 2 / math.pi) for g in groups) / rows,
        calibration=groups,
    )


def _area(counts: ScoreCounts) -> tuple[float, float]:
    """Return the AUC, and how far it can be from that of the scores themselves.

    The AUC is the share of pairs of a positive and a negative in which the positive has the higher score. Equal scores
    count one half, and so do scores in one cell.
    """
    below = halves = unsure = 0
    for at, cell in counts.ordered:
        halves += cell.positives * (2 * below + cell.negatives)
        unsure += cell.positives * cell.negatives if at % 2 == 0 else 0
        below += cell.negatives
    pairs = counts.positives * counts.negatives
    return halves / (2 * pairs), unsure / (2 * pairs)


def standard_error(auc: float, positives: int, negatives: int) -> float:
    """Return the standard error of an AUC, after Hanley and McNeil (1982)."""
    twice_positive, twice_negative = auc / (2 - auc), 2 * auc * auc / (1 + auc)
    spread = auc * (1 - auc)
    spread += (positives - 1) * (twice_positive - auc * auc) + (negatives - 1) * (twice_negative - auc * auc)
    return math.sqrt(max(spread, 0.0) / (positives * negatives))


def _groups(counts: ScoreCounts) -> Iterator[CalibrationGroup]:
    """Yield about ten groups of equal size. A frequent score makes its group larger, because it is not split."""
    group, done = Cell(), 0
    for _, cell in counts.ordered:
        group += cell
        size = group.positives + group.negatives
        if (done + size) * GROUPS >= counts.rows * (done * GROUPS // counts.rows + 1):
            done += size
            yield CalibrationGroup(size, group.scores / UNIT / size, group.positives / size)
            group = Cell()
