"""The promise of adopt: the declaration loads, and reads what was written, as it was written, of every version."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold.declare.event import fields_of
from leftfold.declare.schema import avro_schema
from leftfold.kafka.decode import avro_decoder
from leftfold.kafka.judge import RecordJudge
from tests.unit.adopt.topics import LOG_US, adopted, avro_record, avro_value, event_of, record, topic_of

NAMES = [
    *("id", "user_id", "price", "at", "tags", "note"),
    *("class", "None", "json", "copy", "micros", "model_config", "_hidden", "__deleted", "fields", "schema"),
    *("int", "str", "bytes", "datetime", "list", "float", "Field", "lf", "undecided", "match", "type"),
]
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


# A type, and the values that its writer may write.
TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("string", TEXT),
    ({"type": "string", "avro.java.string": "String"}, TEXT),
    (logical("string", "uuid"), TEXT),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", LONG),
    ("float", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    ("double", st.floats(allow_nan=False, allow_infinity=False)),
    ("boolean", st.booleans()),
    ("bytes", st.binary(max_size=8)),
    ("null", st.none()),
    (logical("long", "timestamp-micros"), LONG),
    (logical("long", "timestamp-millis"), LONG),
    (logical("long", "local-timestamp-micros"), LONG),
    (logical("long", "time-micros"), LONG),
    (logical("int", "date"), st.integers(-(2**31), 2**31 - 1)),
    (logical("bytes", "decimal", precision=9, scale=2), st.binary(max_size=4)),
    ({"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}, st.sampled_from(["RED", "BLUE"])),
    ({"type": "fixed", "name": "Hash", "size": 2}, st.just(b"ab")),
    ({"type": "map", "values": "long"}, st.just({"a": 1})),
    (avro_record(("inner", "long"), name="Inner"), st.just({"inner": 1})),
    ({"type": "array", "items": "string"}, st.lists(TEXT, max_size=3)),
    ({"type": "array", "items": logical("long", "timestamp-micros")}, st.lists(LONG, max_size=3)),
    ({"type": "array", "items": ["null", "long"]}, st.lists(st.none() | LONG, max_size=3)),
    ({"type": "array", "items": avro_record(("x", "long"), name="Item")}, st.just([{"x": 1}])),
]
DEFAULTS = {
    "string": 'it\'s "so"\n',
    "int": -1,
    "long": 2**62,
    "float": 0,
    "double": 1.5,
    "boolean": True,
    "bytes": "\x00ÿ",
}


@st.composite
def fields(draw: st.DrawFn) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    schema, values = draw(st.sampled_from(TYPES))
    field: dict[str, Any] = {
        "name": draw(st.sampled_from(NAMES)),
        "doc": draw(st.just('a "doc"\\ \nof two lines') | TEXT),
    }
    shape = draw(st.sampled_from(["plain", "default", "nullable", "nullable default", "union"]))
    if shape == "default" and isinstance(schema, str) and schema in DEFAULTS:
        field["default"] = DEFAULTS[schema]
    if shape == "nullable" and schema != "null":
        schema, values = ["null", schema], st.none() | values
    elif shape == "nullable default" and isinstance(schema, str) and schema in DEFAULTS:
        field["default"] = DEFAULTS[schema]
        schema, values = [schema, "null"], st.none() | values
    elif shape == "union" and schema == "string":
        schema, values = ["null", "string", "long"], values | LONG
    return {**field, "type": schema}, values


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Schemas of one topic, oldest first, each with records of it. The registry was not asked what it thinks."""
    chosen = draw(st.lists(fields(), min_size=1, max_size=7, unique_by=lambda f: f[0]["name"]))
    chosen = [f for n, f in enumerate(chosen) if _type_name(f) not in [_type_name(g) for g in chosen[:n]]]
    always = ({"name": "sure", "type": "long"}, LONG)
    history = []
    for _ in range(draw(st.integers(1, 3))):
        version = [always, *draw(st.lists(st.sampled_from(chosen), unique_by=lambda f: f[0]["name"]))]
        if len(version) > 1 and draw(st.booleans()):
            written, values = draw(st.sampled_from(TYPES[:12]))
            nullable = draw(st.booleans()) and written != "null"
            retyped = {"name": version[-1][0]["name"], "type": ["null", written] if nullable else written}
            version[-1] = (retyped, st.none() | values if nullable else values)
        schema = avro_record(*(f for f, _ in version), namespace="com.shop", doc="One\r\nan order")
        record = st.fixed_dictionaries({f["name"]: values for f, values in version})
        history.append((schema, draw(st.lists(record, min_size=1, max_size=4))))
    return history


def _type_name(field: tuple[dict[str, Any], Any]) -> str | None:
    """A name may be defined once in a schema."""
    text = json.dumps(field[0]["type"])
    return next((n for n in ("Colour", "Hash", "Inner", "Item") if n in text), None) or field[0]["name"]


@settings(max_examples=150, deadline=None)
@given(histories())
def test_whatever_was_registered(history: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> None:
    written = [
        (avro_value(bare(schema), number, values), values)
        for number, (schema, records) in enumerate(history, start=1)
        for values in records
    ]
    made = adopted(*(schema for schema, _ in history), records=[record(value) for value, _ in written])
    event = event_of(made)
    assert {f.name for f in made.fields} == set(fields_of(event))
    told = {f.name for f in made.fields} | {f.name for f in made.left_out}
    assert told == {f["name"] for schema, _ in history for f in schema["fields"]}
    schemas = {number: json.dumps(schema) for number, (schema, _) in enumerate(history, start=1)}
    decode = avro_decoder(event, fields_of(event), schemas.get)
    for value, values in written:
        read = decode(value)
        assert read is not None, f"{avro_schema(event)} does not read a record of {values}"
        both = read.keys() & values.keys()
        # A long that another version calls a float is read as one, as Avro resolves it: beyond 2^53 it is rounded.
        rounded = {name for name in both if isinstance(read[name], float) and isinstance(values[name], int)}
        expected = {name: float(values[name]) if name in rounded else values[name] for name in both}
        assert {name: read[name] for name in both} == expected


def bare(schema: Any) -> Any:
    """Without logical types, so that any number can be written."""
    if isinstance(schema, dict):
        return {k: bare(v) if k in ("type", "items", "fields") else v for k, v in schema.items() if k != "logicalType"}
    return [bare(part) for part in schema] if isinstance(schema, list) else schema


KEPT = avro_record(
    ("id", "string"), ("at", logical("long", "timestamp-micros")), {"name": "n", "type": "int", "default": 3}
)


def test_the_declared_topic_accepts_the_records() -> None:
    values = [avro_value(bare(KEPT), 1, {"id": f"o{n}", "at": LOG_US - n, "n": n}) for n in range(9)]
    made = adopted(KEPT, records=[record(v, key=f"o{n}".encode()) for n, v in enumerate(values)])
    topic = topic_of(made)
    judge = RecordJudge(topic, lambda _: json.dumps(KEPT))
    verdicts = [judge.record(None, v, log_us=LOG_US, by_broker=True)[1] for v in values]
    assert verdicts == [None] * 9
