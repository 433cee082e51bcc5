from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.errors import DeclarationError
from leftfold.fold.expressions import (
    COMPARISONS,
    Both,
    Compare,
    Expression,
    FieldRef,
    Length,
    condition,
    evaluate,
    fields_of,
    from_json,
    from_micros,
    to_json,
    to_micros,
)
from leftfold.fold.values import Kind, entity_text

PRICE = FieldRef("price", "float")
COST = FieldRef("cost", "float")
ITEM = FieldRef("item", "string")
FLAG = FieldRef("flag", "bool")
N = FieldRef("n", "int")
AT = FieldRef("at", "datetime")
RAW = FieldRef("raw", "bytes")


def code_of(make: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert caught.value.source is not None
    assert caught.value.source.file == __file__
    return caught.value.code


# Times --------------------------------------------------------------------------------------------------------------


@given(st.datetimes(timezones=st.just(UTC)))
def test_micros_round_trip(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


def test_micros_are_of_the_moment_not_of_the_clock_on_the_wall() -> None:
    assert to_micros(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0
    assert to_micros(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


# Three-valued logic against a truth table ---------------------------------------------------------------------------

# SQL's table, written out by hand: (left, right) -> (and, or).
TRUTH: dict[tuple[bool | None, bool | None], tuple[bool | None, bool | None]] = {
    (True, True): (True, True),
    (True, False): (False, True),
    (True, None): (None, True),
    (False, True): (False, True),
    (False, False): (False, False),
    (False, None): (False, None),
    (None, True): (None, True),
    (None, False): (False, None),
    (None, None): (None, None),
}
# A condition with each answer, on an event whose price is 1.0 and whose cost is missing.
ANSWERS: dict[bool | None, Expression] = {True: PRICE > 0.0, False: PRICE < 0.0, None: COST > 0.0}
EVENT = {"price": 1.0, "cost": None, "item": "é", "flag": True, "n": 3, "at": 5}


@pytest.mark.parametrize(("left", "right"), list(TRUTH))
def test_and_or(left: bool | None, right: bool | None) -> None:
    a, b = ANSWERS[left], ANSWERS[right]
    assert (evaluate(a & b, EVENT), evaluate(a | b, EVENT)) == TRUTH[left, right]


@st.composite
def _trees(draw: st.DrawFn, depth: int = 4) -> tuple[Expression, bool | None]:
    """A tree of & and | with the answer that folding the truth table by hand gives."""
    if depth == 0 or draw(st.booleans()):
        answer = draw(st.sampled_from([True, False, None]))
        return ANSWERS[answer], answer
    (left, a), (right, b) = draw(_trees(depth=depth - 1)), draw(_trees(depth=depth - 1))
    both, either = TRUTH[a, b]
    return (left & right, both) if draw(st.booleans()) else (left | right, either)


@given(_trees())
def test_nested_conditions(tree: tuple[Expression, bool | None]) -> None:
    expression, expected = tree
    assert evaluate(expression, EVENT) is expected


ORDER = {"=": (0,), "!=": (-1, 1), ">": (1,), ">=": (0, 1), "<": (-1,), "<=": (-1, 0)}


@given(st.sampled_from(COMPARISONS), st.integers(-2, 2) | st.none(), st.integers(-2, 2))
def test_comparisons(op: str, held: int | None, bound: int) -> None:
    expected = None if held is None else (held > bound) - (held < bound) in ORDER[op]
    assert evaluate(Compare(op, N, bound), {"n": held}) is expected


@given(st.sampled_from(COMPARISONS), st.floats(-2, 2) | st.none(), st.floats(-2, 2) | st.none())
def test_comparisons_of_two_fields(op: str, a: float | None, b: float | None) -> None:
    expected = None if a is None or b is None else (a > b) - (a < b) in ORDER[op]
    assert evaluate(Compare(op, PRICE, COST), {"price": a, "cost": b}) is expected


def test_none_asks_whether_a_value_is_missing() -> None:
    missing, present = COST == None, COST != None  # noqa: E711 # how people write it in a condition
    assert [evaluate(missing, {"cost": c}) for c in (None, 0.0)] == [True, False]
    assert [evaluate(present, {"cost": c}) for c in (None, 0.0)] == [False, True]


def test_length_counts_characters() -> None:
    assert evaluate(Length("<=", ITEM, 1), EVENT) is True
    assert evaluate(Length(">=", ITEM, 2), EVENT) is False
    assert evaluate(Length(">=", ITEM, 2), {"item": None}) is None


# What people write --------------------------------------------------------------------------------------------------


def test_a_constant_may_stand_on_either_side() -> None:
    assert to_json(PRICE > 100) == to_json(PRICE > 100)


def test_an_int_is_compared_with_a_float_as_a_float() -> None:
    assert (PRICE > 100).right == 100.0
    assert isinstance((PRICE > 100).right, float)


def test_a_datetime_constant_is_micros() -> None:
    assert (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC) <= AT).right == 1_000_000


@pytest.mark.parametrize(
    ("left", "right"),
    [(PRICE, "x"), (N, 1.5), (N, True), (FLAG, 1), (ITEM, 1), (AT, 0), (PRICE, N), (N, PRICE), (ITEM, None), (N, [1])],
)
def test_kinds_must_agree(left: FieldRef, right: Any) -> None:
    assert code_of(lambda: left > right) == "condition-kinds"


def test_bytes_can_be_compared_or_the_message_says_why_not() -> None:
    """Not "raw is bytes, and b'x' is bytes"."""
    try:
        told = json.dumps(to_json(RAW == b"x"))
    except DeclarationError as error:
        told = error.what
    assert "raw is bytes, and b'x' is bytes" not in told


@pytest.mark.parametrize("constant", [math.nan, math.inf, -math.inf])
def test_constants_are_finite(constant: float) -> None:
    """NaN is greater than everything in Spark and than nothing in Python, and JSON has neither NaN nor infinity."""
    with pytest.raises(DeclarationError):
        _ = constant < PRICE


def test_naive_datetimes_are_refused() -> None:
    assert code_of(lambda: datetime(2026, 1, 1) < AT) == "naive-datetime"


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: (PRICE > 1) and (PRICE < 2),
        lambda: not (PRICE > 1),
        lambda: 1 < PRICE < 2,
        lambda: ITEM in ("a", "b"),
        lambda: bool(PRICE),
    ],
)
def test_python_cannot_be_asked(misuse: Any) -> None:
    assert code_of(misuse) == "condition-as-bool"


def test_a_condition_is_not_compared() -> None:
    assert code_of(lambda: (PRICE > 1) == True) == "condition-compared"  # noqa: E712 # that is the mistake


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: (PRICE > 1) & True,
        lambda: (PRICE > 1) | FLAG,
        lambda: FLAG & (PRICE > 1),  # the left side too
        lambda: FLAG | (PRICE > 1),
        lambda: condition(True),
        lambda: condition("price > 1"),
        lambda: condition(FLAG),
    ],
)
def test_only_conditions_are_combined(misuse: Any) -> None:
    assert code_of(misuse) == "not-a-condition"


