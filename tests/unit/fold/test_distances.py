"""PSI and KS from counts, against numpy over 200 made-up sets, and their noise against repeated samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leftfold.fold.distances import flagged, ks, ks_noise, psi, psi_noise

Array = np.ndarray[Any, np.dtype[np.float64]]


def of_numpy(before: Array, now: Array) -> float:
    p = np.where(before == 0, 0.5, before) / before.sum()
    q = np.where(now == 0, 0.5, now) / now.sum()
    kept = (before + now) > 0
    return float(np.sum((q - p)[kept] * np.log(q[kept] / p[kept])))


@pytest.mark.parametrize("seed", range(200))
def test_psi_and_ks_are_those_of_numpy(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, m, cells = int(draw.integers(100, 50_000)), int(draw.integers(100, 50_000)), int(draw.integers(2, 51))
    shares = draw.dirichlet(np.full(cells, draw.choice([0.05, 1.0, 20.0])))
    moved = draw.dirichlet(shares * draw.choice([5, 100, 10_000]) + 1e-3)
    before, now = draw.multinomial(n, shares).astype(float), draw.multinomial(m, moved).astype(float)
    ours = before.astype(int).tolist(), now.astype(int).tolist()
    assert psi(*ours) == pytest.approx(of_numpy(before, now), abs=0.005)
    cumulative = np.abs(before.cumsum() / n - now.cumsum() / m).max()
    assert ks(*ours) == pytest.approx(float(cumulative), abs=1e-9)


def test_noise_is_the_distance_of_samples_of_one_distribution() -> None:
    draw = np.random.default_rng(1)
    shares = np.full(20, 1 / 20)
    samples = [(draw.multinomial(3_000, shares).tolist(), draw.multinomial(800, shares).tolist()) for _ in range(500)]
    found = [psi(a, b) or 0.0 for a, b in samples]
    assert np.mean(found) == pytest.approx(psi_noise(*samples[0]), rel=0.1)
    noise = ks_noise(3_000, 800)
    assert noise is not None
    beyond = np.mean([(ks(a, b) or 0.0) > noise for a, b in samples])
    assert beyond <= 0.05  # over cells it is less than over single values
    assert not any(flagged(psi(a, b), psi_noise(a, b)) for a, b in samples)


def test_a_moved_distribution_is_flagged() -> None:
    before, now = [500] * 20, [900] * 10 + [100] * 10
    assert flagged(psi(before, now), psi_noise(before, now))
    few = [9] * 10 + [1] * 10  # the same shares, in a hundred rows: chance does that
    assert psi(before, few) == pytest.approx(psi(before, now), abs=1e-9)
    assert not flagged(psi(before, few), psi_noise(before, few))


def test_an_empty_side_has_no_distance() -> None:
    assert psi([0, 0], [1, 2]) is None
    assert psi_noise([1, 2], [0, 0]) is None
    assert ks([], []) is None
    assert ks_noise(0, 5) is None
    assert not flagged(None, None)
    assert psi([3, 0, 4], [6, 0, 8]) == 0.0
    assert psi_noise([3, 0, 4], [6, 0, 8]) == pytest.approx(1 / 7 + 1 / 14)
