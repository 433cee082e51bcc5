"""Converts an Avro schema into fields of an event: those that every Avro reader resolves into the event's schema."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType

from leftfold.adopt.fields import Field, FieldShape, Found, LeftOut, nameable
from leftfold.declare.framing import HEADER_BYTES
from leftfold.fold.values import INT64, Kind
from leftfold.kafka.decode import UNREADABLE

_KINDS: dict[str, Kind] = {
    "string": "string",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "boolean": "bool",
    "bytes": "bytes",
}
# Logical types of numbers, and what they count. A reader sees only the number. No reader converts it into the event's
# microseconds, so as a datetime it would be wrong by a factor.
_COUNTED = {
    "timestamp-millis": "milliseconds since 1970 (timestamp-millis); only timestamp-micros reads as datetime",
    "timestamp-nanos": "nanoseconds since 1970 (timestamp-nanos); only timestamp-micros reads as datetime",
    "local-timestamp-millis": "milliseconds of a clock without a time zone (local-timestamp-millis)",
    "local-timestamp-micros": "microseconds of a clock without a time zone (local-timestamp-micros)",
    "local-timestamp-nanos": "nanoseconds of a clock without a time zone (local-timestamp-nanos)",
    "date": "days since 1970-01-01 (date)",
    "time-millis": "milliseconds since midnight (time-millis)",
    "time-micros": "microseconds since midnight (time-micros)",
}
# Kafka Connect writes the meaning of a number next to its type, as the name of a class.
_CONNECT_CLASS = "connect.name"
_WHY = {
    "record": "a field is one plain value: ask its writer to flatten it into several fields",
    "map": "a field is one plain value: ask its writer to flatten the keys that matter into fields",
    "enum": "Avro reads an enum as no other type, not even as text: ask its writer to write a string",
    "fixed": "Avro reads fixed as no other type, not even as bytes: ask its writer to write bytes",
}


class NotARecordError(Exception):
    """The schema is not a record that an event can be made of. The error's text says why."""


def parsed(schema: str) -> dict[str, Any]:
    """Parse the schema of a record, with full names. Raises NotARecordError, also if a name in it is unknown."""
    try:
        read: Any = parse_schema(json.loads(schema))
    except UnknownType as error:
        raise NotARecordError(f"its schema refers to {error.name}, which another subject defines") from error
    except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotARecordError("its registered schema cannot be parsed as Avro") from error
    if not isinstance(read, dict) or read["type"] != "record":
        kind = "union" if isinstance(read, list) else read if isinstance(read, str) else read["type"]
        raise NotARecordError(f"its schema is of type {kind}, not a record")
    return read


def shape_of(schema: str) -> FieldShape:
    record = parsed(schema)
    return record_shape(record, names_in(record))


def record_shape(record: dict[str, Any], named: dict[str, Any]) -> FieldShape:
    """The shape of a parsed record. `named` holds the definitions that its fields may refer to."""
    name = record["name"].rpartition(".")[2]
    return FieldShape(name, tuple(_field(f, named) for f in record["fields"]), str(record.get("doc") or ""))


def names_in(schema: Any) -> dict[str, Any]:
    """Every definition in a parsed schema, by its full name."""
    if isinstance(schema, list):
        return {k: v for part in schema for k, v in names_in(part).items()}
    if not isinstance(schema, dict):
        return {}
    own = {schema["name"]: schema} if schema.get("type") in ("record", "enum", "fixed") else {}
    inner = [schema[k] for k in ("type", "items", "values") if k in schema]
    inner += [f["type"] for f in schema.get("fields", ())]
    return own | {k: v for part in inner for k, v in names_in(part).items()}


def values(schema: str, value: bytes) -> dict[str, Any] | None:
    """The fields of a framed record, without logical types: as its writer encoded them. None if it does not decode."""
    try:
        read: Any = schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), parse_schema(_bare(json.loads(schema))), None)
    except UNREADABLE:
        return None
    return read if isinstance(read, dict) else None


