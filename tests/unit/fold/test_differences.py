"""What differs between two tables of features: which values are equal, which are near, and how they are shown."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from leftfold.fold.differences import FeatureDifference, common_kind, differences_of, text_of
from leftfold.fold.values import Kind


def counted(
    kind: Kind, *pairs: tuple[Any, Any], nothing: Any = None, tolerance: float = 0.0, top: int = 9
) -> FeatureDifference:
    """Compare pairs of values of the entities e0, e1, …"""
    rows = ((f"e{i}", {"f": left}, {"f": right}) for i, (left, right) in enumerate(pairs))
    found = differences_of(rows, {"f": kind}, ["f"], {"f": nothing}, tolerance=tolerance, top=top)
    assert found.entities == len(pairs)
    return found.features[0]


def fates(found: FeatureDifference) -> tuple[int, int, int, int]:
    return found.equal, found.different, found.only_left, found.only_right


def test_a_value_is_equal_different_or_on_one_side_only() -> None:
    assert fates(counted("int", (1, 1), (None, None), (1, 2), (3, None), (None, 4))) == (1, 1, 1, 1)


@pytest.mark.parametrize(("kind", "nothing", "something"), [("int", 0, 3), ("string", [], ["a"]), ("float", None, 0.0)])
def test_what_both_sides_lack_is_empty_and_not_equal(kind: Kind, nothing: Any, something: Any) -> None:
    found = counted(kind, (nothing, nothing), (None, None), (something, something), nothing=nothing)
    assert (found.equal, found.empty, found.largest) == (1, 2, ())


@pytest.mark.parametrize(("left", "right"), [(0.0, -0.0), (math.nan, math.nan), (3, 3.0), ([1, 2.5], [1.0, 2.5])])
def test_equal_numbers(left: Any, right: Any) -> None:
    assert fates(counted("float", (left, right))) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("left", "right"), [(3, 3.75), ([1.0], [1.0, 1.0]), ([math.nan], [1.0]), (math.inf, -math.inf)]
)
def test_different_numbers(left: Any, right: Any) -> None:
    assert fates(counted("float", (left, right))) == (0, 1, 0, 0)


def test_a_tolerance_is_relative_and_nothing_is_near_to_the_infinite() -> None:
    pairs = [(100.0, 101.0), (100.0, 102.0), (1.0, 1.02), (math.inf, 5.0), (5.0, math.nan), (0.0, 1e-9)]
    assert fates(counted("float", *pairs, tolerance=0.01)) == (1, 5, 0, 0)
    assert fates(counted("string", ("a", "b"), tolerance=0.9)) == (0, 1, 0, 0)
    assert fates(counted("bool", (False, True), tolerance=1.0)) == (0, 1, 0, 0)


def test_the_largest_differences_come_first_and_missing_values_before_all() -> None:
    found = counted("int", (5, 6), (5, 1), (5, 5), (2, None), (7, 3), top=3)
    assert [(one.entity, one.difference) for one in found.largest] == [("e3", None), ("e1", -4.0), ("e4", -4.0)]
    assert counted("int", (1, 2), top=0).largest == ()
    assert counted("float", (1.0, math.inf)).largest[0].difference is None, "JSON has no infinite number"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (12, "12"),
        (1e16, "1e+16"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        ("ä" * 300, "ä" * 200),
        ([1.0, None, "ä"], '[1.0,null,"ä"]'),
        (datetime(2026, 3, 1, 9, tzinfo=UTC), "2026-03-01 09:00:00"),
        ([datetime(2026, 3, 1, 9, 0, 0, 500_000, UTC)], '["2026-03-01 09:00:00.5"]'),
    ],
)
def test_the_text_that_is_shown(value: Any, text: str | None) -> None:
    assert text_of(value) == text


def test_whole_numbers_and_others_are_compared_as_others() -> None:
    assert common_kind("int", "float") == common_kind("float", "int") == "float"
    assert common_kind("string", "string") == "string"
    assert common_kind("string", "int") is None
