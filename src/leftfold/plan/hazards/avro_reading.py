"""Whether what was written under one Avro schema can be read as a declared event: Avro's own rules, field by field."""

from __future__ import annotations

import json
from typing import Any, Literal

from leftfold.fold.values import Kind
from leftfold.spec.event import EventField

# A writer's types that Avro turns into the one that a kind is read as.
_READS: dict[Kind, frozenset[str]] = {
    "string": frozenset({"string", "bytes"}),
    "bytes": frozenset({"string", "bytes"}),
    "int": frozenset({"int", "long"}),
    "float": frozenset({"int", "long", "float", "double"}),
    "bool": frozenset({"boolean"}),
    "datetime": frozenset({"int", "long"}),
}
MICROS = "timestamp-micros"

# lacks: it is not there and has no default. null: it may be missing, and must not. type: it is something else.
# unit: it is read, as microseconds, and is none.
Misfit = Literal["lacks", "null", "type", "unit"]


def written_fields(schema: str) -> dict[str, dict[str, Any]] | None:
    """The fields of a registered schema by name, as its JSON has them; None if it is no record."""
    try:
        document = json.loads(schema)
    except ValueError:  # of another format than Avro
        return None
    if not isinstance(document, dict) or document.get("type") != "record":
        return None
    return {field["name"]: field for field in document["fields"]}


def misfit(field: EventField, written: dict[str, dict[str, Any]]) -> Misfit | None:
    """Why a record with these fields is not read, or not rightly read, into a declared one."""
    if field.name not in written:
        return "lacks" if field.required and not field.optional else None
    found = [_misfit(field, branch) for branch in _branches(written[field.name]["type"])]
    return next((reason for reason in found if reason), None)


def _misfit(field: EventField, branch: Any) -> Misfit | None:
    if branch == "null":
        return None if field.optional else "null"
    if not field.repeated:
        return _element(field.kind, branch)
    if _name(branch) != "array":
        return "type"
    found = [_element(field.kind, item) for item in _branches(branch["items"])]
    return next((reason for reason in found if reason), None)


def _element(kind: Kind, branch: Any) -> Misfit | None:
    if _name(branch) not in _READS[kind]:
        return "type"
    logical = branch.get("logicalType") if isinstance(branch, dict) else None
    return "unit" if kind == "datetime" and logical != MICROS else None


def _branches(written: Any) -> list[Any]:
    return written if isinstance(written, list) else [written]


def _name(branch: Any) -> str:
    """Of a type, or of one that is described: {"type": "string", "avro.java.string": "String"}."""
    named = branch.get("type") if isinstance(branch, dict) else branch
    return named if isinstance(named, str) else ""


def type_text(written: Any) -> str:
    """A writer's type as people say it."""
    if isinstance(written, list):
        return " or ".join(type_text(branch) for branch in written)
    if isinstance(written, dict):
        if written.get("type") == "array":
            return f"a list of {type_text(written['items'])}"
        return str(written.get("logicalType") or written.get("name") or _name(written))
    return str(written)
