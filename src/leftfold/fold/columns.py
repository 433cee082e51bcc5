"""Columns of a tile: for each aggregate its partial, the merge of partials, and the final value.

A partial is a JSON value. Merging is associative. It does not depend on order, except for `last` and `last_n`, which
take the newer side. Tiles do not overlap, so newer tiles hold newer values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, Literal

from leftfold.fold import expressions, sketches
from leftfold.fold.expressions import Expression, from_micros
from leftfold.fold.values import INT64, Kind

Aggregate = Literal["count", "sum", "min", "max", "last", "last_n", "distinct"]
Partial = Any  # a JSON value, or None if nothing was aggregated

# Sums are kept in whole units of 10**-scale, so that they are exact and do not depend on order. A float that does not
# fit 64 bits in those units adds this number instead. A sum that reaches half of this number is read as None: the value
# is unknown, but never wrong.
OVERFLOW = 10**29


@dataclass(frozen=True, eq=False)
class Column:
    aggregate: Aggregate
    field: str | None  # None for a count of events; a count with a field counts the events that have it
    kind: Kind
    where: Expression | None = None
    scale: int = 0  # the decimals that a sum of floats keeps
    size: int = 0  # the number of values of last_n; for a sketch, log2 of its number of registers

    def as_json(self) -> dict[str, Any]:
        where = None if self.where is None else expressions.to_json(self.where)
        return {
            "aggregate": self.aggregate,
            "field": self.field,
            "kind": self.kind,
            "where": where,
            "scale": self.scale,
            "size": self.size,
        }

    def __eq__(self, other: object) -> bool:  # written by hand, because == of a condition builds a condition
        return isinstance(other, Column) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash(repr(self.as_json()))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Column:
        where = None if data["where"] is None else expressions.from_json(data["where"])
        return cls(data["aggregate"], data["field"], data["kind"], where, data["scale"], data["size"])

    def fields(self) -> set[str]:
        own = {self.field} if self.field else set()
        return own | (expressions.fields_of(self.where) if self.where is not None else set())


def partial(column: Column, events: Iterable[Mapping[str, Any]]) -> Partial:
    """The partial of a column over the events of one tile. `events` are ordered by (time, partition, offset)."""
    if column.where is not None:
        events = [e for e in events if expressions.evaluate(column.where, e)]
    if column.field is None:
        return sum(1 for _ in events)
    values = [e[column.field] for e in events if e[column.field] is not None]
    return _OF_VALUES[column.aggregate](column, values) if values or column.aggregate == "count" else None


# Partials from values in order of time. There is at least one value; only a count may have none.
_OF_VALUES: dict[Aggregate, Callable[[Column, list[Any]], Partial]] = {
    "count": lambda _, values: len(values),
    "sum": lambda column, values: sum(units(value, column) for value in values),
    "min": lambda column, values: _no_minus_zero(column, min(values)),
    "max": lambda column, values: _no_minus_zero(column, max(values)),
    "last": lambda _, values: values[-1],
    "last_n": lambda column, values: values[: -column.size - 1 : -1],
    "distinct": lambda column, values: sketches.sketch(values, column.size),
}


def _no_minus_zero(column: Column, value: Any) -> Any:
    """Turn -0.0 into 0.0. Otherwise the sign of a min or max of 0.0 and -0.0 would depend on their order."""
    return value + 0.0 if column.kind == "float" else value


def units(value: float, column: Column) -> int:
    """A value in whole units of 10**-scale. Uses the same IEEE operations, in the same order, as the compiled view."""
    if column.kind == "int":
        return int(value)
    scaled = value * float(10**column.scale) + 0.5
    return math.floor(scaled) if abs(scaled) < INT64 else OVERFLOW


def merge(column: Column, partials: Sequence[Partial]) -> Partial:
    """Merge partials that are in order of time.

    This is the hot path of a read. A check for None costs as much as a sum, so it is made only after a TypeError.
    """
    merging = _MERGES[column.aggregate]
    try:
        return merging(column, partials) if partials else _NOTHING.get(column.aggregate)
    except TypeError:  # a partial is None: nothing was aggregated in its tile
        known = [p for p in partials if p is not None]
        return merging(column, known) if known else None


_NOTHING = {"count": 0}
_MERGES: dict[Aggregate, Callable[[Column, Sequence[Any]], Partial]] = {
    "count": lambda _, partials: sum(partials),
    "sum": lambda _, partials: sum(partials),
    "min": lambda _, partials: min(partials),
    "max": lambda _, partials: max(partials),
    "last": lambda _, partials: next((p for p in reversed(partials) if p is not None), None),
    "last_n": lambda column, partials: _newest(partials, column.size),
    "distinct": lambda column, partials: sketches.union(partials, column.size),
}


def joining(column: Column) -> Callable[[Any, Any], Partial]:
    """Return the function that merges two partials of a column, an older and a newer one. Neither is None."""
    match column.aggregate:
        case "count" | "sum":
            return add
        case "min":
            return min
        case "max":
            return max
        case "last":
            return lambda _, newer: newer
        case "last_n":
            return lambda older, newer: [*newer, *older][: column.size]
        case "distinct":
            return lambda older, newer: sketches.union((older, newer), column.size)


def _newest(tiles: Sequence[list[Any] | None], n: int) -> list[Any] | None:
    newest: list[Any] = []
    for values in reversed(tiles):
        newest += values or ()
        if len(newest) >= n:
            break
    return newest[:n] or None


def finisher(column: Column) -> Callable[[Partial], Any]:
    """Return the function that turns a merged partial into the value that a user reads.

    The value is an int, a float, a datetime, a str, a bool, a list, or None.
    """
    kind, scale = column.kind, 10**column.scale
    match column.aggregate:
        case "count":
            return lambda value: value
        case "distinct":
            return lambda value: 0 if value is None else sketches.estimate(value, column.size)
        case "last_n":
            return lambda value: [_read(kind, v) for v in value or ()]
        case "sum" if kind == "int":
            return lambda value: value if value is not None and -INT64 <= value < INT64 else None
        case "sum":
            return lambda value: value / scale if value is not None and abs(value) < OVERFLOW // 2 else None
        case _:
            return lambda value: None if value is None else _read(kind, value)


def is_final(column: Column) -> bool:
    """Return whether a merged partial is the value that a user reads."""
    return column.aggregate == "count" or (
        column.aggregate in ("min", "max", "last") and column.kind not in ("float", "datetime")
    )


def final(column: Column, value: Partial) -> Any:
    return finisher(column)(value)


def mean(total: int | float | None, count: int) -> float | None:
    return None if total is None or count == 0 else float(total) / count


def _read(kind: Kind, value: Any) -> Any:
    if kind == "datetime":
        return from_micros(value)
    return float(value) if kind == "float" else value
