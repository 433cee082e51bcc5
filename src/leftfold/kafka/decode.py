"""Decodes single records for inspection or re-drive: the same fields and the same refusals as a view's decoding.

Values are plain Python values, and times are in microseconds. If the bytes are not a valid event, a reader returns the
reason.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import struct
from collections.abc import Callable, Container, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

from fastavro import parse_schema, schemaless_reader
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from leftfold import clock
from leftfold.declare import reasons
from leftfold.declare.event import Event, EventField, fields_of
from leftfold.declare.framing import HEADER_BYTES
from leftfold.declare.schema import avro_schema
from leftfold.fold.expressions import to_micros
from leftfold.fold.values import INT64

Schemas = Callable[[int], str | None]  # schema text by id; None if the registry never gave out the id
Read = Callable[[bytes], dict[str, Any] | str]  # the event's fields, or the reason why there are none
Decode = Callable[[bytes | None], dict[str, Any] | None]  # like `Read`, but None instead of a reason

# Errors that fastavro raises for bytes that do not match the schema, or for a schema that cannot be read as the
# event's.
UNREADABLE = (
    *(EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, struct.error),
    *(SchemaResolutionError, SchemaParseException),
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)  # as Spark reads it
_ASK_AGAIN_S = 30.0
_MOST_UNKNOWN = 10_000
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}  # in bytes


def avro_decoder(event: type[Event], only: Container[str], schemas: Schemas) -> Decode:
    return _without_reasons(avro_reader(event, only, schemas))


def json_decoder(event: type[Event], only: Container[str]) -> Decode:
    return _without_reasons(json_reader(event, only, text_of_all=True))


def _without_reasons(read: Read) -> Decode:
    def decode(value: bytes | None) -> dict[str, Any] | None:
        decoded = None if value is None else read(value)
        return None if isinstance(decoded, str) else decoded

    return decode


# Avro ---------------------------------------------------------------------------------------------------------------


def schema_id_of(value: bytes) -> int | None:
    """Return the schema id of a framed value; None if the value is not framed."""
    return int.from_bytes(value[1:HEADER_BYTES]) if len(value) > HEADER_BYTES and value[0] == 0 else None


def avro_reader(
    event: type[Event],
    only: Container[str],
    schemas: Schemas,
    *,
    bad_text: Literal["strict", "surrogateescape"] = "strict",
) -> Read:
    """Return a function that reads an Avro value.

    With `bad_text="strict"`, text that is not UTF-8 makes a record unreadable. With "surrogateescape" the text is kept,
    so that the caller can name its field.
    """
    reader = parse_schema(_plain(json.loads(avro_schema(event, only=only))))

    layout = _layout(_plain(json.loads(avro_schema(event, only=only))))
    writers: dict[int, _Writer] = {}
    unknown: dict[int, float] = {}  # ids that the registry did not know, and when it was asked

    def written_by(schema_id: int) -> _Writer | None:
        """Return what is known of a writer's schema. It is made once, not for every record.

        An id that the registry does not know is asked for again after a while: a process may run for months.
        """
        if clock.monotonic() - unknown.get(schema_id, float("-inf")) < _ASK_AGAIN_S:
            return None
        if (text := schemas(schema_id)) is None:
            if len(unknown) >= _MOST_UNKNOWN:
                unknown.clear()
            unknown[schema_id] = clock.monotonic()
            return None
        schema = _named(_plain(json.loads(text)), event.__name__)
        # Without a reader's schema, fastavro resolves nothing, which takes a third less time.
        resolved = None if _layout(schema) == layout else reader
        writers[schema_id] = parse_schema(schema), resolved, _choice_check(schema)
        return writers[schema_id]

    def read(value: bytes) -> dict[str, Any] | str:
        if len(value) <= HEADER_BYTES or value[0] != 0:
            return reasons.NOT_FRAMED
        body = value[HEADER_BYTES:]
        schema_id = int.from_bytes(value[1:HEADER_BYTES])
        try:
            if (writer := writers.get(schema_id) or written_by(schema_id)) is None:
                return reasons.with_number(reasons.UNREGISTERED, schema_id)
            parsed, resolved, check = writer
            record: Any = schemaless_reader(io.BytesIO(body), parsed, resolved, False, False, bad_text)
            if check is not None:
                check(body)
        except UNREADABLE:
            return reasons.with_number(reasons.UNREADABLE_AVRO, schema_id)
        return record if type(record) is dict else dict(record)

    return read


# A writer's parsed schema, the reader's if it must be resolved to that, and the check of the writer's unions.
_Writer = tuple[Any, Any, Callable[[bytes], None] | None]


def _layout(schema: Any) -> list[tuple[str, Any]] | None:
    """Return names and types of a record's fields, in their order; None for any other schema."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    return [(field["name"], field["type"]) for field in schema["fields"]]


