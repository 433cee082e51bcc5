"""Verdicts on Avro schemas by the rules of the specification, each rule by its own pair."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.compatibility import Verdict, is_whole, verdict
from leftfold.declare.schema import avro_schema


def record(*fields: Any, name: str = "Click", **more: Any) -> str:
    """A field is (name, type) or (name, type, default)."""
    described = [
        {"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} if isinstance(f, tuple) else f
        for f in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": described, **more})


def of(kind: Any) -> str:
    return record(("a", kind))


def both(old: str, new: str) -> tuple[bool, bool]:
    """Whether the new one reads old records, and the old one new records."""
    return verdict([old], new, "BACKWARD").compatible, verdict([old], new, "FORWARD").compatible


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"),
    [
        (record(("a", "long")), record(("a", "long"), ("b", "long")), False, True),  # added
        (record(("a", "long")), record(("a", "long"), ("b", "long", 1)), True, True),
        (record(("a", "long")), record(("a", "long"), ("b", ["null", "long"], None)), True, True),
        (record(("a", "long"), ("b", "long")), record(("a", "long")), True, False),  # removed
        (record(("a", "long"), ("b", "long", 1)), record(("a", "long")), True, True),
        (record(("a", "long")), record(("b", "long")), False, False),  # renamed
        (record(("a", "long"), ("b", "long")), record(("b", "long"), ("a", "long")), True, True),  # in another order
        (of("int"), of("long"), True, False),
        (of("int"), of("float"), True, False),
        (of("int"), of("double"), True, False),
        (of("long"), of("float"), True, False),
        (of("long"), of("double"), True, False),
        (of("float"), of("double"), True, False),
        (of("string"), of("bytes"), True, True),
        (of("long"), of("string"), False, False),
        (of("boolean"), of("int"), False, False),
        (of("string"), of(["null", "string"]), True, False),
        (of(["null", "string"]), of(["string", "null"]), True, True),
        (of(["null", "int"]), of(["null", "long"]), True, False),
        (of(["null", "int"]), of(["null", "int", "string"]), True, False),
        (of(["int", "long"]), of("double"), True, False),  # every branch can be read
        (of(["null"]), of("null"), True, True),
        (of({"type": "array", "items": "int"}), of({"type": "array", "items": "long"}), True, False),
        (of({"type": "array", "items": "int"}), of({"type": "map", "values": "int"}), False, False),
        (of({"type": "map", "values": "int"}), of({"type": "map", "values": "string"}), False, False),
        (of(enum("A")), of(enum("A", "B")), True, False),
        (of(enum("A", "B")), of(enum("A", default="A")), True, True),
        (of(enum("A")), of(enum("A", name="G")), False, False),
        (of(enum("A")), of("string"), False, False),
        (of(fixed(4)), of(fixed(8)), False, False),
        (of(fixed(4)), of(fixed(4, name="G")), False, False),
        (of(fixed(4)), of(fixed(4, name="G", aliases=["F"])), True, False),
        (of(fixed(4)), of("bytes"), False, False),
        (record(("a", "long")), record(("a", "long"), name="Tap"), False, False),
        (record(("a", "long")), record(("a", "long"), name="Tap", aliases=["Click"]), True, False),
        (record(("a", "long")), record(("a", "long"), namespace="shop"), True, True),  # names without namespaces
        (
            record(("a", "long"), namespace="shop"),
            record(("a", "long"), name="Tap", namespace="shop", aliases=["Click"]),
            True,
            False,
        ),
        (record(("a", "long")), record({"name": "b", "type": "long", "aliases": ["a"]}), True, False),
        (record(("a", "long"), ("b", "long")), record({"name": "b", "type": "long", "aliases": ["a"]}), False, False),
        (of({"type": "long"}), of("long"), True, True),
        (of({"type": {"type": "long"}}), of("long"), True, True),
        (of({"type": "long", "logicalType": "timestamp-micros"}), of("long"), True, True),
        (json.dumps("int"), json.dumps("long"), True, False),
        (record(("a", "long")), json.dumps(["null", json.loads(record(("a", "long")))]), True, False),
    ],
)
def test_rules(old: str, new: str, backward: bool, forward: bool) -> None:
    assert both(old, new) == (backward, forward)
    assert verdict([old], new, "FULL").compatible == (backward and forward)
    assert verdict([old], new, "NONE").compatible


def test_a_level_asks_the_newest_and_transitively_all() -> None:
    first, second = record(("a", "int")), record(("a", "long"))
    third = record(("a", "double"))
    assert verdict([first, second], third, "BACKWARD_TRANSITIVE").compatible
    back = record(("a", "int"))
    assert verdict([second, first], back, "FULL").compatible
    refused = verdict([second, first], back, "FULL_TRANSITIVE")
    assert [(b.version, b.direction) for b in refused.breaks] == [(1, "backward")]
    assert verdict([], back, "FULL_TRANSITIVE").compatible


def test_types_inside_themselves() -> None:
    def tree(value: str) -> str:
        return record(("value", value), ("children", {"type": "array", "items": "Tree"}), name="Tree")

    assert both(tree("int"), tree("long")) == (True, False)
    assert both(tree("int"), tree("int")) == (True, True)


def test_a_named_type_is_the_same_wherever_it_is_used() -> None:
    def pair(size: int) -> str:
        return record(("a", fixed(size)), ("b", "F"), namespace="shop")

    assert both(pair(4), pair(4)) == (True, True)
    assert both(pair(4), pair(5)) == (False, False)


def told(made: Verdict) -> list[tuple[str, str, str]]:
    return [(b.direction, b.where, b.kind) for b in made.breaks]


def test_a_break_names_the_field_and_who_cannot_read_whom() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
    other = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "long"}]}
    old = record(("price", "double"), ("lines", {"type": "array", "items": line}))
    new = record(("cost", "double"), ("lines", {"type": "array", "items": other}))
    made = verdict([old], new, "FULL")
    assert told(made) == [
        ("backward", "cost", "missing"),
        ("backward", "lines[].sku", "type"),
        ("forward", "price", "missing"),
        ("forward", "lines[].sku", "type"),
    ]
    assert str(made).splitlines() == [
        "not compatible under FULL",
        "  ✗ cost: a reader with the new schema cannot read records of version 1: "
        "the records lack it, and the reader has no default for it",
        "  ✗ lines[].sku: a reader with the new schema cannot read records of version 1: string cannot be read as long",
        "  ✗ price: a reader with version 1 cannot read records of the new schema: "
        "the records lack it, and the reader has no default for it",
        "  ✗ lines[].sku: a reader with version 1 cannot read records of the new schema: long cannot be read as string",
    ]
    document = json.loads(json.dumps(made.as_json()))
    assert document["compatible"] is False
    assert document["breaks"][0]["where"] == "cost"


@pytest.mark.parametrize(
    ("old", "new", "kind", "why"),
    [
        (["null", "string"], "string", "type", "null cannot be read as string"),
        (
            ["null", "string"],
            ["null", "long"],
            "branch",
            "string may stand there, and the reader takes only null or long",
        ),
        (enum("A", "B", "C"), enum("A"), "symbols", "it does not know B, C, and has no default symbol"),
        (fixed(16), fixed(12), "size", "16 bytes cannot be read as 12"),
        (fixed(16), fixed(16, "G"), "name", "fixed F is not fixed G, nor an alias of it"),
    ],
)
def test_reasons(old: Any, new: Any, kind: str, why: str) -> None:
    (found,) = verdict([of(old)], of(new), "BACKWARD").breaks
    assert (found.where, found.kind, found.why) == ("a", kind, why)


def test_a_break_of_the_whole_names_the_record() -> None:
    (found,) = verdict([record(("a", "long"))], record(("a", "long"), name="Tap"), "BACKWARD").breaks
    assert (found.where, found.kind) == ("Tap", "name")


# What a registry takes, and nobody should -------------------------------------------------------------------------


def test_another_logical_type_is_silent() -> None:
    micros, millis = ({"type": "long", "logicalType": f"timestamp-{u}"} for u in ("micros", "millis"))
    made = verdict([of(micros)], of(millis), "FULL_TRANSITIVE")
    assert made.compatible
    (found,) = made.silent
    assert (found.where, found.kind) == ("a", "logical")
    assert found.why.startswith("long timestamp-micros becomes long timestamp-millis: ")
    assert [s.kind for s in verdict([of("long")], of(["null", micros]), "FULL").silent] == ["logical"]
    assert "  ! a: long timestamp" in str(made)


def test_another_default_is_silent_where_older_records_lack_the_field() -> None:
    first = record(("a", "long"))
    second, third = (record(("a", "long"), ("b", "string", default)) for default in ("EUR", "USD"))
    (found,) = verdict([first, second], third, "FULL_TRANSITIVE").silent
    assert (found.where, found.kind) == ("b", "default")
    assert 'records of version 1, which lack it, were read as "EUR", and from now on as "USD"' in found.why
    assert verdict([second], third, "FULL_TRANSITIVE").silent == ()
    assert verdict([first, second], second, "FULL_TRANSITIVE").silent == ()
    assert verdict([], second, "FULL_TRANSITIVE").silent == ()


# Events as they are declared --------------------------------------------------------------------------------------


def test_events() -> None:
    class Click(lf.Event):
        user_id: str
        price: float
        at: datetime

    class More(lf.Event):
        user_id: str
        price: float
        currency: str = "EUR"
        tags: list[str] = []  # noqa: RUF012 # pydantic copies it
        seen: datetime = datetime(2026, 1, 1, tzinfo=UTC)
        note: str | None = None
        at: datetime

    class Whole(lf.Event):
        user_id: str
        price: int
        at: datetime

    before, more, whole = (avro_schema(e).replace(e.__name__, "Click") for e in (Click, More, Whole))
    assert verdict([before], more, "FULL_TRANSITIVE").compatible
    assert both(before, more) == (True, True)
    assert both(whole, before) == (True, False)  # int to float widens
    assert told(verdict([before, more], whole, "FULL_TRANSITIVE")) == [
        ("backward", "price", "type"),
        ("backward", "price", "type"),
    ]


@pytest.mark.parametrize(
    ("schema", "whole"),
    [
        (of("string"), True),
        ('"string"', True),
        ('syntax = "proto3";', False),
        ('{"type": "object"}', False),
        ("{}", False),
        (record(("shop", "com.example.Shop")), False),
    ],
)
def test_what_can_be_judged_alone(schema: str, whole: bool) -> None:
    assert is_whole(schema) == whole
