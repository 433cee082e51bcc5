from __future__ import annotations

from typing import Any

import pytest

from leftfold.adopt import json_sample
from leftfold.adopt.fields import FieldShape, Found, LeftOut
from leftfold.fold.expressions import to_micros


def one(*values: Any) -> Found | LeftOut:
    (field,) = json_sample.shape_of([{"x": value} for value in values]).fields
    return field


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (["a", "2026-01-05T12:00:00Z"], Found("x", "string")),
        (["2026-01-05T12:00:00Z", "2026-01-05 12:00:00.5+02:00"], Found("x", "datetime")),
        (["2026-01-05T12:00:00"], Found("x", "string")),
        (["2026-01-05"], Found("x", "string")),
        ([1, -(2**63)], Found("x", "int")),
        ([1, 1.0], Found("x", "float")),
        ([True, False], Found("x", "bool")),
        ([None, 1], Found("x", "int", optional=True)),
        ([[], ["a"]], Found("x", "string", repeated=True)),
        ([[1], None, [2.5]], Found("x", "float", repeated=True, optional=True)),
    ],
)
def test_what_a_sample_shows(values: list[Any], field: Found) -> None:
    assert one(*values) == field


@pytest.mark.parametrize(
    "values",
    [[None], [[]], [{"y": 1}], [1, "a"], [True, 1], [2**63], [[1], 1], [[1, None]], [[1, "a"]], [[{"y": 1}]], [[[1]]]],
)
def test_what_it_does_not(values: list[Any]) -> None:
    assert isinstance(one(*values), LeftOut)


def test_what_some_records_lack_is_optional() -> None:
    assert json_sample.shape_of([{"a": 1}, {"b": "x", "a": 2}]).fields == (
        Found("a", "int"),
        Found("b", "string", optional=True),
    )


@pytest.mark.parametrize("value", [b"", b"[]", b"1", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000])
def test_what_is_no_object(value: bytes) -> None:
    assert json_sample.parsed(value) is None


def test_a_moment_as_views_read_it() -> None:
    from datetime import UTC, datetime

    assert json_sample.moment("2026-01-05T12:00:00Z") == to_micros(datetime(2026, 1, 5, 12, tzinfo=UTC))
    assert [json_sample.moment(v) for v in ("2026-01-05", 5, None, "\ud800")] == [None] * 4


def agreed(declared: Found, *records: dict[str, Any]) -> Found | LeftOut:
    return json_sample.agreed(FieldShape("Order", (declared,)), records).fields[0]


def test_records_correct_a_schema_that_they_do_not_keep_to() -> None:
    """Each of these would be rejected, all of the topic, if the schema were believed."""
    for declared, value, kind, optional in (
        (Found("x", "int"), 1.0, "float", False),
        (Found("x", "datetime"), "2026-01-05", "string", False),
        (Found("x", "string"), None, "string", True),
    ):
        field = agreed(declared, {"x": value})
        assert isinstance(field, Found)
        assert (field.kind, field.optional) == (kind, optional)
        assert field.notes
    absent = agreed(Found("x", "int"), {})
    assert isinstance(absent, Found)
    assert absent.optional


def test_records_that_are_read_all_the_same() -> None:
    for declared, value in (
        (Found("x", "float"), 1),
        (Found("x", "string"), "2026-01-05T12:00:00Z"),
        (Found("x", "int", optional=True), None),
        (Found("x", "int", repeated=True), []),
        (Found("x", "bytes"), "/w=="),
    ):
        assert agreed(declared, {"x": value}) == declared


def test_records_of_another_type() -> None:
    for declared, value in (
        (Found("x", "int"), "1"),
        (Found("x", "string"), 1),
        (Found("x", "int"), {"y": 1}),
        (Found("x", "int"), [1]),
    ):
        assert isinstance(agreed(declared, {"x": value}), LeftOut)


@pytest.mark.parametrize(
    ("kind", "rules", "value", "kept"),
    [
        ("int", (("ge", 0), ("lt", 9)), -1, (("lt", 9),)),
        ("float", (("gt", 0.5),), 0.5, ()),
        ("float", (("le", 0.5),), 0.5, (("le", 0.5),)),
        ("string", (("min_length", 1), ("max_length", 2)), "", (("max_length", 2),)),
        ("string", (("max_length", 2),), "abc", ()),
    ],
)
def test_limits_that_records_break(kind: Any, rules: Any, value: Any, kept: Any) -> None:
    field = agreed(Found("x", kind, rules=rules, optional=True), {"x": value}, {"x": None})
    assert isinstance(field, Found)
    assert field.rules == kept
    assert bool(field.notes) == (kept != rules)


def test_what_the_schema_does_not_have_is_named() -> None:
    fields = json_sample.agreed(FieldShape(None, (Found("x", "int"),)), [{"x": 1, "y": 2}]).fields
    assert fields[1] == LeftOut("y", "int", "records have it, the registered schema does not")


def test_without_records_the_schema_stands() -> None:
    declared = FieldShape(None, (Found("x", "int"),))
    assert json_sample.agreed(declared, []) == declared