def _named(schema: Any, name: str) -> Any:
    """Rename a record schema to `name`, without its namespace.

    Java's reader, which Spark uses, accepts a record of any name. fastavro compares the names.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return schema
    return {k: v for k, v in schema.items() if k != "namespace"} | {"name": name}


# fastavro counts a negative branch number of a union from the end. Java's reader, which Spark uses, refuses it.


def _choice_check(schema: Any) -> Callable[[bytes], None] | None:
    """Return a function that raises for a negative branch number; None for a schema without unions.

    It is for bytes that fastavro has read already.
    """
    steps = _flat_steps(schema)
    if steps is None:
        return lambda body: _check_choices(schema, io.BytesIO(body), {})
    while steps and not isinstance(steps[-1], tuple):
        steps.pop()  # what follows the last union need not be walked
    return partial(_check_flat, steps) if steps else None


_VARINT, _TEXT = -1, -2
_Step = int | tuple[int, ...]  # a number of bytes, a number or a text of any length; for a union, those of its branches


def _flat_steps(schema: Any) -> list[_Step] | None:
    """Return the steps over a record of simple fields and unions of simple ones; None for any other schema."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    steps: list[_Step] = []
    for field in schema["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        simple = [_SIMPLE.get(kind["type"] if isinstance(kind, dict) else kind) for kind in kinds if _hashable(kind)]
        if None in simple or len(simple) < len(kinds):
            return None
        sizes = tuple(size for size in simple if size is not None)
        steps.append(sizes if isinstance(field["type"], list) else sizes[0])
    return steps


_SIMPLE = {**_SIZES, "int": _VARINT, "long": _VARINT, "string": _TEXT, "bytes": _TEXT}


def _hashable(kind: Any) -> bool:
    return isinstance(kind, str) or (isinstance(kind, dict) and isinstance(kind.get("type"), str))


def _check_flat(steps: Sequence[_Step], body: bytes) -> None:
    at = 0
    for step in steps:
        size = step
        if isinstance(size, tuple):
            branch, at = _number(body, at)
            if branch < 0:
                raise IndexError(f"branch {branch}")
            size = size[branch]
        if size == _VARINT:
            while body[at] & 0x80:
                at += 1
            at += 1
        elif size == _TEXT:
            length, at = _number(body, at)
            if length < 0:
                raise IndexError(f"length {length}")
            at += length
        else:
            at += size


def _number(body: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it."""
    byte = body[at]
    at += 1
    number, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return (number >> 1) ^ -(number & 1), at


def _check_choices(schema: Any, body: io.BytesIO, named: dict[str, Any]) -> None:
    """Raise for a negative branch number, in bytes of any schema."""
    if isinstance(schema, list):
        if (branch := _long(body)) < 0:
            raise IndexError(f"branch {branch}")
        _check_choices(schema[branch], body, named)
        return
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"].rpartition(".")[2]] = schema
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        for field in schema["fields"]:
            _check_choices(field["type"], body, named)
    elif kind in ("array", "map"):
        _check_items(schema, body, named)
    elif kind in ("int", "long", "enum"):
        _long(body)
    elif kind in ("string", "bytes"):
        body.seek(_long(body), io.SEEK_CUR)
    elif kind == "fixed":
        body.seek(schema["size"], io.SEEK_CUR)
    elif isinstance(kind, str) and kind in _SIZES:
        body.seek(_SIZES[kind], io.SEEK_CUR)
    else:
        _check_choices(named[kind.rpartition(".")[2]] if isinstance(kind, str) else kind, body, named)


def _check_items(schema: dict[str, Any], body: io.BytesIO, named: dict[str, Any]) -> None:
    while (items := _long(body)) != 0:
        if items < 0:
            _long(body)  # the block's size in bytes follows
        for _ in range(abs(items)):
            if schema["type"] == "map":
                body.seek(_long(body), io.SEEK_CUR)
            _check_choices(schema["items" if schema["type"] == "array" else "values"], body, named)


def _long(body: io.BytesIO) -> int:
    number: Any = schemaless_reader(body, "long", None)
    return int(number)


def partly_decoded(value: bytes, writer: str) -> dict[str, Any]:
    """Return the fields of a record in their order, as far as the bytes can be read."""
    body, read = io.BytesIO(value[HEADER_BYTES:]), {}
    try:
        for field in json.loads(writer)["fields"]:
            schema = parse_schema(_plain(field["type"]))
            read[field["name"]] = schemaless_reader(body, schema, None, handle_unicode_errors="backslashreplace")
    except UNREADABLE:
        pass  # show the fields that were read before the error
    return read


def _plain(schema: Any) -> Any:
    """Return the schema without logical types: times stay numbers, even those that Python's datetime cannot hold."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if isinstance(schema, dict):
        nested = ("type", "items", "values", "fields")
        return {k: _plain(v) if k in nested else v for k, v in schema.items() if k != "logicalType"}
    return schema


# JSON ---------------------------------------------------------------------------------------------------------------


def json_reader(event: type[Event], only: Container[str], *, text_of_all: bool) -> Read:
    """Return a function that reads a JSON value.

    With `text_of_all`, a text field accepts any JSON value and stores its JSON text. Spark does the same.
    """
    fields = [f for f in fields_of(event).values() if f.name in only]

    def read(value: bytes) -> dict[str, Any] | str:
        try:
            document = json.loads(value.decode(), parse_constant=_no_number)
        except (ValueError, RecursionError):
            return reasons.UNREADABLE_JSON
        if not isinstance(document, dict):
            return reasons.UNREADABLE_JSON
        for field in fields:
            if field.required and not field.optional and document.get(field.name) is None:
                return reasons.MISSING.format(field=field.name)
        try:
            return {f.name: _field(f, document, text_of_all=text_of_all) for f in fields}
        except (ValueError, TypeError, OverflowError):
            return reasons.UNREADABLE_JSON

    return read


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _field(field: EventField, document: dict[str, Any], *, text_of_all: bool) -> Any:
    value = document.get(field.name)
    if value is None:
        absent = field.name not in document or not field.optional
        return _micros(field.default if absent and not field.required else None)
    if not field.repeated:
        return _value(field, value, text_of_all=text_of_all)
    if not isinstance(value, list) or None in value:
        raise TypeError("not a list of values")
    return [_value(field, v, text_of_all=text_of_all) for v in value]


def _micros(value: Any) -> Any:
    if isinstance(value, list):
        return [_micros(v) for v in value]
    return to_micros(value) if isinstance(value, datetime) else value


def _value(field: EventField, value: Any, *, text_of_all: bool) -> Any:
    match field.kind, value:
        case ("string", str()) | ("bool", bool()):
            return value
        case "string", _ if text_of_all:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        case _, bool():
            raise TypeError("true or false where something else is declared")
        case "int", int() if -INT64 <= value < INT64:
            return value
        case "float", int() | float() if math.isfinite(value):
            return float(value)
        case "bytes", str():
            return base64.b64decode(value, validate=True)
        case "datetime", str() if _MOMENT.fullmatch(value):
            return to_micros(datetime.fromisoformat(value))
    raise TypeError(f"not of kind {field.kind}")
