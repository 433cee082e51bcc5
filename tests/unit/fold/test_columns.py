from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.fold.columns import OVERFLOW, Column, final, mean, merge, partial, units
from leftfold.fold.expressions import FieldRef, from_micros
from leftfold.fold.values import Kind

COUNT = Column("count", None, "int")
MONEY = Column("sum", "price", "float", scale=2)
FINE = Column("sum", "price", "float", scale=6)
WHOLE = Column("sum", "price", "int")
LAST = Column("last", "price", "string")
KNOWN = Column("count", "price", "int")
LEAST, MOST = Column("min", "price", "float"), Column("max", "price", "float")
RECENT = Column("last_n", "price", "float", size=3)
DIFFERENT = Column("distinct", "price", "string", size=9)

_PRICES = st.none() | st.floats(-1e6, 1e6)
_ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False)


def rows(*values: Any) -> list[dict[str, Any]]:
    return [{"price": v} for v in values]


def read(column: Column, tiles: list[list[dict[str, Any]]]) -> Any:
    return final(column, merge(column, [partial(column, tile) for tile in tiles]))


def test_nothing_is_none_except_what_is_counted_or_listed() -> None:
    assert [read(c, []) for c in (COUNT, MONEY, WHOLE, LAST)] == [0, None, None, None]
    assert [read(c, [rows(None)]) for c in (MONEY, WHOLE, LAST)] == [None, None, None]
    assert read(COUNT, [rows(None), []]) == 1
    for nothing in ([], [rows(None)], [rows(None), []]):
        assert [read(c, nothing) for c in (KNOWN, LEAST, MOST, RECENT, DIFFERENT)] == [0, None, None, [], 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1] * 10, 1.0),  # not 0.9999999999999999
        ([0.1, 0.2], 0.3),
        ([1e15, 0.01, -1e15], 0.01),
        ([-0.01, -0.02], -0.03),
        ([0.005], 0.01),
        ([-0.005], 0.0),  # half goes up, below zero too
        ([0.004, 0.004, 0.004], 0.0),  # each event is kept to two decimals
    ],
)
def test_sums_of_money_are_exact(values: list[float], expected: float) -> None:
    assert read(MONEY, [rows(*values)]) == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_sums_of_ints_are_exact(values: list[int]) -> None:
    """Or unknown, where no engine could hold the result in 64 bits."""
    result = read(WHOLE, [rows(v) for v in values])
    assert result == (sum(values) if -(2**63) <= sum(values) < 2**63 else None)
    assert isinstance(result, int | None)


def test_an_int_that_left_64_bits_may_come_back() -> None:
    assert read(WHOLE, [rows(2**63 - 1), rows(1)]) is None
    assert read(WHOLE, [rows(2**63 - 1), rows(1), rows(-1)]) == 2**63 - 1
    assert read(WHOLE, [rows(-(2**63))]) == -(2**63)


@given(st.lists(_ANY_FLOAT, min_size=1, max_size=5), st.sampled_from([0, 2, 6, 15]))
def test_a_sum_of_floats_is_right_or_unknown(values: list[float], scale: int) -> None:
    """Never a wrong number: within half a unit per event, or None because one did not fit."""
    result = read(Column("sum", "price", "float", scale=scale), [rows(*values)])
    too_large = any(abs(v) * 10.0**scale >= 2.0**63 * 1.01 for v in values)
    small = all(abs(v) * 10.0**scale <= 2.0**63 * 0.99 for v in values)
    assert result is None or small or not too_large
    if too_large:
        assert result is None
    if small:
        assert result is not None
        # A unit of rounding per event, and the doubles' own spacing where they are coarser than a unit.
        slack = sum(0.5 * 10.0**-scale + 2 * math.ulp(v) for v in values) + 2 * math.ulp(max(map(abs, values)))
        assert math.isclose(result, math.fsum(values), rel_tol=0, abs_tol=slack)


@pytest.mark.parametrize("huge", [1e300, -1e300, 2.0**63, 1e14, math.inf, math.nan])
def test_a_value_that_does_not_fit_makes_the_sum_unknown(huge: float) -> None:
    assert units(huge, FINE) == OVERFLOW
    assert read(FINE, [rows(1.0), rows(huge, 2.0)]) is None
    assert read(FINE, [rows(huge), rows(-huge)]) is None  # two unknowns do not cancel
    assert read(FINE, [rows(huge)] * 1_000) is None


def test_ordinary_values_cannot_undo_an_overflow() -> None:
    """Even a billion events of the largest value that fits stay below the mark."""
    largest = units(9.2e12, FINE)
    assert final(FINE, OVERFLOW - 10**9 * largest) is None
    assert final(FINE, 10**9 * largest) is not None


@given(st.lists(_PRICES, max_size=6), st.randoms(use_true_random=False))
def test_order_does_not_matter_to_counts_and_sums(values: list[float | None], chance: Any) -> None:
    shuffled = list(values)
    chance.shuffle(shuffled)
    for column in (COUNT, KNOWN, MONEY, FINE, LEAST, MOST):
        assert read(column, [rows(*shuffled)]) == read(column, [rows(*values)])


