"""What a person asks for in a view: count, sum, last, each over a window.

`Feature[T]` is a descriptor: on the class a reference, on a row that was read a `T`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from leftfold.errors import DeclarationError, Source, caller
from leftfold.fold import expressions
from leftfold.fold.columns import Aggregate
from leftfold.fold.durations import Duration, micros
from leftfold.fold.tiles import check_step, step_of

T = TypeVar("T")
N = TypeVar("N", int, float)

# Decimals kept by a sum of floats: enough for money in any currency and for most measurements.
SUM_SCALE = 6
# Up to 9.2e18 / 10**scale fits a record's value; beyond 15 decimals a double has no digits left anyway.
LARGEST_SCALE = 15


@dataclass(frozen=True)
class Asked:
    """What a person wrote, before the class tells which event it is about."""

    aggregate: Aggregate
    field: Any
    where: expressions.Expression | None
    window: int
    step: int
    scale: int


class Feature(Generic[T]):
    """One feature. Bound to its view when the class is made."""

    name: str
    owner: type

    def __init__(self, asked: Asked, source: Source) -> None:
        self.asked = asked
        self.source = source

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = getattr(self, "name", name)  # in a second class it is bound as a copy

    @overload
    def __get__(self, row: None, owner: type) -> Feature[T]: ...
    @overload
    def __get__(self, row: object, owner: type) -> T: ...
    def __get__(self, row: object | None, owner: type) -> Feature[T] | T:
        if row is None:
            return self
        value: T = row.__dict__[self.name]
        return value

    def __repr__(self) -> str:
        return f"<feature {getattr(self, 'name', '?')}>"


def count(window: Duration, *, where: bool | None = None, step: Duration | None = None) -> Feature[int]:
    """How many events; 0 when there was none."""
    return Feature(_asked("count", None, window, where=where, step=step), caller())


def sum(
    field: N | None,
    window: Duration,
    *,
    where: bool | None = None,
    step: Duration | None = None,
    scale: int = SUM_SCALE,
) -> Feature[N | None]:
    """The exact sum of a number, None when there was none. A float is kept to `scale` decimals."""
    if not 0 <= scale <= LARGEST_SCALE:
        raise DeclarationError(
            "sum-scale",
            f"scale={scale} is not between 0 and {LARGEST_SCALE}",
            why="a double has about 15 significant digits",
            fix=f"leave scale= out ({SUM_SCALE}), or choose the decimals of your currency",
            source=caller(),
        )
    return Feature(_asked("sum", field, window, where=where, step=step, scale=scale), caller())


def last(
    field: T | None, window: Duration, *, where: bool | None = None, step: Duration | None = None
) -> Feature[T | None]:
    """The newest value that is not missing; of events at one moment, the last in the log."""
    return Feature(_asked("last", field, window, where=where, step=step), caller())


def _asked(
    aggregate: Aggregate, field: Any, window: Duration, *, where: Any, step: Duration | None, scale: int = 0
) -> Asked:
    source = caller()
    length = micros(window, option="window", source=source)
    chosen = (
        step_of(length, source=source)
        if step is None
        else check_step(length, micros(step, option="step", source=source), source=source)
    )
    return Asked(aggregate, field, expressions.condition(where), length, chosen, scale)
