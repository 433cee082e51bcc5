"""Computes the costs of a batch from timed batches: the fixed cost b, and the seconds per record and per tile."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from leftfold.errors import RunError


@dataclass(frozen=True)
class Timed:
    """One batch: its records, the tiles it changed, and the seconds until the next one began."""

    records: float
    tiles: float
    seconds: float


@dataclass(frozen=True)
class Costs:
    """The costs of a batch, in seconds."""

    small_s: float  # the fixed cost b of a batch that the driver writes
    large_s: float  # the fixed cost b of a batch that executors write
    record_s: float
    tile_s: float


def median(batches: Sequence[Timed]) -> Timed:
    """The median of each number by itself, so that one batch that something else delayed does not count."""
    columns = ([b.records for b in batches], [b.tiles for b in batches], [b.seconds for b in batches])
    return Timed(*(statistics.median(column) for column in columns))


def fit(*, small: Timed, large: Timed, records: Timed, tiles: Timed) -> Costs:
    """Solve for four unknowns, from four kinds of batch.

    `small` has few records and the driver writes it. `large` has few records too, but executors write it. `records` has
    many records on few tiles. `tiles` has many tiles. The last three share the fixed cost b, so two differences give
    the seconds per record and per tile.
    """
    a, b, more = records.records - large.records, records.tiles - large.tiles, records.seconds - large.seconds
    c, d, most = tiles.records - large.records, tiles.tiles - large.tiles, tiles.seconds - large.seconds
    determinant = a * d - b * c
    if determinant == 0:
        raise _unclear("batches of different sizes were the same")
    record_s, tile_s = (more * d - b * most) / determinant, (a * most - more * c) / determinant
    large_s = large.seconds - large.records * record_s - large.tiles * tile_s
    small_s = small.seconds - small.records * record_s - small.tiles * tile_s
    if min(record_s, tile_s, large_s, small_s) <= 0:
        raise _unclear("batches of more records or tiles were not slower than smaller ones")
    return Costs(small_s, large_s, record_s, tile_s)


def _unclear(why: str) -> RunError:
    return RunError(
        "probe-unclear",
        "what the probe has timed does not add up",
        why=f"{why}: something else used the machines meanwhile",
        state="constants are as they were",
        fix="wait until the machines are quiet, then probe again; the defaults hold until then",
        retriable=True,
    )
