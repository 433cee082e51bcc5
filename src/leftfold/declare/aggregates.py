"""The features that a user declares in a view: aggregates over a window, and arithmetic on aggregates.

`Feature[T]` is a descriptor. On the class it is a reference; on a row that was read it is a `T`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, overload

from leftfold.declare.labels import Label, asked_label
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold import expressions
from leftfold.fold.durations import Duration, micros
from leftfold.fold.sketches import LARGEST_SKETCH, SKETCH_SIZE, SMALLEST_SKETCH
from leftfold.fold.tiles import check_step, step_of
from leftfold.fold.values import is_number

T = TypeVar("T")
D = TypeVar("D")
N = TypeVar("N", int, float)
M = TypeVar("M", int, float, datetime)
H = TypeVar("H", str, int, datetime)

# The decimals that a sum of floats keeps: enough for money in any currency and for most measurements.
SUM_SCALE = 6
# A record's value of up to 9.2e18 / 10**scale fits 64 bits. Beyond 15 decimals a double has no digits left anyway.
LARGEST_SCALE = 15
# The largest n of a last_n: every tile of every entity keeps up to n values.
LARGEST_N = 1_000

# The default of window=: an aggregate without a window is a label of an outcome. None stands for all of time.
_NO_WINDOW: Any = object()

PlainAggregate = Literal["count", "sum", "mean", "min", "max", "last"]
AskedAggregate = Literal["count", "sum", "mean", "min", "max", "last", "last_n", "distinct"]


@dataclass(frozen=True)
class Asked:
    """An aggregate as the user wrote it, before the class says which event it reads."""

    aggregate: AskedAggregate
    field: Any
    where: expressions.Expression | None
    window: int | None
    step: int
    ttl: int | None
    scale: int
    size: int


@dataclass(frozen=True)
class Formula:
    op: str
    left: Feature[Any] | int | float
    right: Feature[Any] | int | float


@dataclass(frozen=True)
class Taken:
    """An unchanged column of the newest row: a field of the event for a Table, a column of its own for a free view."""

    field: Any


class Feature(Generic[T]):
    """One feature. It is bound to its view when the view's class is created."""

    name: str
    owner: Any  # the view

    def __init__(self, asked: Asked | Formula | Taken, source: SourceLine) -> None:
        self.asked = asked
        self.source = source
        self.fallback: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = getattr(self, "name", name)  # for a second class `bound` makes a copy

    def bound(self, owner: Any, name: str) -> Self:
        """Bind this feature to `owner` under `name`. Returns a copy if it already belongs to another view or name."""
        mine = copy.copy(self) if hasattr(self, "owner") or getattr(self, "name", name) != name else self
        mine.name, mine.owner = name, owner
        return mine

    def default(self: Feature[D | None], value: D) -> Feature[D]:
        """Return the same feature with a default: `value` is read instead of None."""
        other: Feature[Any] = copy.copy(self)
        other.fallback = value
        other.source = caller()
        if not hasattr(self, "owner"):
            other.__dict__.pop("name", None)
        return other

    @overload
    def __get__(self, row: None, owner: type) -> Feature[T]: ...
    @overload
    def __get__(self, row: object, owner: type) -> T: ...
    def __get__(self, row: object | None, owner: type) -> Feature[T] | T:
        if row is None:
            return self
        value: T = row.__dict__[self.name]
        return value

    # Arithmetic. Ints give an int, but a quotient is always a float. The result is None if a side is missing.
    # For mypy an int is also a float, so the overloads overlap: the first one that fits is the narrower one.

    @overload
    def __add__(self: _Whole, other: _Whole | int) -> Feature[int | None]: ...  # type: ignore[overload-overlap]
    @overload
    def __add__(self: _Number, other: _Number | float) -> Feature[float | None]: ...
    def __add__(self, other: Any) -> Any:
        return _formula("+", self, other)

    @overload
    def __radd__(self: _Whole, other: int) -> Feature[int | None]: ...
    @overload
    def __radd__(self: _Number, other: float) -> Feature[float | None]: ...
    def __radd__(self, other: Any) -> Any:
        return _formula("+", other, self)

    @overload
    def __sub__(self: _Whole, other: _Whole | int) -> Feature[int | None]: ...  # type: ignore[overload-overlap]
    @overload
    def __sub__(self: _Number, other: _Number | float) -> Feature[float | None]: ...
    def __sub__(self, other: Any) -> Any:
        return _formula("-", self, other)

    @overload
    def __rsub__(self: _Whole, other: int) -> Feature[int | None]: ...
    @overload
    def __rsub__(self: _Number, other: float) -> Feature[float | None]: ...
    def __rsub__(self, other: Any) -> Any:
        return _formula("-", other, self)

    @overload
    def __mul__(self: _Whole, other: _Whole | int) -> Feature[int | None]: ...  # type: ignore[overload-overlap]
    @overload
    def __mul__(self: _Number, other: _Number | float) -> Feature[float | None]: ...
    def __mul__(self, other: Any) -> Any:
        return _formula("*", self, other)

    @overload
    def __rmul__(self: _Whole, other: int) -> Feature[int | None]: ...
    @overload
    def __rmul__(self: _Number, other: float) -> Feature[float | None]: ...
    def __rmul__(self, other: Any) -> Any:
        return _formula("*", other, self)

    def __truediv__(self: _Number, other: _Number | float) -> Feature[float | None]:
        return _formula("/", self, other)

    def __rtruediv__(self: _Number, other: float) -> Feature[float | None]:
        return _formula("/", other, self)

    def __repr__(self) -> str:
        return f"<feature {getattr(self, 'name', '?')}>"


