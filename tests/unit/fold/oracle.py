"""What a feature means, said a second time and as plainly as possible: exact fractions, no tiles, no partials.

Shares no code with leftfold.fold, so that a mistake there does not hide here. Events are plain mappings in log order,
with times in microseconds; `at` is the time of each.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from datasketches import HLL_8, hll_sketch, hll_union

Row = Mapping[str, Any]
# (field, op, constant), or ("and" | "or", condition, condition)
Condition = tuple[str, Any, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPS = {
    **{"=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le},
    **{"+": operator.add, "-": operator.sub, "*": operator.mul},
}
# What a float adds to a sum whose units do not fit 64 bits, by the protocol.
TOO_LARGE = 10**29


@dataclass(frozen=True)
class Asked:
    aggregate: str
    field: str | None
    kind: str
    window: int | None
    step: int = 0
    ttl: int | None = None
    where: Condition | None = None
    scale: int = 0
    size: int = 0
    default: Any = None


@dataclass(frozen=True)
class Formula:
    """A side is the name of a feature, a number, or a feature of its own."""

    op: str
    left: str | float | Asked
    right: str | float | Asked
    default: Any = None


def values(asked: Mapping[str, Asked | Formula], events: Sequence[Row], at: int) -> dict[str, Any]:
    """Every feature of one entity at one moment."""
    found: dict[str, Any] = {}
    for name, one in asked.items():
        found[name] = _derived(one, found, events, at) if isinstance(one, Formula) else value(one, events, at)
    return found


def value(asked: Asked, events: Sequence[Row], at: int) -> Any:
    result = _finished(asked, chosen(asked, events, at))
    return asked.default if result is None else result


def chosen(asked: Asked, events: Sequence[Row], at: int) -> list[Row]:
    """floor_h(t - w) <= time < t; without a window all before t, unless the newest of these lies too far back."""
    before = [e for e in events if e["at"] < at]
    if asked.window is not None:
        start = math.floor(Fraction(at - asked.window, asked.step)) * asked.step
        return [e for e in before if start <= e["at"]]
    if asked.ttl is not None and before and max(e["at"] for e in before) < at - asked.ttl:
        return []
    return before


def tile(asked: Asked, events: Sequence[Row]) -> Any:
    """What a tile holds of these events; of a sketch only what it estimates."""
    if asked.field is None:
        return len(_counting(asked, events))
    found = _known(asked, events)
    match asked.aggregate:
        case "distinct":
            return estimate(found, asked.size)
        case "count":
            return len(found)
    return _held(asked, found) if found else None


def _counting(asked: Asked, events: Sequence[Row]) -> list[Row]:
    return [e for e in events if asked.where is None or holds(asked.where, e) is True]


def _known(asked: Asked, events: Sequence[Row]) -> list[Any]:
    """The values in order of time; at one moment, of the log."""
    name = asked.field or ""
    present = [e for e in _counting(asked, events) if e[name] is not None]
    return [e[name] for _, e in sorted(enumerate(present), key=lambda p: (p[1]["at"], p[0]))]


def _held(asked: Asked, found: list[Any]) -> Any:
    match asked.aggregate:
        case "sum" | "mean":
            return sum(_units(v, asked) for v in found)
        case "min" | "max":
            unsigned = [0.0 if asked.kind == "float" and v == 0.0 else v for v in found]
            return min(unsigned) if asked.aggregate == "min" else max(unsigned)
        case "last":
            return found[-1]
        case "last_n":
            return found[::-1][: asked.size]
    raise AssertionError(asked.aggregate)


def _finished(asked: Asked, events: Sequence[Row]) -> Any:
    held = tile(asked, events)
    match asked.aggregate:
        case "count" | "distinct":
            return held
        case "sum":
            return _total(asked, held)
        case "mean":
            total = _total(asked, held)
            return None if total is None else float(total) / len(_known(asked, events))
        case "last_n":
            return [_shown(asked.kind, v) for v in held or ()]
    return None if held is None else _shown(asked.kind, held)


def _units(number: float, asked: Asked) -> int:
    """Each float is rounded to `scale` decimals once, as a double is scaled; then the sum is exact."""
    if asked.kind == "int":
        return int(number)
    scaled = number * 10.0**asked.scale + 0.5
    return math.floor(Fraction(scaled)) if -(2.0**63) < scaled < 2.0**63 else TOO_LARGE


def _total(asked: Asked, units: int | None) -> int | float | None:
    if units is None:
        return None
    if asked.kind == "int":
        return units if -(2**63) <= units <= 2**63 - 1 else None
    return None if abs(units) >= TOO_LARGE // 2 else float(Fraction(units, 10**asked.scale))


def _shown(kind: str, held: Any) -> Any:
    return _EPOCH + timedelta(microseconds=held) if kind == "datetime" else held


def holds(condition: Condition, event: Row) -> bool | None:
    """SQL's three values."""
    first, second, third = condition
    if first in ("and", "or"):
        sides = {holds(second, event), holds(third, event)}
        decisive = first == "or"
        return decisive if decisive in sides else None if None in sides else not decisive
    if third is None:
        return (event[first] is None) is (second == "=")
    return None if event[first] is None else bool(_OPS[second](event[first], third))


def estimate(items: Sequence[Any], size: int) -> int:
    """All values in one sketch; an empty string is no value. The sketch is merged with itself, see fold/sketches.py."""
    sketch = hll_sketch(size, HLL_8)
    for item in items:
        if item != "":
            sketch.update(item)
    merged = hll_union(size)
    merged.update(sketch)
    merged.update(sketch)
    about = math.floor(float(merged.get_estimate()) + 0.5)
    exact = len({item for item in items if item != ""})
    # Six standard errors; a sketch of few values holds each of them and counts exactly, but for two that collide.
    assert abs(about - exact) <= max(1, 6 * 1.04 / math.sqrt(2**size) * exact), (about, exact)
    return about


def _derived(formula: Formula, found: Row, events: Sequence[Row], at: int) -> Any:
    sides = [_side(side, found, events, at) for side in (formula.left, formula.right)]
    result = None if None in sides else arithmetic(formula.op, *sides)
    return formula.default if result is None else result


def _side(side: str | float | Asked, found: Row, events: Sequence[Row], at: int) -> Any:
    if isinstance(side, str):
        return found[side]
    return value(side, events, at) if isinstance(side, Asked) else side


def arithmetic(op: str, a: float, b: float) -> float | None:
    result: float
    if op == "/":
        if b == 0:
            return None
        result = float(a) / float(b)
    elif type(a) is type(b) is int:
        result = _OPS[op](a, b)
        return result if -(2**63) <= result <= 2**63 - 1 else None
    else:
        result = _OPS[op](float(a), float(b))
    return None if math.isinf(result) or math.isnan(result) else result
