"""Derived features (`spend / clicks`), as data: one tree, evaluated here at a read and compiled to Catalyst offline.

Both engines can do this arithmetic in the same way. The result is missing if a side is missing, if the divisor is 0, if
an int does not fit 64 bits, or if a float is not finite. Division is always of floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import add, mul, sub
from typing import Any

from leftfold.fold.values import INT64, Kind

Number = int | float
_EXACT: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}


class Node:
    """Base of the nodes of the tree."""


@dataclass(frozen=True)
class Value(Node):
    """The value of another feature of the same view, by its name."""

    name: str


@dataclass(frozen=True)
class Constant(Node):
    value: Number


@dataclass(frozen=True)
class Arithmetic(Node):
    op: str  # + - * /
    left: Node
    right: Node


def evaluate(node: Node, values: Mapping[str, Any]) -> Number | None:
    match node:
        case Value(name):
            number: Number | None = values[name]
            return number
        case Constant(value):
            return value
        case Arithmetic(op, left, right):
            return _arithmetic(op, evaluate(left, values), evaluate(right, values))
    raise TypeError(f"not a derived feature: {node!r}")


def _arithmetic(op: str, a: Number | None, b: Number | None) -> Number | None:
    if a is None or b is None:
        return None
    result: Number
    if op == "/":
        if b == 0:
            return None
        result = float(a) / float(b)
    elif isinstance(a, int) and isinstance(b, int):
        result = _EXACT[op](a, b)
        return result if -INT64 <= result < INT64 else None
    else:
        result = _EXACT[op](float(a), float(b))
    return result if math.isfinite(result) else None


def kind_of(node: Node, kinds: Mapping[str, Kind]) -> Kind:
    match node:
        case Value(name):
            return kinds[name]
        case Constant(value):
            return "float" if isinstance(value, float) else "int"
        case Arithmetic(op, left, right):
            both_int = kind_of(left, kinds) == kind_of(right, kinds) == "int"
            return "int" if both_int and op != "/" else "float"
    raise TypeError(f"not a derived feature: {node!r}")


def to_json(node: Node) -> list[Any]:
    match node:
        case Value(name):
            return ["value", name]
        case Constant(value):
            return ["constant", value]
        case Arithmetic(op, left, right):
            return [op, to_json(left), to_json(right)]
    raise TypeError(f"not a derived feature: {node!r}")


def from_json(tree: list[Any]) -> Node:
    match tree:
        case ["value", name]:
            return Value(name)
        case ["constant", value]:
            return Constant(value)
        case [op, left, right]:
            return Arithmetic(op, from_json(left), from_json(right))
    raise ValueError(f"not a derived feature: {tree!r}")
