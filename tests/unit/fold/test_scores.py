"""Figures from counts against scikit-learn, over 200 made-up sets of many shapes. Counts add up in any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve  # type: ignore[import-untyped] # it ships no types
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score  # type: ignore[import-untyped] # as above

from leftfold.fold.scores import (
    QUANTILES,
    Cell,
    ScoreCounts,
    cell_of,
    counted,
    figures,
    quantile_edges,
    standard_error,
)

Array = np.ndarray[Any, np.dtype[np.float64]]


def made_up(seed: int) -> tuple[Array, Array]:
    """Scores and labels of one of ten shapes. The class of each row depends on its score, more or less."""
    draw = np.random.default_rng(seed)
    n = int(np.exp(draw.uniform(np.log(400), np.log(20_000))))
    hidden = draw.random(n)
    shapes: dict[int, Callable[[], Array]] = {
        0: lambda: hidden,
        1: lambda: hidden**6 * 0.05,  # a click-through rate: nearly all scores are near 0
        2: lambda: 0.3 + hidden * 1e-9,  # all in one cell of any grid
        3: lambda: np.round(hidden, 1),  # ten values, many ties
        4: lambda: np.where(draw.random(n) < 0.7, 0.02, hidden),  # most rows have one and the same score
        5: lambda: 1 - hidden**9 * 1e-7,  # nearly all near 1
        6: lambda: np.tan((hidden - 0.5) * 3.1),  # heavy tails, no probabilities
        7: lambda: np.exp(hidden * 60 - 50) * np.where(draw.random(n) < 0.5, 1, -1),  # 26 orders of magnitude
        8: lambda: hidden.astype(np.float32).astype(np.float64),
        9: lambda: np.array([0.5, 0.5 + 2**-52])[(hidden < 0.5).astype(int)],  # neighbours of one another
    }
    scores = shapes[seed % 10]()
    ranks = scores.argsort().argsort() / n
    steep = draw.choice([0.0, 0.5, 1.5, 3.0])
    rate = draw.choice([0.5, 0.1, 0.02])
    labels = draw.random(n) < np.clip(rate * np.exp(steep * (ranks - 0.5)), 0, 1)
    for least, value in ((60, True), (60, False)):  # enough of both
        lacking = max(0, least - int((labels == value).sum()))
        labels[draw.choice(np.flatnonzero(labels != value), lacking, replace=False)] = value
    return scores, labels


@pytest.mark.parametrize("seed", range(200))
def test_figures_are_those_of_scikit_learn(seed: int) -> None:
    scores, labels = made_up(seed)
    counts = counted(zip(scores.tolist(), labels.tolist(), strict=True), quantile_edges(scores.tolist()))
    found = figures(counts)
    exact = roc_auc_score(labels, scores)
    assert found.auc is not None
    assert found.auc_rounding is not None
    assert found.auc == pytest.approx(exact, abs=0.001)
    assert abs(found.auc - exact) <= found.auc_rounding + 1e-12
    assert found.auc_rounding <= 1 / QUANTILES
    assert found.base_rate == labels.mean()
    if seed % 10 in (6, 7):
        assert (found.log_loss, found.brier, found.calibration_error) == (None, None, None)
        assert "not between 0 and 1" in found.reasons["log_loss"]
        return
    assert found.log_loss == pytest.approx(log_loss(labels, scores), abs=1e-9)
    assert found.brier == pytest.approx(brier_score_loss(labels, scores), abs=1e-9)
    assert sum(g.rows for g in found.calibration) == len(scores)
    assert [g.score for g in found.calibration] == sorted(g.score for g in found.calibration)
    if seed % 10 in (0, 1, 2, 8):  # without ties, the groups are tenths
        rates, means = calibration_curve(labels, scores, n_bins=10, strategy="quantile")
        error = np.abs(rates - means).mean()
        assert found.calibration_error == pytest.approx(error, abs=0.004)


def test_few_values_are_counted_exactly() -> None:
    scores, labels = made_up(3)
    found = figures(counted(zip(scores.tolist(), labels.tolist(), strict=True), quantile_edges(scores.tolist())))
    assert found.auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert found.auc_rounding == 0.0


def test_positives_beside_a_frequent_score_are_told_from_it() -> None:
    """Fifty positives just below a score that nearly all negatives have. In one cell they would give an AUC of 0.5."""
    rows = [(0.5, False)] * 90_000 + [(0.5 - n * 1e-9, True) for n in range(1, 61)] + [(0.9, False)] * 10_000
    found = figures(counted(rows, quantile_edges([score for score, _ in rows])))
    assert found.auc == 0.0


def test_the_standard_error_is_that_of_repeated_samples() -> None:
    draw = np.random.default_rng(7)
    samples = [
        (draw.normal(1, 1, 80)[:, None] > draw.normal(0, 1, 400)).mean()  # the AUC, by its definition
        for _ in range(1_000)
    ]
    assert standard_error(float(np.mean(samples)), 80, 400) == pytest.approx(np.std(samples), rel=0.15)


def test_well_calibrated_scores_are_off_by_their_noise() -> None:
    draw = np.random.default_rng(3)
    errors = []
    for _ in range(50):
        scores = draw.random(2_000) * 0.5
        labels = draw.random(2_000) < scores
        found = figures(counted(zip(scores.tolist(), labels.tolist(), strict=True), quantile_edges(scores.tolist())))
        assert found.calibration_error is not None
        assert found.calibration_noise is not None
        errors.append(found.calibration_error / found.calibration_noise)
    assert float(np.mean(errors)) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("positives", "negatives"), [(49, 900), (900, 49), (0, 5), (0, 0)])
def test_few_of_a_class_give_no_figure(positives: int, negatives: int) -> None:
    rows = [(0.9, True)] * positives + [(0.1, False)] * negatives
    found = figures(counted(rows, (0.1, 0.9)))
    assert (found.auc, found.log_loss, found.brier, found.calibration_error) == (None, None, None, None)
    few = min(positives, negatives)
    kind = "positives" if positives <= negatives else "negatives"
    assert set(found.reasons.values()) == {f"{few} {kind}: fewer than 50 say too little"}
    assert found.base_rate == (positives / (positives + negatives) if positives + negatives else None)


def test_cells_lie_between_edges_and_on_them() -> None:
    edges = (0.0, 0.25, 1.0)
    asked = (-1.0, 0.0, -0.0, 0.1, 0.25, 0.9, 1.0, 7.0, -math.inf, math.inf)
    assert [cell_of(edges, score) for score in asked] == [0, 1, 1, 2, 3, 4, 5, 6, 0, 6]


def test_edges_are_scores() -> None:
    assert quantile_edges([]) == ()
    assert quantile_edges([0.3]) == (0.3,)
    assert quantile_edges([0.3, 0.1, 0.3, 0.2], quantiles=2) == (0.2,)
    assert len(quantile_edges([n / 50_000 for n in range(50_000)])) == QUANTILES - 1


EDGES = (0.1, 0.2, 0.5)
CELLS = st.builds(Cell, st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**21))
COUNTS = st.builds(
    ScoreCounts,
    st.just(EDGES),
    st.dictionaries(st.integers(0, 6), CELLS),
    st.integers(0, 10**22),
    st.integers(0, 10**22),
    st.integers(0, 10**9),
)


@given(COUNTS, COUNTS, COUNTS)
def test_adding_is_associative_and_commutative(a: ScoreCounts, b: ScoreCounts, c: ScoreCounts) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + ScoreCounts(EDGES) == a


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.integers(0, 60))
def test_the_sum_of_parts_is_the_whole(rows: list[tuple[float, bool]], cut: int) -> None:
    assert counted(rows[:cut], EDGES) + counted(rows[cut:], EDGES) == counted(rows, EDGES)


def test_counts_over_other_edges_are_refused() -> None:
    with pytest.raises(ValueError, match="different edges"):
        ScoreCounts((0.1,)) + ScoreCounts((0.2,))
