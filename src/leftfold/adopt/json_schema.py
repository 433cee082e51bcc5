"""Converts a JSON Schema into fields of an event."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from leftfold.adopt.fields import Field, FieldShape, Found, LeftOut, nameable
from leftfold.fold.values import Kind

_KINDS: dict[str, Kind] = {"string": "string", "integer": "int", "number": "float", "boolean": "bool"}
_LENGTHS = {"minLength": "min_length", "maxLength": "max_length"}
_BOUNDS = (("minimum", "exclusiveMinimum", ("ge", "gt")), ("maximum", "exclusiveMaximum", ("le", "lt")))
_NESTED = "a field is one plain value: ask its writer to flatten it into several fields"
_MOST_REFERENCES = 10  # that are followed in a row; more are taken for a cycle


def is_json_schema(schema: str) -> bool:
    """True if the schema has `properties` or the type `object`. An Avro schema has neither."""
    try:
        read = json.loads(schema)
    except ValueError:
        return False
    return isinstance(read, dict) and (isinstance(read.get("properties"), dict) or read.get("type") == "object")


def shape_of(schema: str) -> FieldShape:
    read = json.loads(schema)
    required = set(read.get("required") or ())
    properties = read.get("properties") or {}
    fields = tuple(_field(name, inner, read, required=name in required) for name, inner in properties.items())
    title = read.get("title")
    return FieldShape(title if isinstance(title, str) else None, fields, str(read.get("description") or ""))


def _field(name: str, schema: Any, root: dict[str, Any], *, required: bool) -> Field:
    schema, nullable = _unwrapped(schema, root)
    if schema is None:
        return LeftOut(name, "any value, or one of several types", "a field has one type")
    doc = str(schema.get("description") or schema.get("title") or "")
    repeated = schema.get("type") == "array"
    item, item_nullable = _unwrapped(schema.get("items", True), root) if repeated else (schema, False)
    if item_nullable:
        return LeftOut(name, "a list whose items may be null", "a list is of one type, and never of null", doc)
    kind = _kind(item)
    if item is None or kind is None:
        what = "a list of " if repeated else ""
        what += "any value, or several types" if item is None else _word(item)
        return LeftOut(name, what, _NESTED if item and item.get("type") == "object" else "a field has one type", doc)
    adopted = Found(name, kind, optional=nullable or not required, repeated=repeated, doc=doc)
    if kind == "datetime":
        adopted = adopted.noting("text of a date and time; read only with seconds and a time zone")
    if schema.get("default") is not None:
        adopted = adopted.noting(
            f"the schema's default {json.dumps(schema['default'])} is no record's value: absent is None"
        )
    return nameable(adopted if repeated else _with_rules(adopted, schema))


def _unwrapped(schema: Any, root: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The schema of the single type, and whether null is allowed too. The schema is None if there is no single type."""
    nullable = False
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, dict):
            return None, nullable
        if "$ref" in schema:
            schema = _referred(schema["$ref"], root)
            continue
        either = next((schema[k] for k in ("oneOf", "anyOf") if isinstance(schema.get(k), list)), None)
        if either is not None:
            others = [s for s in either if not (isinstance(s, dict) and s.get("type") == "null")]
            nullable = nullable or len(others) < len(either)
            if len(others) != 1:
                return None, nullable
            schema = others[0]
            continue
        types = schema.get("type")
        if isinstance(types, list):
            others = [t for t in types if t != "null"]
            nullable = nullable or len(others) < len(types)
            if len(others) != 1:
                return None, nullable
            schema = {**schema, "type": others[0]}
        return schema, nullable
    return None, nullable


def _referred(reference: Any, root: dict[str, Any]) -> Any:
    """The schema that a reference points to; None if the reference does not point into the schema itself."""
    target: Any = root if isinstance(reference, str) and reference.startswith("#/") else None
    for part in str(reference).removeprefix("#/").split("/"):
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


def _kind(schema: dict[str, Any] | None) -> Kind | None:
    if schema is None:
        return None
    written = schema.get("type")
    if written is None and _all_text(schema.get("enum", [schema.get("const")])):
        written = "string"
    kind = _KINDS.get(written) if isinstance(written, str) else None
    if kind == "string" and schema.get("format") == "date-time":
        return "datetime"
    if kind == "string" and schema.get("contentEncoding") == "base64":
        return "bytes"
    return kind


def _all_text(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(v, str) for v in values)


def _word(schema: dict[str, Any]) -> str:
    return {"object": "an object", "array": "a list", "null": "null"}.get(str(schema.get("type")), "any value")


def _with_rules(field: Found, schema: dict[str, Any]) -> Found:
    """The field with the limits that every view can check. Writers who validate by the schema keep to them already."""
    rules = _limits(schema) if field.kind in ("int", "float") else {}
    if field.kind == "string":
        rules = {ours: schema[theirs] for theirs, ours in _LENGTHS.items() if type(schema.get(theirs)) is int}
    if field.kind == "int":
        whole = {rule: int(limit) for rule, limit in rules.items() if float(limit).is_integer()}
        field = field if len(whole) == len(rules) else field.noting("a limit that is no whole number is not taken over")
        return replace(field, rules=tuple(whole.items()))
    return replace(field, rules=tuple(rules.items()))


def _limits(schema: dict[str, Any]) -> dict[str, int | float]:
    limits: dict[str, Any] = {}
    for bound, strict, names in _BOUNDS:
        limit, beyond = schema.get(bound), schema.get(strict)
        if isinstance(beyond, bool):  # in draft 4 it says whether `bound` is exclusive
            limits[names[beyond]] = limit
        else:
            limits |= {names[0]: limit, names[1]: beyond}
    return {rule: limit for rule, limit in limits.items() if type(limit) in (int, float) and math.isfinite(limit)}