# The operands of a formula, for type checkers. A declaration is checked again when its class is created.
_Whole: TypeAlias = Feature[int] | Feature[int | None]
_Number: TypeAlias = _Whole | Feature[float] | Feature[float | None]


def _formula(op: str, left: Any, right: Any) -> Feature[Any]:
    for side in (left, right):
        if not is_number(side) and not isinstance(side, Feature):
            raise DeclarationError(
                "formula-kinds",
                f"{side!r} is in the formula of a feature",
                why="a derived feature is arithmetic of features and numbers",
                fix="use features of the same view, ints of 64 bits and finite floats",
                source=caller(),
            )
    return Feature(Formula(op, left, right), caller())


@overload
def count(*, where: bool | None = ...) -> Label[int]: ...
@overload
def count(
    window: Duration | None,
    *,
    where: bool | None = ...,
    step: Duration | None = ...,
    ttl: Duration | None = ...,
) -> Feature[int]: ...
def count(
    window: Duration | None = _NO_WINDOW,
    *,
    where: bool | None = None,
    step: Duration | None = None,
    ttl: Duration | None = None,
) -> Any:
    """The number of events; 0 if there was none. `window=None` counts all events that ever happened."""
    return _aggregate("count", None, window, where=where, step=step, ttl=ttl)


@overload
def sum(field: N | None, *, where: bool | None = ..., scale: int = ...) -> Label[N]: ...
@overload
def sum(
    field: N | None,
    window: Duration | None,
    *,
    where: bool | None = ...,
    step: Duration | None = ...,
    ttl: Duration | None = ...,
    scale: int = ...,
) -> Feature[N | None]: ...
def sum(
    field: Any,
    window: Duration | None = _NO_WINDOW,
    *,
    where: bool | None = None,
    step: Duration | None = None,
    ttl: Duration | None = None,
    scale: int = SUM_SCALE,
) -> Any:
    """The exact sum of a number; None if there was no value, 0 as a label. A float is kept to `scale` decimals."""
    return _aggregate("sum", field, window, where=where, step=step, ttl=ttl, scale=scale)


@overload
def mean(field: float | None, *, where: bool | None = ..., scale: int = ...) -> Label[float | None]: ...
@overload
def mean(
    field: float | None,
    window: Duration | None,
    *,
    where: bool | None = ...,
    step: Duration | None = ...,
    ttl: Duration | None = ...,
    scale: int = ...,
) -> Feature[float | None]: ...
def mean(
    field: Any,
    window: Duration | None = _NO_WINDOW,
    *,
    where: bool | None = None,
    step: Duration | None = None,
    ttl: Duration | None = None,
    scale: int = SUM_SCALE,
) -> Any:
    """The exact sum divided by the number of values; None if there was no value."""
    return _aggregate("mean", field, window, where=where, step=step, ttl=ttl, scale=scale)


@overload
def min(field: M | None, *, where: bool | None = ...) -> Label[M | None]: ...
@overload
def min(
    field: M | None,
    window: Duration | None,
    *,
    where: bool | None = ...,
    step: Duration | None = ...,
    ttl: Duration | None = ...,
) -> Feature[M | None]: ...
def min(
    field: Any,
    window: Duration | None = _NO_WINDOW,
    *,
    where: bool | None = None,
    step: Duration | None = None,
    ttl: Duration | None = None,
) -> Any:
    """The smallest number or earliest moment; None if there was no value."""
    return _aggregate("min", field, window, where=where, step=step, ttl=ttl)


@overload
def max(field: M | None, *, where: bool | None = ...) -> Label[M | None]: ...
@overload
def max(
    field: M | None,
    window: Duration | None,
    *,
    where: bool | None = ...,
    step: Duration | None = ...,
    ttl: Duration | None = ...,
) -> Feature[M | None]: ...
def max(
    field: Any,
    window: Duration | None = _NO_WINDOW,
    *,
    where: bool | None = None,
    step: Duration | None = None,
    ttl: Duration | None = None,
) -> Any:
    """The largest number or latest moment; None if there was no value."""
    return _aggregate("max", field, window, where=where, step=step, ttl=ttl)