def _bare(schema: Any) -> Any:
    if isinstance(schema, dict):
        nested = ("type", "items", "values", "fields")
        return {k: _bare(v) if k in nested else v for k, v in schema.items() if k != "logicalType"}
    return [_bare(part) for part in schema] if isinstance(schema, list) else schema


def _field(field: dict[str, Any], named: dict[str, Any]) -> Field:
    name, doc = str(field["name"]), str(field.get("doc") or "")
    schema, optional = field["type"], False
    if isinstance(schema, list):
        branches = [b for b in schema if b != "null"]
        if len(branches) != 1:
            what = f"a union of {', '.join(_word(b, named) for b in schema)}"
            return LeftOut(name, what, "a field has one type: ask its writer to use one field for each", doc)
        schema, optional = branches[0], len(schema) > 1
    repeated = isinstance(schema, dict) and schema["type"] == "array"
    item = schema["items"] if repeated else schema
    element = _plain(item, named)
    if isinstance(element, str):
        return LeftOut(name, ("a list of " if repeated else "") + _word(item, named), element, doc)
    adopted = replace(element, name=name, optional=optional, repeated=repeated, doc=doc)
    return nameable(_with_default(adopted, field["default"]) if "default" in field else adopted)


def _plain(schema: Any, named: dict[str, Any]) -> Found | str:
    """A field that has no name yet, or the reason why this type cannot be declared."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return "its items may be of several types, or null, and a list is of one: ask its writer to change that"
    described = schema if isinstance(schema, dict) else {"type": schema}
    written = described["type"]
    if isinstance(written, dict | list):
        return _plain(written, named)
    if described.get("logicalType") == "decimal" and written == "bytes":
        return "its bytes are a decimal number, which would read as bytes: ask its writer to write a double or a string"
    if written not in _KINDS:
        return _WHY.get(written, "a field is one plain value, or a list of plain values")
    return _number(described) if _KINDS[written] == "int" else Found("", _KINDS[written])


def _number(described: dict[str, Any]) -> Found:
    logical = described.get("logicalType")
    if described["type"] == "long" and logical == "timestamp-micros":
        return Found("", "datetime")
    if logical in _COUNTED:
        return Found("", "int", notes=(f"a number: {_COUNTED[logical]}",), epoch=logical.startswith("timestamp-"))
    if _CONNECT_CLASS in described:
        return Found("", "int", notes=(f"a number: its writer means {described[_CONNECT_CLASS]} by it",))
    return Found("", "int")


def _word(schema: Any, named: dict[str, Any]) -> str:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return "a union"
    if not isinstance(schema, dict):
        return str(schema)
    name = schema.get("name", "").rpartition(".")[2]
    word = schema.get("logicalType") or (schema["type"] if isinstance(schema["type"], str) else "a nested type")
    symbols = f" of {', '.join(schema['symbols'])}" if "symbols" in schema else ""
    return f"{word} {name}".strip() + symbols


def _with_default(field: Found, default: Any) -> Found:
    """The field with its default. Avro fills it in only for records of a schema version that lacks the field."""
    if default is None:
        return field
    value = [_constant(field.kind, v) for v in default] if field.repeated else _constant(field.kind, default)
    if value is None or (field.repeated and None in value):
        return field.noting(f"its default {json.dumps(default)} is not taken over")
    return replace(field, default=value)


def _constant(kind: Kind, default: Any) -> Any:
    """The default as a Python value; None if a declaration cannot write it."""
    match kind, default:
        case "string", str():
            return default
        case "bytes", str():
            return default.encode("latin-1") if all(ord(c) < 256 for c in default) else None
        case "bool", bool():
            return default
        case "int", int() if not isinstance(default, bool) and -INT64 <= default < INT64:
            return default
        case "float", int() | float() if not isinstance(default, bool) and math.isfinite(default):
            return float(default)
    return None
