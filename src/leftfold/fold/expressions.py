"""Conditions over an event's fields (`Click.price > 100`), as data.

A condition is one tree. It is evaluated here for a unit test, compiled to Catalyst in `spark`, and part of a view's
fingerprint. Missing values follow the rule of SQL: a comparison with a missing field is neither true nor false, and the
event does not count.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from leftfold.errors import DeclarationError, caller
from leftfold.fold.values import Kind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PYTHON_KINDS: dict[type, Kind] = {str: "string", int: "int", float: "float", bool: "bool", datetime: "datetime"}
# These work on Python values here and on Catalyst columns in `spark`, because both overload the same operators.
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
COMPARISONS = tuple(COMPARE)


def to_micros(value: datetime) -> int:
    """Convert a datetime to whole microseconds since the epoch. Callers have checked that it has a time zone."""
    return (value - _EPOCH) // timedelta(microseconds=1)


_EXACT = 2**32 * 1_000_000  # 2106


def from_micros(value: int) -> datetime:
    if 0 <= value < _EXACT:  # as a float it is exact to half a microsecond, and this takes two thirds of the time
        return datetime.fromtimestamp(value / 1e6, UTC)
    return _EPOCH + timedelta(microseconds=value)


class Expression:
    """Base of conditions and fields, with the operators that users write.

    `and`, `or`, `not` and `in` cannot be overloaded to build a condition, so they are refused.
    """

    def __gt__(self, other: Any) -> Compare:
        return compare(">", self, other)

    def __ge__(self, other: Any) -> Compare:
        return compare(">=", self, other)

    def __lt__(self, other: Any) -> Compare:
        return compare("<", self, other)

    def __le__(self, other: Any) -> Compare:
        return compare("<=", self, other)

    def __eq__(self, other: Any) -> Compare:  # type: ignore[override] # builds a condition, as in every query language in Python
        return compare("=", self, other)

    def __ne__(self, other: Any) -> Compare:  # type: ignore[override] # as above
        return compare("!=", self, other)

    def __and__(self, other: Any) -> Both:
        return Both("and", _condition(self), _condition(other))

    def __or__(self, other: Any) -> Both:
        return Both("or", _condition(self), _condition(other))

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise DeclarationError(
            "condition-as-bool",
            "a condition over fields was used as a plain boolean",
            why="`and`, `or`, `not`, `in` and chained comparisons ask Python for the answer before there is an event",
            fix="combine conditions with & and |, each in parentheses: (Click.price > 100) & (Click.item_id != 'x')",
            source=caller(),
        )


@dataclass(frozen=True, eq=False)
class FieldRef(Expression):
    """A reference to a field of an event: the run-time value of `Click.price`."""

    name: str
    kind: Kind
    event: type | None = None


@dataclass(frozen=True, eq=False)
class Compare(Expression):
    op: str
    left: FieldRef
    right: FieldRef | str | int | float | bool | None


@dataclass(frozen=True, eq=False)
class Both(Expression):
    op: str  # "and" or "or"
    left: Expression
    right: Expression


@dataclass(frozen=True, eq=False)
class Length(Expression):
    """A bound on the number of characters of a string. Only the rules of an event use it."""

    op: str
    field: FieldRef
    bound: int


def compare(op: str, left: Expression, right: Any) -> Compare:
    source = caller()
    if not isinstance(left, FieldRef):
        raise DeclarationError(
            "condition-compared",
            "a condition was compared with a value",
            why="only a field can be compared; Python binds & and | more tightly than > and ==",
            fix="put each comparison in parentheses: (Click.price > 100) & (Click.item_id != 'x')",
            source=source,
        )
    if isinstance(right, FieldRef):
        kind: Kind | None = right.kind
    elif right is None and op in ("=", "!="):
        return Compare(op, left, None)
    else:
        kind = _PYTHON_KINDS.get(type(right))
    if kind == "int" and left.kind == "float" and not isinstance(right, FieldRef):
        right, kind = float(right), "float"
    endless = isinstance(right, float) and not math.isfinite(right)
    if kind != left.kind or endless or left.kind == "bytes":
        operand = right.name if isinstance(right, FieldRef) else repr(right)
        actual = "not finite" if endless else kind or type(right).__name__
        only = "None" if left.kind == "bytes" else f"a value of kind {left.kind}"
        raise DeclarationError(
            "condition-kinds",
            f"{left.name} is {left.kind}, and {operand} is {actual}"
            if left.kind != "bytes"
            else f"{left.name} is bytes, which have no order and no text",
            why="a comparison across kinds would be decided by each engine's own conversion rules",
            fix=f"compare {left.name} with {only}",
            source=source,
        )
    if isinstance(right, datetime):
        if right.tzinfo is None:
            raise DeclarationError(
                "naive-datetime",
                f"{left.name} is compared with a datetime that has no time zone",
                why="without a zone it is a different time on every machine",
                fix="use datetime(..., tzinfo=timezone.utc)",
                source=source,
            )
        right = to_micros(right)
    return Compare(op, left, right)


def _condition(value: Any) -> Expression:
    if isinstance(value, Compare | Both):
        return value
    raise DeclarationError(
        "not-a-condition",
        f"{value.name if isinstance(value, FieldRef) else repr(value)} is not a condition over fields",
        why="`where=` and the operators & and | take comparisons of fields",
        fix="write a comparison, such as Click.price > 100",
        source=caller(),
    )


def condition(value: Any) -> Expression | None:
    return None if value is None else _condition(value)


def evaluate(expression: Expression, event: Mapping[str, Any]) -> bool | None:
    """Evaluate a condition for one event. As in SQL, the result is None if a missing field leaves the answer open."""
    match expression:
        case Compare(op, left, None):
            return (event[left.name] is None) == (op == "=")
        case Compare(op, left, right):
            a = event[left.name]
            b = event[right.name] if isinstance(right, FieldRef) else right
            return None if a is None or b is None else bool(COMPARE[op](a, b))
        case Length(op, field, bound):
            text = event[field.name]
            return None if text is None else bool(COMPARE[op](len(text), bound))
        case Both("and", left_side, right_side):
            answers = (evaluate(left_side, event), evaluate(right_side, event))
            return False if False in answers else None if None in answers else True
        case Both(_, left_side, right_side):
            answers = (evaluate(left_side, event), evaluate(right_side, event))
            return True if True in answers else None if None in answers else False
    raise TypeError(f"not an expression: {expression!r}")


def references(expression: Expression) -> Iterator[FieldRef]:
    match expression:
        case FieldRef():
            yield expression
        case Compare(_, left, right):
            yield left
            if isinstance(right, FieldRef):
                yield right
        case Length(_, field, _):
            yield field
        case Both(_, left_side, right_side):
            yield from references(left_side)
            yield from references(right_side)


def fields_of(expression: Expression) -> set[str]:
    return {reference.name for reference in references(expression)}


def to_json(expression: Expression) -> list[Any]:
    match expression:
        case FieldRef(name, kind):
            return ["field", name, kind]
        case Compare(op, left, right):
            return [op, to_json(left), to_json(right) if isinstance(right, FieldRef) else ["value", right]]
        case Length(op, field, bound):
            return ["length", op, to_json(field), bound]
        case Both(op, left_side, right_side):
            return [op, to_json(left_side), to_json(right_side)]
    raise TypeError(f"not an expression: {expression!r}")


def from_json(tree: list[Any]) -> Expression:
    match tree:
        case ["field", name, kind]:
            return FieldRef(name, kind)
        case ["length", op, field, bound]:
            return Length(op, _field(field), bound)
        case ["and" | "or" as op, left, right]:
            return Both(op, from_json(left), from_json(right))
        case [op, left, ["value", value]]:
            return Compare(op, _field(left), value)
        case [op, left, right]:
            return Compare(op, _field(left), _field(right))
    raise ValueError(f"not an expression: {tree!r}")


def _field(tree: list[Any]) -> FieldRef:
    field = from_json(tree)
    if not isinstance(field, FieldRef):
        raise ValueError(f"not a field: {tree!r}")
    return field