@overload
def last(field: T | None, *, where: bool | None = ...) -> Label[T | None]: ...
@overload
def last(
    field: T | None,
    window: Duration | None,
    *,
    where: bool | None = ...,
    step: Duration | None = ...,
    ttl: Duration | None = ...,
) -> Feature[T | None]: ...
def last(
    field: Any,
    window: Duration | None = _NO_WINDOW,
    *,
    where: bool | None = None,
    step: Duration | None = None,
    ttl: Duration | None = None,
) -> Any:
    """The newest value that is not missing. If several events have the same time, the last one in the log counts."""
    return _aggregate("last", field, window, where=where, step=step, ttl=ttl)


def last_n(
    field: T | None,
    window: Duration | None,
    *,
    n: int,
    where: bool | None = None,
    step: Duration | None = None,
    ttl: Duration | None = None,
) -> Feature[list[T]]:
    """The newest n values that are not missing, newest first; an empty list if there was none."""
    return Feature(_asked("last_n", field, window, where=where, step=step, ttl=ttl, size=n), caller())


def distinct(
    field: H | None,
    window: Duration | None,
    *,
    where: bool | None = None,
    step: Duration | None = None,
    ttl: Duration | None = None,
    lg_k: int = SKETCH_SIZE,
) -> Feature[int]:
    """The approximate number of different values, from a sketch of 2**lg_k registers.

    The standard error is 4.6 % for lg_k=9: in about one case of three the result is off by more than that.
    """
    return Feature(_asked("distinct", field, window, where=where, step=step, ttl=ttl, size=lg_k), caller())


def latest(field: T | None) -> Feature[T | None]:
    """A column of a Table. The field alone means the same; `latest` is for type checkers, when `.default` is used."""
    return Feature(Taken(field), caller())


def _aggregate(
    aggregate: PlainAggregate,
    field: Any,
    window: Duration | None,
    *,
    where: Any,
    step: Duration | None,
    ttl: Duration | None,
    scale: int = 0,
) -> Feature[Any] | Label[Any]:
    """A feature, or the label of an outcome if there is no window."""
    if window is not _NO_WINDOW:
        return Feature(_asked(aggregate, field, window, where=where, step=step, ttl=ttl, scale=scale), caller())
    source = caller()
    if step is not None or ttl is not None:
        raise DeclarationError(
            "step-without-window",
            f"{'step' if step is not None else 'ttl'}= stands in a label: lf.{aggregate} without a window",
            why="a label has no window of its own: the outcome says how far a prediction reaches",
            fix="leave it out; or give a window, for a feature",
            source=source,
        )
    _check_sizes(aggregate, scale, 0, source)
    return asked_label(aggregate, field, where, scale)


def _asked(
    aggregate: AskedAggregate,
    field: Any,
    window: Duration | None,
    *,
    where: Any,
    step: Duration | None,
    ttl: Duration | None,
    scale: int = 0,
    size: int = 0,
) -> Asked:
    source = caller()
    _check_sizes(aggregate, scale, size, source)
    if window is None:
        if step is not None:
            raise DeclarationError(
                "step-without-window",
                "step= is set together with window=None",
                why="a feature of everything that ever happened has no window that moves",
                fix="leave step= out",
                source=source,
            )
        length, chosen = None, 0
    else:
        length = micros(window, option="window", source=source)
        chosen = (
            step_of(length, source=source)
            if step is None
            else check_step(length, micros(step, option="step", source=source), source=source)
        )
        if ttl is not None:
            raise DeclarationError(
                "ttl-with-window",
                "ttl= is set together with a window",
                why="a window drops old events by itself; ttl= does so for window=None",
                fix="leave ttl= out, or write window=None",
                source=source,
            )
    forgotten = None if ttl is None else micros(ttl, option="ttl", source=source)
    return Asked(aggregate, field, expressions.condition(where), length, chosen, forgotten, scale, size)


def _check_sizes(aggregate: AskedAggregate, scale: int, size: int, source: SourceLine) -> None:
    if not 0 <= scale <= LARGEST_SCALE:
        raise DeclarationError(
            "sum-scale",
            f"scale={scale} is not between 0 and {LARGEST_SCALE}",
            why="a double has about 15 significant digits",
            fix=f"leave scale= out ({SUM_SCALE}), or choose the decimals of your currency",
            source=source,
        )
    if aggregate == "last_n" and not 1 <= size <= LARGEST_N:
        raise DeclarationError(
            "last-n",
            f"n={size} is not between 1 and {LARGEST_N:,}",
            why="every tile of every entity keeps up to n values",
            fix=f"choose a number from 1 to {LARGEST_N:,}",
            source=source,
        )
    if aggregate == "distinct" and not SMALLEST_SKETCH <= size <= LARGEST_SKETCH:
        raise DeclarationError(
            "sketch-size",
            f"lg_k={size} is not between {SMALLEST_SKETCH} and {LARGEST_SKETCH}",
            why="every tile of every entity keeps a sketch of 2**lg_k bytes; at 12 a read of a week takes over 1 ms",
            fix=f"leave lg_k= out ({SKETCH_SIZE}), or choose 8 to 10",
            source=source,
        )
