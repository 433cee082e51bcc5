"""Encodes records as bytes: Avro under a registered schema, or JSON. Both check types, but not the event's rules.

An encoder raises one of `MISFITS` for a record that does not fit its event.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer

from leftfold.declare.event import Event, EventField, fields_of
from leftfold.declare.framing import frame
from leftfold.declare.schema import avro_schema
from leftfold.fold.values import INT64, Kind

Encode = Callable[[Mapping[str, Any]], bytes]
MISFITS = (ValueError, TypeError, KeyError, OverflowError, AttributeError)
_TYPES: dict[Kind, Any] = {
    "string": str,
    "int": int,
    "float": float | int,
    "bool": bool,
    "datetime": datetime,
    "bytes": bytes,
}
_MISSING = object()
_DOUBLE = struct.Struct("<d")
# A varint has 7 bits a byte, the lowest first, and the lowest bit of a long is its sign: two bytes hold 13 bits.
_LOW_BITS = 13
_TAILS = 1 << 16  # remembered: 8 ms each, so those of nine minutes


def avro_encoder(event: type[Event], schema_id: int) -> Encode:
    fields = fields_of(event).values()
    times = tuple(f.name for f in fields if f.kind == "datetime" and not f.repeated)
    lists = tuple(f.name for f in fields if f.kind == "datetime" and f.repeated)
    # For an absent value fastavro takes the schema's default. For bytes that default is a text, which fastavro then
    # refuses.
    absent = {f.name: f.default for f in fields if f.kind == "bytes" and not f.required}
    schema = parse_schema(json.loads(avro_schema(event)))
    header = frame(schema_id)

    def encode(record: Mapping[str, Any]) -> bytes:
        for name in times:
            if name in record and isinstance(moment := record[name], datetime) and moment.tzinfo is None:
                raise ValueError(f"{name} has no time zone")
        for name in lists:
            if any(isinstance(moment, datetime) and moment.tzinfo is None for moment in record.get(name) or ()):
                raise ValueError(f"{name} has no time zone")
        buffer = BytesIO()
        schemaless_writer(buffer, schema, {**absent, **record} if absent else record)
        return header + buffer.getvalue()

    return encode


def field_encoder(event: type[Event], field: EventField, before: bytes = b"") -> Callable[[Any], bytes]:
    """Return a function that encodes one field of an Avro record, and puts the bytes `before` it.

    A record is the bytes of its fields, in their order. Moments are given in microseconds. Nothing is checked.
    """
    name = field.name
    schema = parse_schema(json.loads(avro_schema(event, only=(name,))))

    def encode(value: Any) -> bytes:
        buffer = BytesIO()
        buffer.write(before)
        schemaless_writer(buffer, schema, {name: value})
        return buffer.getvalue()

    # A call of fastavro takes a microsecond. Other values than these two are few, or are in few records.
    if field.kind == "float" and not field.repeated:
        head, pack = encode(0.0)[: -_DOUBLE.size], _DOUBLE.pack
        return (lambda value: head + pack(value)) if head else pack
    if field.kind == "datetime" and not field.repeated:
        return _moment_encoder(encode)
    return encode


def _moment_encoder(encode: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return an encoder of moments that looks up their low and their high bits."""
    head, low_bits = encode(0)[:-1], (1 << _LOW_BITS) - 1
    begins = [head + bytes((low << 1 & 0x7F | 0x80, low >> 6 | 0x80)) for low in range(low_bits + 1)]

    @lru_cache(maxsize=_TAILS)
    def tail(high: int) -> bytes:
        return encode(high << _LOW_BITS)[len(head) + 2 :]

    def encode_moment(micros: int) -> bytes:
        if micros <= low_bits:  # before 1970, or so few that there are no three bytes
            return encode(micros)
        return begins[micros & low_bits] + tail(micros >> _LOW_BITS)

    return encode_moment


def json_encoder(event: type[Event]) -> Encode:
    fields = fields_of(event)
    text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

    def encode(record: Mapping[str, Any]) -> bytes:
        if unknown := record.keys() - fields.keys():
            raise ValueError(f"there is no field {', '.join(sorted(unknown))}")
        return text({name: _value(field, record.get(name, _MISSING)) for name, field in fields.items()}).encode()

    return encode


def _value(field: EventField, raw: Any) -> Any:
    if raw is _MISSING:
        if field.required and not field.optional:
            raise ValueError(f"{field.name} is missing")
        raw = None if field.required else field.default
    if raw is None and field.optional:
        return None
    try:
        if not field.repeated:
            return _plain(field.kind, raw)
        if not isinstance(raw, list):
            raise TypeError(f"list expected, got {type(raw).__name__}")
        return [_plain(field.kind, value) for value in raw]
    except MISFITS as error:
        raise ValueError(f"{field.name}: {error}") from error


def _plain(kind: Kind, value: Any) -> Any:
    """Return the value in its JSON form; raise if it is not of this kind. (In Python, True is also an int.)"""
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise TypeError(f"{kind} expected, got {type(value).__name__}")
    if kind == "int" and not -INT64 <= value < INT64:
        raise ValueError("more than 64 bits")
    if kind == "float":
        if not math.isfinite(value):
            raise ValueError("not finite")
        return float(value)
    if kind == "datetime":
        if value.tzinfo is None:
            raise ValueError("no time zone")
        return value.astimezone(UTC).isoformat()
    return base64.b64encode(value).decode() if kind == "bytes" else value
