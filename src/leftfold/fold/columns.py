"""Columns of a tile: for each aggregate its partial, how partials merge, and what a person finally reads.

A partial is a JSON value. Merging is associative and free of order except `last`, which takes the newer side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from leftfold.fold import expressions
from leftfold.fold.expressions import Expression, from_micros
from leftfold.fold.values import Kind

Aggregate = Literal["count", "sum", "last"]
Partial = Any  # a JSON scalar, or None where nothing was aggregated

# Sums are kept in whole units of 10**-scale, so that they are exact and free of order. A float that does not fit 64
# bits in those units adds this much instead, and whatever reaches half of it is read as None: unknown, never wrong.
OVERFLOW = 10**29
_INT64 = 2**63


@dataclass(frozen=True, eq=False)
class Column:
    aggregate: Aggregate
    field: str | None  # None only for count
    kind: Kind
    where: Expression | None = None
    scale: int = 0  # decimals kept by a sum of floats

    def as_json(self) -> dict[str, Any]:
        where = None if self.where is None else expressions.to_json(self.where)
        return {
            "aggregate": self.aggregate,
            "field": self.field,
            "kind": self.kind,
            "where": where,
            "scale": self.scale,
        }

    def __eq__(self, other: object) -> bool:  # by hand: == of a condition builds another condition
        return isinstance(other, Column) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash(repr(self.as_json()))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Column:
        where = None if data["where"] is None else expressions.from_json(data["where"])
        return cls(data["aggregate"], data["field"], data["kind"], where, data["scale"])

    def fields(self) -> set[str]:
        own = {self.field} if self.field else set()
        return own | (expressions.fields_of(self.where) if self.where is not None else set())


def partial(column: Column, events: Iterable[Mapping[str, Any]]) -> Partial:
    """The partial of one tile; `events` are in order of (time, partition, offset)."""
    if column.where is not None:
        events = [e for e in events if expressions.evaluate(column.where, e)]
    if column.field is None:
        return sum(1 for _ in events)
    values = [e[column.field] for e in events if e[column.field] is not None]
    if not values:
        return None
    if column.aggregate == "last":
        return values[-1]
    return sum(units(value, column) for value in values)


def units(value: float, column: Column) -> int:
    """A value in whole units of 10**-scale; the same IEEE operations, in the same order, as the compiled view."""
    if column.kind == "int":
        return int(value)
    scaled = value * float(10**column.scale) + 0.5
    return math.floor(scaled) if abs(scaled) < _INT64 else OVERFLOW


def merge(column: Column, partials: Iterable[Partial]) -> Partial:
    """`partials` are in order of time."""
    known: list[Any] = [p for p in partials if p is not None]
    if column.aggregate == "count":
        return sum(known)
    if not known:
        return None
    return known[-1] if column.aggregate == "last" else sum(known)


def final(column: Column, value: Any) -> Any:
    """What a person reads: an int, a float, a datetime, a str or None."""
    if value is None:
        return None
    if column.aggregate == "sum":
        if abs(value) >= OVERFLOW // 2:
            return None
        return value if column.kind == "int" else value / 10**column.scale
    if column.aggregate == "last" and column.kind == "datetime":
        return from_micros(value)
    return float(value) if column.aggregate == "last" and column.kind == "float" else value
