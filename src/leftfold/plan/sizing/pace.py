"""How long the batches of a view take: the part of the model that is not one multiplication.

A batch costs b + records / (records_per_core × cores) + tiles / (tiles_per_core × cores). Records that came in while
it ran are the next batch, so at a steady rate λ its length T is where T = b / (1 - λ/R), with R the records a second
that it does beside the fixed cost. R depends on how many tiles the records of a batch share, and so on T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.plan.sizing.constants import Constants

# What can become of a record, each with a row in the ledger of its partition.
_OUTCOMES = 4
_ROUNDS = 400  # of nearing T: enough up to λ/R = 0.97, where a view is long past its limit


@dataclass(frozen=True)
class Shape:
    """What of a view decides its cost: the steps (in seconds) that each record is exploded to, 0 for all of time."""

    steps: tuple[float, ...]
    keys: int | None
    partitions: int

    @classmethod
    def of(cls, definition: Definition, keys: int | None, partitions: int) -> Shape:
        steps = tuple(step / SECOND for step in definition.steps)
        return cls((*steps, *((0.0,) if definition.lifetime else ())), keys, partitions)

    def tiles(self, records: float, span_s: float) -> float:
        """How many tiles so many records change that were logged within a span, if keys are equally busy.

        Uneven keys share more tiles, so this is an upper bound. Of a number of keys that nobody knows: all differ.
        """
        if self.keys is None:
            return records * len(self.steps)
        cells = [self.keys * (1 + span_s / step if step else 1) for step in self.steps]
        return sum(cell * -math.expm1(-records / cell) for cell in cells)


@dataclass(frozen=True)
class Pace:
    """A batch of so many records, or the steady state at a rate."""

    fixed_s: float  # b
    records: float
    tiles: float
    seconds: float  # T; infinite if the view never keeps up
    rate: float  # R: records a second beside the fixed cost

    @property
    def tiles_per_record(self) -> float:
        return self.tiles / self.records

    @property
    def through(self) -> float:
        """Records a second with the fixed cost."""
        return self.records / self.seconds


def full(shape: Shape, arriving: float, cores: float, constants: Constants) -> Pace:
    """The largest batches, as in a catch-up: each spans the time in which its records arrived."""
    records = float(constants.offsets_per_partition * shape.partitions)
    return batch(shape, records, records / arriving, cores, constants)


def batch(shape: Shape, records: float, span_s: float, cores: float, constants: Constants) -> Pace:
    tiles = shape.tiles(records, span_s)
    work = (records / constants.records_per_core + tiles / constants.tiles_per_core) / cores
    fixed = constants.batch_s if is_small(shape, records, constants) else constants.large_batch_s
    return Pace(fixed, records, tiles, fixed + work, records / work)


def is_small(shape: Shape, records: float, constants: Constants) -> bool:
    """Whether the driver writes the batch (run/view.py decides it so)."""
    return records * len(shape.steps) + _OUTCOMES * shape.partitions <= constants.driver_rows


def steady(shape: Shape, arriving: float, cores: float, constants: Constants) -> Pace:
    """At `arriving` records a second, all the time."""
    small = _settled(shape, arriving, cores, constants, constants.batch_s)
    if is_small(shape, small.records, constants):
        return small
    return _settled(shape, arriving, cores, constants, constants.large_batch_s)


def _settled(shape: Shape, arriving: float, cores: float, constants: Constants, fixed: float) -> Pace:
    """The length that reproduces itself, approached from below: a longer batch shares more tiles per record."""
    most = float(constants.offsets_per_partition * shape.partitions)
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
