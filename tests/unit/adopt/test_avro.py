from __future__ import annotations

import json
from typing import Any

import pytest

from leftfold.adopt import avro
from leftfold.adopt.fields import FieldShape, Found, LeftOut
from tests.unit.adopt.topics import avro_record, avro_value


def shape(*fields: Any, **more: Any) -> FieldShape:
    return avro.shape_of(json.dumps(avro_record(*fields, **more)))


def one(type_: Any, **more: Any) -> Found | LeftOut:
    (field,) = shape({"name": "x", "type": type_, **more}).fields
    return field


def test_only_microseconds_are_a_datetime() -> None:
    """No reader converts a unit: milliseconds read as a datetime would be moments of January 1970."""
    assert one({"type": "long", "logicalType": "timestamp-micros"}) == Found("x", "datetime")
    for unit in ("timestamp-millis", "timestamp-nanos", "local-timestamp-micros", "time-micros"):
        field = one({"type": "long", "logicalType": unit})
        assert isinstance(field, Found)
        assert field.kind == "int"
        assert unit in field.notes[0]
        assert field.epoch == unit.startswith("timestamp-")


@pytest.mark.parametrize(
    ("type_", "what", "why"),
    [
        ({"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}, "enum Colour of RED, BLUE", "no other type"),
        ({"type": "fixed", "name": "Hash", "size": 2}, "fixed Hash", "no other type"),
        (avro_record(name="Inner"), "record Inner", "flatten it"),
        ({"type": "map", "values": "int"}, "map", "flatten the keys"),
        (["null", "int", "string"], "a union of null, int, string", "one type"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "decimal", "decimal number"),
        ({"type": "array", "items": ["null", "int"]}, "a list of a union", "null"),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, "a list of array", "list of plain values"),
        ("null", "null", "plain value"),
    ],
)
def test_what_is_left_out(type_: Any, what: str, why: str) -> None:
    field = one(type_, doc="About it.")
    assert isinstance(field, LeftOut)
    assert (field.what, field.doc) == (what, "About it.")
    assert why in field.why


def test_a_type_by_its_name() -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    first, second = shape(("a", colour), ("b", ["null", "Colour"]), namespace="com.shop").fields
    assert isinstance(first, LeftOut)
    assert isinstance(second, LeftOut)
    assert first.what == second.what == "enum Colour of RED"


def test_defaults() -> None:
    assert one("double", default=1) == Found("x", "float", default=1.0)
    assert one("bytes", default="\u00ff") == Found("x", "bytes", default=b"\xff")
    assert one(["null", "string"], default=None) == Found("x", "string", optional=True)
    assert one(["string", "null"], default="a") == Found("x", "string", optional=True, default="a")
    assert one({"type": "array", "items": "int"}, default=[1]) == Found("x", "int", repeated=True, default=[1])
    moment = one({"type": "long", "logicalType": "timestamp-micros"}, default=5)
    assert moment == Found("x", "datetime", notes=("its default 5 is not taken over",))


def test_what_connect_means_by_a_number() -> None:
    field = one({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"})
    assert isinstance(field, Found)
    assert (field.kind, field.notes) == ("int", ("a number: its writer means io.debezium.time.MicroTimestamp by it",))


def test_names_and_docs() -> None:
    found = shape({"name": "id", "type": "string", "doc": "Its id."}, name="com.shop.Order", doc="An order.")
    assert (found.name, found.doc, found.found[0].doc) == ("Order", "An order.", "Its id.")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('"string"', "of type string"),
        ('["null", "string"]', "of type union"),
        ('{"type": "enum", "name": "A", "symbols": ["B"]}', "of type enum"),
        ('{"type": "record", "name": "A", "fields": [{"name": "x", "type": "com.shop.B"}]}', "refers to com.shop.B"),
        ('syntax = "proto3";', "cannot be parsed as Avro"),
        ('{"type": "record"}', "cannot be parsed as Avro"),
    ],
)
def test_what_is_no_record(schema: str, why: str) -> None:
    with pytest.raises(avro.NotARecordError, match=why):
        avro.shape_of(schema)


def test_values_are_those_that_were_written() -> None:
    schema = avro_record(("at", {"type": "long", "logicalType": "timestamp-millis"}), ("id", "string"))
    written = avro_value(avro_record(("at", "long"), ("id", "string")), 7, {"at": 2**62, "id": "a"})
    assert avro.values(json.dumps(schema), written) == {"at": 2**62, "id": "a"}
    assert avro.values(json.dumps(schema), written[:-1]) is None
