"""The distance of two distributions, from their counts in the same cells: PSI and KS, each with its noise.

Two samples of one distribution differ too. The noise says by how much they do on average (PSI), or at most in 19 of 20
cases (KS). A distance is worth a look only well beyond it. There are no p-values: with many rows each difference is
significant, however small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FLAGGED = 0.1  # a PSI below it is commonly taken for no change
TIMES_NOISE = 5


def psi(before: Sequence[int], now: Sequence[int]) -> float | None:
    """Return the population stability index of two rows of counts over the same cells; None if one is empty.

    It is the sum of (q - p) · ln(q / p) over the shares p and q of the cells. A cell that is empty on one side counts
    as half a row there, because the logarithm of 0 has no value. A cell that is empty on both counts nothing.
    """
    n, m = sum(before), sum(now)
    if not n or not m:
        return None
    total = 0.0
    for one, other in zip(before, now, strict=True):
        if one or other:
            p, q = max(one, 0.5) / n, max(other, 0.5) / m
            total += (q - p) * math.log(q / p)
    return total


def psi_noise(before: Sequence[int], now: Sequence[int]) -> float | None:
    """Return the PSI that two samples of one distribution have on average: (cells - 1) · (1/n + 1/m)."""
    n, m = sum(before), sum(now)
    if not n or not m:
        return None
    filled = sum(1 for one, other in zip(before, now, strict=True) if one or other)
    return max(filled - 1, 0) * (1 / n + 1 / m)


def ks(before: Sequence[int], now: Sequence[int]) -> float | None:
    """Return the greatest distance of two cumulative distributions, at the edges of their cells (Kolmogorov, Smirnov).

    Within a cell it may be greater, by at most the cell's share.
    """
    n, m = sum(before), sum(now)
    if not n or not m:
        return None
    greatest, below, below_now = 0.0, 0, 0
    for one, other in zip(before, now, strict=True):
        below, below_now = below + one, below_now + other
        greatest = max(greatest, abs(below / n - below_now / m))
    return greatest


def ks_noise(before: int, now: int) -> float | None:
    """Return the distance that two samples of one distribution exceed in one of 20 cases: 1.36 · √(1/n + 1/m)."""
    return 1.36 * math.sqrt(1 / before + 1 / now) if before and now else None


def flagged(distance: float | None, noise: float | None) -> bool:
    """Return whether a PSI is worth a look: above 0.1, and above five times its noise."""
    return distance is not None and noise is not None and distance > max(FLAGGED, TIMES_NOISE * noise)
