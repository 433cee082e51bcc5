"""The Avro schema of an event. It is registered for producers, and Spark uses it as the reader schema."""

from __future__ import annotations

import json
from collections.abc import Container
from datetime import datetime
from typing import Any

from leftfold.declare.event import Event, EventField, fields_of
from leftfold.fold.expressions import to_micros
from leftfold.fold.values import Kind

_TYPES: dict[Kind, Any] = {
    "string": "string",
    "int": "long",
    "float": "double",
    "bool": "boolean",
    "datetime": {"type": "long", "logicalType": "timestamp-micros"},
    "bytes": "bytes",
}


def avro_schema(event: type[Event], only: Container[str] | None = None) -> str:
    """The schema of an event as canonical text. The same event always gives the same text.

    So a new docstring does not make a new version. `only` limits the schema to the fields that a reader needs.
    """
    # The mark of personal data is left out. A registry compares the whole text, including properties without a meaning
    # in Avro. So the mark would make a new version, and producers would stop until it is registered.
    fields = [_field(f) for f in fields_of(event).values() if only is None or f.name in only]
    record = {"type": "record", "name": event.__name__, "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def _field(field: EventField) -> dict[str, Any]:
    kind = _TYPES[field.kind]
    plain: Any = {"type": "array", "items": kind} if field.repeated else kind
    described: dict[str, Any] = {"name": field.name, "type": ["null", plain] if field.optional else plain}
    if not field.required:
        if field.optional and field.default is not None:
            described["type"] = [plain, "null"]  # in Avro a default has the type of the union's first branch
        described["default"] = _constant(field.default)
    elif field.optional:
        described["default"] = None  # so an absent optional value is read as missing in every version
    return described


def _constant(value: Any) -> Any:
    if isinstance(value, list):
        return [_constant(v) for v in value]
    if isinstance(value, datetime):
        return to_micros(value)
    return value.decode("latin-1") if isinstance(value, bytes) else value
