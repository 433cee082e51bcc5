"""Records from bytes, for who looks at single ones: the same fields, and the same refusals, as in a view's decoding.

A decoder gives plain values, times in microseconds, or None for bytes that are no record of the event.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import re
from collections.abc import Callable, Container
from datetime import datetime
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro.read import SchemaResolutionError

from leftfold.fold.expressions import to_micros
from leftfold.fold.values import INT64, Kind
from leftfold.spec.event import Event, EventField, fields_of
from leftfold.spec.framing import HEADER_BYTES
from leftfold.spec.schema import avro_schema

Decode = Callable[[bytes | None], dict[str, Any] | None]
_NO_RECORD = (EOFError, ValueError, IndexError, OverflowError, MemoryError, TypeError, SchemaResolutionError)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_REFUSED = object()


def avro_decoder(event: type[Event], only: Container[str], schema_of: Callable[[int], str | None]) -> Decode:
    """`schema_of` gives the text of a schema by its id, or None for an id that was never given out."""
    reader = parse_schema(_bare(json.loads(avro_schema(event, only=only))))
    writers: dict[int, Any] = {}

    def decode(value: bytes | None) -> dict[str, Any] | None:
        if value is None or len(value) <= HEADER_BYTES or value[0] != 0:
            return None
        schema_id = int.from_bytes(value[1:HEADER_BYTES])
        if schema_id not in writers:
            text = schema_of(schema_id)
            writers[schema_id] = None if text is None else parse_schema(_bare(json.loads(text)))
        if writers[schema_id] is None:
            return None
        try:
            found: Any = schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), writers[schema_id], reader)
        except _NO_RECORD:
            return None
        return dict(found)

    return decode


def _bare(schema: Any) -> Any:
    """Without logical types: a time is then its number, also one that no datetime of Python's can hold."""
    if isinstance(schema, dict):
        return {k: _bare(v) for k, v in schema.items() if k != "logicalType"}
    return [_bare(part) for part in schema] if isinstance(schema, list) else schema


def json_decoder(event: type[Event], only: Container[str]) -> Decode:
    fields = [f for f in fields_of(event).values() if f.name in only]

    def decode(value: bytes | None) -> dict[str, Any] | None:
        try:
            found = json.loads((value or b"").decode(), parse_constant=_refuse)
        except ValueError:
            return None
        if not isinstance(found, dict):
            return None
        read = {f.name: _field(f, found) for f in fields}
        return None if _REFUSED in read.values() else read

    return decode


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _field(field: EventField, found: dict[str, Any]) -> Any:
    given = found.get(field.name)
    if given is None and not field.required and (field.name not in found or not field.optional):
        return _micros(field.default)
    if given is None:
        return None if field.optional else _REFUSED
    if not field.repeated:
        return _value(field, given)
    if not isinstance(given, list) or None in given:
        return _REFUSED
    values = [_value(field, value) for value in given]
    return _REFUSED if _REFUSED in values else values


def _micros(default: Any) -> Any:
    if isinstance(default, list):
        return [_micros(value) for value in default]
    return to_micros(default) if isinstance(default, datetime) else default


def _value(field: EventField, given: Any) -> Any:
    return _OF_KIND[field.kind](given)


def _bytes(given: Any) -> Any:
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return _REFUSED


def _moment(given: Any) -> Any:
    if not isinstance(given, str) or not _MOMENT.fullmatch(given):
        return _REFUSED
    try:
        return to_micros(datetime.fromisoformat(given))
    except (ValueError, OverflowError):
        return _REFUSED


_OF_KIND: dict[Kind, Callable[[Any], Any]] = {
    # Spark takes anything for text, as its JSON.
    "string": lambda v: v if isinstance(v, str) else json.dumps(v, separators=(",", ":"), ensure_ascii=False),
    "int": lambda v: v if type(v) is int and -INT64 <= v < INT64 else _REFUSED,
    "float": lambda v: float(v) if type(v) in (int, float) and math.isfinite(v) else _REFUSED,
    "bool": lambda v: v if isinstance(v, bool) else _REFUSED,
    "datetime": _moment,
    "bytes": _bytes,
}
