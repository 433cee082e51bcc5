from __future__ import annotations

import json
from typing import Any

import pytest

from leftfold.adopt import json_schema
from leftfold.adopt.fields import Found, LeftOut


def one(schema: Any, *, required: bool = True, defined: Any = None) -> Found | LeftOut:
    """`defined` is what the schema may refer to as #/$defs/x."""
    shape = {"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []}
    text = {**shape, "$defs": {"x": defined}}
    (field,) = json_schema.shape_of(json.dumps(text)).fields
    return field


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "string"}, Found("x", "string")),
        (
            {"type": "string", "minLength": 1, "maxLength": 9},
            Found("x", "string", rules=(("min_length", 1), ("max_length", 9))),
        ),
        ({"type": "string", "contentEncoding": "base64"}, Found("x", "bytes")),
        ({"enum": ["a", "b"]}, Found("x", "string")),
        ({"const": "a"}, Found("x", "string")),
        ({"type": "integer", "minimum": 0, "exclusiveMaximum": 9.0}, Found("x", "int", rules=(("ge", 0), ("lt", 9)))),
        ({"type": "number", "minimum": 0.5, "exclusiveMinimum": True}, Found("x", "float", rules=(("gt", 0.5),))),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": False}, Found("x", "float", rules=(("ge", 1),))),
        ({"type": "boolean", "description": "Or not."}, Found("x", "bool", doc="Or not.")),
        ({"type": ["null", "integer"]}, Found("x", "int", optional=True)),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, Found("x", "string", optional=True)),
        ({"type": "array", "items": {"type": "number", "minimum": 0}}, Found("x", "float", repeated=True)),
        ({"$ref": "#/$defs/x"}, Found("x", "int")),
    ],
)
def test_what_can_be_declared(schema: Any, field: Found) -> None:
    assert one(schema, defined={"type": "integer"}) == field


def test_what_is_not_required_is_optional() -> None:
    assert one({"type": "string"}, required=False) == Found("x", "string", optional=True)


def test_a_default_is_not_a_value_that_was_written() -> None:
    field = one({"type": "string", "default": "a"}, required=False)
    assert isinstance(field, Found)
    assert (field.optional, field.default) == (True, None)
    assert '"a"' in field.notes[0]


def test_a_moment_needs_seconds_and_a_zone() -> None:
    field = one({"type": "string", "format": "date-time"})
    assert isinstance(field, Found)
    assert field.kind == "datetime"
    assert "seconds and a time zone" in field.notes[0]


def test_a_limit_between_whole_numbers() -> None:
    field = one({"type": "integer", "minimum": 0.5})
    assert field == Found("x", "int", notes=("a limit that is no whole number is not taken over",))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "array"},
        {"type": "array", "items": {"type": "object"}},
        {"type": "array", "items": {"type": ["integer", "null"]}},
        {"type": ["integer", "string"]},
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        {"$ref": "#/$defs/x"},
        {"$ref": "other.json#/id"},
        {"enum": [1, "a"]},
        {"type": "null"},
        {},
        True,
    ],
)
def test_what_is_left_out(schema: Any) -> None:
    assert isinstance(one(schema, defined={"$ref": "#/$defs/x"}), LeftOut)


def test_which_text_is_a_json_schema() -> None:
    assert json_schema.is_json_schema('{"type": "object"}')
    assert json_schema.is_json_schema('{"properties": {}}')
    for other in ('{"type": "record", "name": "A", "fields": []}', '"string"', '["null"]', 'syntax = "proto3";'):
        assert not json_schema.is_json_schema(other)