def test_no_condition_is_none() -> None:
    assert condition(None) is None


# As data ------------------------------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["price", "item", "at", "and", "or", "value", "field", "length", "="])
_KINDS: dict[Kind, st.SearchStrategy[Any]] = {
    "string": st.text(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
}


@st.composite
def _comparisons(draw: st.DrawFn) -> Expression:
    kind = draw(st.sampled_from(sorted(_KINDS)))
    left = FieldRef(draw(_NAMES), kind)
    if kind == "string" and draw(st.booleans()):
        return Length(draw(st.sampled_from(COMPARISONS)), left, draw(st.integers(0, 100)))
    right = draw(_KINDS[kind] | st.builds(FieldRef, _NAMES, st.just(kind)))
    return Compare(draw(st.sampled_from(COMPARISONS)), left, right)


_EXPRESSIONS = st.recursive(
    _comparisons(), lambda inner: st.builds(Both, st.sampled_from(["and", "or"]), inner, inner), max_leaves=8
)


@given(_EXPRESSIONS)
def test_json_round_trip(expression: Expression) -> None:
    written = json.loads(json.dumps(to_json(expression)))
    assert to_json(from_json(written)) == to_json(expression)


@given(_EXPRESSIONS)
def test_fields_are_those_in_the_json(expression: Expression) -> None:
    def names(tree: Any) -> set[str]:
        if not isinstance(tree, list):
            return set()
        if len(tree) == 3 and tree[0] == "field" and isinstance(tree[1], str) and tree[2] in _KINDS:
            return {tree[1]}
        return set[str]().union(*map(names, [t for t in tree if not (isinstance(t, list) and t[:1] == ["value"])]))

    assert fields_of(expression) == names(to_json(expression))


@pytest.mark.parametrize("tree", [[], ["field"], [">", ["value", 1], ["value", 2]], "price", [">", ["field", "a"]]])
def test_what_is_no_expression(tree: Any) -> None:
    with pytest.raises(ValueError, match="not a"):
        from_json(tree)


@given(
    st.lists(st.text() | st.integers(), min_size=2, max_size=3),
    st.lists(st.text() | st.integers(), min_size=2, max_size=3),
)
def test_keys_of_several_parts_do_not_collide(a: list[Any], b: list[Any]) -> None:
    assert (entity_text(a) == entity_text(b)) == ([str(part) for part in a] == [str(part) for part in b])


def test_key_text() -> None:
    assert entity_text(["u:1"]) == "u:1"
    assert entity_text(["é", 7]) == "2:é1:7"
    assert entity_text(["a:b", "c"]) != entity_text(["a", "b:c"])


@given(st.integers(-(10**16), 10**17))
def test_microseconds_as_datetime_are_exact(value: int) -> None:
    assert from_micros(value) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)


@given(st.integers(2**32 * 10**6 - 10**9, 2**32 * 10**6 + 10**9))
def test_microseconds_as_datetime_are_exact_where_the_way_changes(value: int) -> None:
    assert to_micros(from_micros(value)) == value
