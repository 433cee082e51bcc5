"""What becomes of one record, judged in Python by the rules and in the order that Spark uses.

For the few records that a person looks at or re-drives; never in the path of a view.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from leftfold.fold.expressions import evaluate, to_micros
from leftfold.fold.values import INT64
from leftfold.spec import reasons
from leftfold.spec.event import EventField, fields_of
from leftfold.spec.features import FUTURE_TOLERANCE
from leftfold.spec.framing import HEADER_BYTES
from leftfold.spec.schema import avro_schema
from leftfold.spec.topic import Topic

# What fastavro raises for bytes that are not of the schema, or a schema that cannot be read as the event's.
UNREADABLE = (
    *(EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, struct.error),
    *(SchemaResolutionError, SchemaParseException),
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")  # as Spark's JSON reader has it

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}  # in bytes

Schemas = Callable[[int], str | None]  # by id; None if the registry never gave it out


@dataclass(frozen=True)
class Verdict:
    """Why a record is not accepted."""

    outcome: str
    reason: str


def judged_bytes(
    topic: Topic[Any], value: bytes | None, schemas: Schemas, *, log_us: int, by_broker: bool
) -> Verdict | None:
    """None if the record is accepted under what is declared and registered now."""
    if value is None:
        return _rejected(reasons.NO_VALUE)
    read = _read_json(topic, value) if topic.format == "json" else _read_avro(topic, value, schemas)
    if isinstance(read, str):
        return _rejected(read)
    return judged_fields(topic, read, log_us=log_us, by_broker=by_broker)


def judged_fields(topic: Topic[Any], event: Mapping[str, Any], *, log_us: int, by_broker: bool) -> Verdict | None:
    """The same of an event as the algebra sees it: plain values, times in microseconds."""
    if topic.log_time == "broker" and not by_broker:
        return _rejected(reasons.NOT_BY_BROKER)
    fields = fields_of(topic.event).values()
    for field in fields:
        if not field.optional and event[field.name] is None:
            return _rejected(reasons.MISSING.format(field=field.name))
    for field in sorted(fields, key=lambda f: f.name):
        if (flaw := _unsound(field, event[field.name])) is not None:
            return _rejected(flaw)
    for field in fields:
        for rule in field.rules:
            if evaluate(rule, event) is False:
                return _rejected(reasons.BROKEN.format(rule=reasons.rule_text(rule)))
    return _timely(topic, event, log_us)


def _timely(topic: Topic[Any], event: Mapping[str, Any], log_us: int) -> Verdict | None:
    assert topic.time is not None, "only a compacted topic has no time, and nothing of it is late"
    ahead = event[topic.time.name] - log_us
    if ahead < -topic.lateness:
        return Verdict("late", reasons.with_number(reasons.LATE, -ahead // 1_000_000))
    if ahead > FUTURE_TOLERANCE:
        return Verdict("future", reasons.with_number(reasons.FUTURE, ahead // 1_000_000))
    return None


def _rejected(reason: str) -> Verdict:
    return Verdict("rejected", reason)


def _unsound(field: EventField, value: Any) -> str | None:
    if field.repeated or value is None:
        return None
    if field.kind == "string" and not _is_utf8(value):
        return reasons.NOT_UTF8.format(field=field.name)
    if field.kind == "float" and not math.isfinite(value):
        return reasons.NOT_FINITE.format(field=field.name)
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Avro ---------------------------------------------------------------------------------------------------------------


def schema_id_of(value: bytes) -> int | None:
    """None if the value is not framed."""
    return int.from_bytes(value[1:HEADER_BYTES]) if len(value) > HEADER_BYTES and value[0] == 0 else None


def _read_avro(topic: Topic[Any], value: bytes, schemas: Schemas) -> dict[str, Any] | str:
    """The event's fields, or why there are none."""
    if (schema_id := schema_id_of(value)) is None:
        return reasons.NOT_FRAMED
    if (writer := schemas(schema_id)) is None:
        return reasons.with_number(reasons.UNREGISTERED, schema_id)
    schema = _named(_plain(json.loads(writer)), topic.event.__name__)
    try:
        read = schemaless_reader(
            io.BytesIO(value[HEADER_BYTES:]),
            parse_schema(schema),
            parse_schema(_plain(json.loads(avro_schema(topic.event)))),
            handle_unicode_errors="surrogateescape",  # so that the field can be named
        )
        _check_choices(schema, io.BytesIO(value[HEADER_BYTES:]), {})
    except UNREADABLE:
        return reasons.with_number(reasons.UNREADABLE_AVRO, schema_id)
    assert isinstance(read, dict)
    return read


def _named(schema: Any, name: str) -> Any:
    """As Java's reader, which Spark uses: a record may have any name. fastavro compares them."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return schema
    return {k: v for k, v in schema.items() if k != "namespace"} | {"name": name}


def _check_choices(schema: Any, body: io.BytesIO, named: dict[str, Any]) -> None:
    """Raise for a negative number of a union's branch, which fastavro counts from the end. The rest can be read."""
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
    """The fields of a record in their order, as far as the bytes can be read."""
    body, read = io.BytesIO(value[HEADER_BYTES:]), {}
    try:
        for field in json.loads(writer)["fields"]:
            schema = parse_schema(_plain(field["type"]))
            read[field["name"]] = schemaless_reader(body, schema, None, handle_unicode_errors="backslashreplace")
    except UNREADABLE:
        pass  # what was read before it is what there is to show
    return read


def _plain(schema: Any) -> Any:
    """Without logical types: times stay numbers, also those that Python's datetime does not hold."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if isinstance(schema, dict):
        nested = ("type", "items", "values", "fields")
        return {k: _plain(v) if k in nested else v for k, v in schema.items() if k != "logicalType"}
    return schema


# JSON ---------------------------------------------------------------------------------------------------------------


def _read_json(topic: Topic[Any], value: bytes) -> dict[str, Any] | str:
    try:
        given = json.loads(value.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return reasons.UNREADABLE_JSON
    if not isinstance(given, dict):
        return reasons.UNREADABLE_JSON
    fields = fields_of(topic.event).values()
    for field in fields:
        if field.required and not field.optional and given.get(field.name) is None:
            return reasons.MISSING.format(field=field.name)
    try:
        return {f.name: _field(f, given) for f in fields}
    except (ValueError, TypeError, OverflowError):
        return reasons.UNREADABLE_JSON


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _field(field: EventField, given: dict[str, Any]) -> Any:
    value = given.get(field.name)
    if value is None:
        absent = field.name not in given or not field.optional
        value = field.default if absent and not field.required else None
        return _micros(value)
    if not field.repeated:
        return _value(field, value)
    if not isinstance(value, list):
        raise TypeError("not a list")
    return [_value(field, v) for v in value]


def _micros(value: Any) -> Any:
    if isinstance(value, list):
        return [_micros(v) for v in value]
    return to_micros(value) if isinstance(value, datetime) else value


def _value(field: EventField, value: Any) -> Any:
    """Stricter than Spark in one point: Spark reads a number where text is declared."""
    match field.kind, value:
        case "string", str():
            return value
        case "bool", bool():
            return value
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
