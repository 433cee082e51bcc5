"""Checks if records of one Avro schema can be read as a declared event, by Avro's own rules, field by field."""

from __future__ import annotations

import json
from typing import Any, Literal

from leftfold.declare.event import EventField
from leftfold.fold.values import Kind

# For each kind, the writer's types that Avro converts to it.
_READS: dict[Kind, frozenset[str]] = {
    "string": frozenset({"string", "bytes"}),
    "bytes": frozenset({"string", "bytes"}),
    "int": frozenset({"int", "long"}),
    "float": frozenset({"int", "long", "float", "double"}),
    "bool": frozenset({"boolean"}),
    "datetime": frozenset({"int", "long"}),
}
MICROS = "timestamp-micros"

# lacks: the field is not there and has no default. null: the writer's field may be null, the declared one may not.
# type: the field has another type. unit: the number is read as microseconds, but it is not in microseconds.
Misfit = Literal["lacks", "null", "type", "unit"]


def written_fields(schema: str) -> dict[str, dict[str, Any]] | None:
    """The fields of a registered schema by name, as in its JSON; None if the schema is not an Avro record."""
    try:
        document = json.loads(schema)
    except ValueError:  # not Avro but another format
        return None
    if not isinstance(document, dict) or document.get("type") != "record":
        return None
    return {field["name"]: field for field in document["fields"]}


def misfit(field: EventField, written: dict[str, dict[str, Any]]) -> Misfit | None:
    """The reason why a record with the fields `written` cannot be read, or is read wrongly, as the declared field."""
    if field.name not in written:
        return "lacks" if field.required and not field.optional else None
    reasons = [_misfit(field, branch) for branch in _branches(written[field.name]["type"])]
    return next((reason for reason in reasons if reason), None)


def _misfit(field: EventField, branch: Any) -> Misfit | None:
    if branch == "null":
        return None if field.optional else "null"
    if not field.repeated:
        return _element(field.kind, branch)
    if _name(branch) != "array":
        return "type"
    reasons = [_element(field.kind, item) for item in _branches(branch["items"])]
    return next((reason for reason in reasons if reason), None)


def _element(kind: Kind, branch: Any) -> Misfit | None:
    if _name(branch) not in _READS[kind]:
        return "type"
    logical = branch.get("logicalType") if isinstance(branch, dict) else None
    return "unit" if kind == "datetime" and logical != MICROS else None


def _branches(written: Any) -> list[Any]:
    return written if isinstance(written, list) else [written]


def _name(branch: Any) -> str:
    """The name of a type, also of one with attributes: {"type": "string", "avro.java.string": "String"}."""
    named = branch.get("type") if isinstance(branch, dict) else branch
    return named if isinstance(named, str) else ""


def type_text(written: Any) -> str:
    """A writer's type in plain words."""
    if isinstance(written, list):
        return " or ".join(type_text(branch) for branch in written)
    if isinstance(written, dict):
        if written.get("type") == "array":
            return f"a list of {type_text(written['items'])}"
        return str(written.get("logicalType") or written.get("name") or _name(written))
    return str(written)
