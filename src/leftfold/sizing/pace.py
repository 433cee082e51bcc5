"""The time that a view's batches take. This is the part of the model that is more than one multiplication.

A batch costs b + records / (records_per_core × cores) + tiles / (tiles_per_core × cores). The records that arrive while
it runs are the next batch. So at a steady rate λ its length is T = b / (1 - λ/R). R is the number of records a second
that it handles, without the fixed cost b. R depends on how many tiles the records of a batch share, and so on T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from leftfold.declare.batches import offsets_per_batch, offsets_per_task
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.sizing.constants import Constants

# The possible outcomes of a record. Each has a row in the ledger of its partition.
_OUTCOMES = 4
_ROUNDS = 400  # of approaching T: enough up to λ/R = 0.97, where a view is far beyond its limit


@dataclass(frozen=True)
class Shape:
    """The properties of a view that decide its cost.

    `steps` are the steps in seconds for which each record makes a tile. 0 stands for a tile of all time. By the last
    three a run decides how many records its batches hold at most (declare/batches.py).
    """

    steps: tuple[float, ...]
    keys: int | None
    partitions: int
    record_bytes: float = 0
    declared_rate: float | None = None
    most_offsets: int | None = None  # the profile's

    @classmethod
    def of(cls, definition: Definition, keys: int | None, partitions: int) -> Shape:
        steps = tuple(step / SECOND for step in definition.steps)
        return cls((*steps, *((0.0,) if definition.lifetime else ())), keys, partitions)

    @property
    def per_task(self) -> int:
        return offsets_per_task(self.record_bytes, self.most_offsets)

    def full_batch(self, cores: int) -> int:
        """The most records that one batch holds."""
        rate = None if self.most_offsets else self.declared_rate
        return offsets_per_batch(self.per_task, self.partitions, rate=rate, cores=cores)

    def tiles(self, records: float, span_s: float) -> float:
        """The number of tiles that so many records change, if they were logged within a span and keys are equally busy.

        With uneven keys, records share more tiles, so this is an upper bound. If the number of keys is not known, each
        record is taken to have its own key.
        """
        if self.keys is None:
            return records * len(self.steps)
        cells = [self.keys * (1 + span_s / step if step else 1) for step in self.steps]
        return sum(cell * -math.expm1(-records / cell) for cell in cells)


@dataclass(frozen=True)
class Pace:
    """The pace of one batch of a given size, or of the steady state at a given rate."""

    fixed_s: float  # b
    records: float
    tiles: float
    seconds: float  # T; infinite if the view never keeps up
    rate: float  # R: records a second, without the fixed cost

    @property
    def tiles_per_record(self) -> float:
        return self.tiles / self.records

    @property
    def through(self) -> float:
        """The records a second, with the fixed cost."""
        return self.records / self.seconds


def full(shape: Shape, arriving: float, cores: int, constants: Constants) -> Pace:
    """The pace of the largest batches, as in a catch-up. Each batch spans the time in which its records arrived."""
    records = float(shape.full_batch(cores))
    return batch(shape, records, records / arriving, cores, constants)


def batch(shape: Shape, records: float, span_s: float, cores: float, constants: Constants) -> Pace:
    tiles = shape.tiles(records, span_s)
    work = (records / constants.records_per_core + tiles / constants.tiles_per_core) / cores
    fixed = constants.batch_s if is_small(shape, records, constants) else constants.large_batch_s
    return Pace(fixed, records, tiles, fixed + work, records / work)


def is_small(shape: Shape, records: float, constants: Constants) -> bool:
    """Return whether the driver writes the batch. run/batch.py decides it by the same rule."""
    return records * len(shape.steps) + _OUTCOMES * shape.partitions <= constants.driver_rows


def steady(shape: Shape, arriving: float, cores: int, constants: Constants) -> Pace:
    """The pace at a constant rate of `arriving` records a second."""
    small = _settled(shape, arriving, cores, constants, constants.batch_s)
    if is_small(shape, small.records, constants):
        return small
    return _settled(shape, arriving, cores, constants, constants.large_batch_s)


def _settled(shape: Shape, arriving: float, cores: int, constants: Constants, fixed: float) -> Pace:
    """Find the batch length T at which the records that arrive within T take T; infinite if batches get too large.

    T is approached from below, because the records of a longer batch share more tiles.
    """
    most = shape.full_batch(cores)
    seconds = fixed
    for _ in range(_ROUNDS):
        records = arriving * seconds
        tiles = shape.tiles(records, seconds)
        work = (records / constants.records_per_core + tiles / constants.tiles_per_core) / cores
        if records > most:
            return Pace(fixed, records, tiles, math.inf, records / work)
        if abs(fixed + work - seconds) < 1e-6 * seconds:
            break
        seconds = fixed + work
    return Pace(fixed, records, tiles, seconds, records / work)