@given(st.lists(_ANY_FLOAT | st.sampled_from([0.0, -0.0]), min_size=1, max_size=4))
def test_every_permutation_gives_the_same_bits(values: list[float]) -> None:
    for column in (FINE, LEAST, MOST):
        results = {repr(read(column, [rows(v) for v in order])) for order in itertools.permutations(values)}
        assert len(results) == 1


@given(st.lists(st.sampled_from([None, "", "a", "b", "c", "é"]), max_size=5), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter_to_distinct(values: list[str | None], chance: Any) -> None:
    again = values * 2
    chance.shuffle(again)
    assert read(DIFFERENT, [rows(v) for v in again]) == read(DIFFERENT, [rows(*values)]) == len({*values} - {None, ""})


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0), (-0.0,)])
def test_a_zero_has_no_sign(zeros: tuple[float, ...]) -> None:
    assert [repr(read(c, [rows(*zeros)])) for c in (LEAST, MOST)] == ["0.0", "0.0"]


def test_the_mean_of_a_sum_and_a_count() -> None:
    assert [mean(3, 2), mean(0.3, 3), mean(None, 3), mean(0, 0)] == [1.5, 0.3 / 3, None, None]


@given(st.lists(_PRICES, max_size=8), st.data())
def test_tiles_may_be_cut_anywhere(values: list[float | None], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    kept = Column("last", "price", "float")
    for column in (COUNT, KNOWN, MONEY, FINE, LEAST, MOST, kept, RECENT):
        assert read(column, [rows(*values[:cut]), rows(*values[cut:])]) == read(column, [rows(*values)])


@given(st.lists(st.lists(_PRICES, max_size=3), max_size=4), st.data())
def test_merging_is_associative(tiles: list[list[float | None]], data: st.DataObject) -> None:
    kept = Column("last", "price", "float")
    cut = data.draw(st.integers(0, len(tiles)))
    for column in (COUNT, KNOWN, MONEY, LEAST, MOST, kept, RECENT):
        parts = [partial(column, rows(*tile)) for tile in tiles]
        halves = [merge(column, parts[:cut]), merge(column, parts[cut:])]
        assert merge(column, halves) == merge(column, parts)


def test_last_skips_what_is_missing() -> None:
    assert read(LAST, [rows("a", "b"), rows(None), []]) == "b"


def test_last_n_is_newest_first_across_tiles() -> None:
    assert read(RECENT, [rows(1.0, 2.0), rows(None, 3.0), rows(4.0, None)]) == [4.0, 3.0, 2.0]
    assert read(RECENT, [rows(1.0, 2.0, 3.0, 4.0, 5.0)]) == [5.0, 4.0, 3.0]
    assert read(RECENT, [rows(1.0)]) == [1.0]


def test_a_count_of_a_field_counts_where_it_is_known() -> None:
    assert read(KNOWN, [rows(1.0, None), rows(None)]) == 1


def test_where_leaves_out_what_is_false_and_what_is_unknown() -> None:
    dear = Column("count", None, "int", where=FieldRef("price", "float") > 1.0)
    assert read(dear, [rows(0.5, None, 2.0, 3.0)]) == 2
    assert read(Column("last", "price", "float", where=dear.where), [rows(2.0, 0.5)]) == 2.0


@pytest.mark.parametrize(
    ("kind", "held", "expected"),
    [
        ("datetime", 1, from_micros(1)),
        ("float", 3, 3.0),
        ("int", 3, 3),
        ("string", "x", "x"),
        ("bool", False, False),
    ],
)
def test_what_a_person_reads(kind: Kind, held: Any, expected: Any) -> None:
    value = read(Column("last", "price", kind), [rows(held)])
    assert (value, type(value)) == (expected, type(expected))
    (listed,) = read(Column("last_n", "price", kind, size=1), [rows(held)])
    assert (listed, type(listed)) == (expected, type(expected))


def test_moments_are_compared_and_read_as_moments() -> None:
    first, last = Column("min", "price", "datetime"), Column("max", "price", "datetime")
    assert [read(c, [rows(3, 1), rows(2)]) for c in (first, last)] == [from_micros(1), from_micros(3)]


@given(st.lists(st.none() | _ANY_FLOAT, max_size=4))
def test_partials_survive_json(values: list[float | None]) -> None:
    """A store keeps them as JSON: what comes back must read the same."""
    kept = Column("last", "price", "float")
    for column in (COUNT, KNOWN, FINE, LEAST, MOST, kept, RECENT):
        part = partial(column, rows(*values))
        assert final(column, json.loads(json.dumps(part))) == final(column, part)


@pytest.mark.parametrize(
    "column",
    [COUNT, KNOWN, MONEY, WHOLE, LAST, RECENT, DIFFERENT, Column("count", None, "int", where=FieldRef("n", "int") > 3)],
)
def test_column_json_round_trip(column: Column) -> None:
    back = Column.from_json(json.loads(json.dumps(column.as_json())))
    assert back == column
    assert hash(back) == hash(column)
    assert back.as_json() == column.as_json()
    assert back.fields() == column.fields()


def test_fields() -> None:
    assert Column("sum", "price", "float", where=FieldRef("n", "int") > 3).fields() == {"price", "n"}
    assert COUNT.fields() == set()
