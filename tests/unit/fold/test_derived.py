from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.fold.derived import Arithmetic, Constant, Node, Value, evaluate, from_json, kind_of, to_json
from leftfold.fold.values import Kind
from tests.unit.fold import oracle

KINDS: dict[str, Kind] = {"i": "int", "j": "int", "x": "float", "y": "float"}
INTS = st.sampled_from([0, 1, -1, 3, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
FLOATS = st.sampled_from([0.0, -0.0, 0.1, -2.5, 5e-324, 1e308, -1e308])
NODES: st.SearchStrategy[Node] = st.recursive(
    st.sampled_from(sorted(KINDS)).map(Value) | (INTS | FLOATS).map(Constant),
    lambda inner: st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner),
    max_leaves=6,
)
VALUES = st.fixed_dictionaries({n: st.none() | (INTS if k == "int" else FLOATS) for n, k in KINDS.items()})


def expected(node: Node, values: dict[str, Any]) -> Any:
    match node:
        case Value(name):
            return values[name]
        case Constant(value):
            return value
        case Arithmetic(op, left, right):
            sides = [expected(left, values), expected(right, values)]
            return None if None in sides else oracle.arithmetic(op, *sides)
    raise AssertionError(node)


@given(NODES, VALUES)
def test_formulas_are_arithmetic_of_what_is_known(node: Node, values: dict[str, Any]) -> None:
    result = evaluate(node, values)
    assert repr(result) == repr(expected(node, values))
    if result is not None:
        assert type(result) is {"int": int, "float": float}[kind_of(node, KINDS)]


@pytest.mark.parametrize(
    ("op", "a", "b", "result"),
    [
        ("/", 1, 0, None),
        ("/", 1.0, -0.0, None),
        ("/", 7, 2, 3.5),
        ("/", 2**63 - 1, 1, float(2**63)),
        ("+", 2**63 - 1, 1, None),
        ("-", -(2**63), 1, None),
        ("*", 2**32, 2**31, None),
        ("*", 2**31, 2**31, 2**62),
        ("*", 1e300, 1e300, None),
        ("+", 1, 0.5, 1.5),
        ("-", 1, None, None),
    ],
)
def test_what_no_engine_could_hold_is_missing(op: str, a: Any, b: Any, result: Any) -> None:
    assert repr(evaluate(Arithmetic(op, Value("a"), Value("b")), {"a": a, "b": b})) == repr(result)


@given(NODES)
def test_json_round_trip(node: Node) -> None:
    back = from_json(json.loads(json.dumps(to_json(node))))
    assert repr(back) == repr(node)


def test_what_is_no_formula() -> None:
    with pytest.raises(ValueError, match="not a derived feature"):
        from_json(["value"])
    for of_node in (lambda n: evaluate(n, {}), lambda n: kind_of(n, {}), to_json):
        with pytest.raises(TypeError, match="not a derived feature"):
            of_node(Node())
