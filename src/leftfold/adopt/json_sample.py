"""Derives the fields of an event from a sample of JSON records, by the same rules as the decoder."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from leftfold.adopt.fields import Field, FieldShape, Found, LeftOut, nameable, typed
from leftfold.declare.event import Event
from leftfold.fold.values import INT64, Kind
from leftfold.kafka.decode import json_decoder

_WORDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}

_LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    **{"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt},
    "min_length": lambda text, limit: len(text) >= limit,
    "max_length": lambda text, limit: len(text) <= limit,
}
_NULL, _NOTHING = "null", ("null", "an empty list")
# Pairs of the kind in a schema and the kind in a sample. The schema's kind reads every sampled value.
_READ_ALIKE: set[tuple[Kind, Kind]] = {("float", "int"), ("string", "datetime"), ("bytes", "string")}
# Pairs where the decoder is stricter than the schema, with the kind to declare instead and a note.
_CORRECTED: dict[tuple[Kind, Kind], tuple[Kind, str]] = {
    ("int", "float"): ("float", "an integer by the schema, but records write it with a point"),
    ("datetime", "string"): ("string", "a date-time by the schema, but not all records have seconds and a zone"),
}


class _Moment(Event):
    at: datetime


_as_moment = json_decoder(_Moment, ("at",))


def moment(text: Any) -> int | None:
    """The moment in microseconds; None if views do not read this text as a datetime."""
    read = _as_moment(json.dumps({"at": text}).encode()) if isinstance(text, str) else None
    return None if read is None else int(read["at"])


def parsed(value: bytes) -> dict[str, Any] | None:
    """The JSON object in a value, as a view reads it; None if the value is not a JSON object."""
    try:
        document = json.loads(value.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def shape_of(records: Sequence[dict[str, Any]]) -> FieldShape:
    """The shape of sampled records. A field that every record has is required; one that some lack is optional.

    A null counts as lacking.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    return FieldShape(None, tuple(_field(name, records) for name in names))


def _field(name: str, records: Sequence[dict[str, Any]]) -> Field:
    values = [record.get(name) for record in records]
    present = [value for value in values if value is not None]
    if not present:
        return LeftOut(name, _NULL, "no other value of it was seen, so its type is not known")
    lists = [value for value in present if isinstance(value, list)]
    if lists and len(lists) < len(present):
        return LeftOut(name, _seen(present), "a field has one type")
    items = [item for value in lists for item in value] if lists else present
    if not items:
        return LeftOut(name, "an empty list", "no item of it was seen, so its type is not known")
    kind = _kind(items)
    if kind is None:
        return LeftOut(name, ("a list of " if lists else "") + _seen(items), _why(items))
    return nameable(Found(name, kind, optional=len(present) < len(values), repeated=bool(lists)))


def _kind(values: Sequence[Any]) -> Kind | None:
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return "datetime" if all(moment(value) is not None for value in values) else "string"
    if kinds == {bool}:
        return "bool"
    if kinds == {int} and all(-INT64 <= value < INT64 for value in values):
        return "int"
    if kinds in ({float}, {int, float}):
        return "float"
    return None


def _seen(values: Sequence[Any]) -> str:
    return " or ".join(dict.fromkeys("null" if v is None else _WORDS[type(v)] for v in values))


def _why(values: Sequence[Any]) -> str:
    kinds = {type(value) for value in values}
    if type(None) in kinds:
        return "an item of it may be null, and a list is of one type"
    if kinds == {dict}:
        return "a field is one plain value: ask its writer to flatten it into several fields"
    if kinds == {int}:
        return "it is larger than 64 bits can hold"
    return "a field has one type"


def agreed(declared: FieldShape, records: Sequence[dict[str, Any]]) -> FieldShape:
    """The fields of a registered schema, corrected by a sample of records.

    Corrected are fields whose records break the schema, and fields that views read more strictly than the schema.
    """
    if not records:
        return declared
    seen = {f.name: f for f in shape_of(records).fields}
    fields = tuple(_agreed(f, seen.get(f.name)) if isinstance(f, Found) else f for f in declared.fields)
    fields = tuple(_keeping(f, records) if isinstance(f, Found) else f for f in fields)
    others = {f.name for f in declared.fields}
    extra = tuple(
        LeftOut(f.name, typed(f) if isinstance(f, Found) else f.what, "records have it, the registered schema does not")
        for f in seen.values()
        if f.name not in others
    )
    return replace(declared, fields=(*fields, *extra))


def _agreed(field: Found, seen: Field | None) -> Field:
    if isinstance(seen, LeftOut) and seen.what not in _NOTHING:
        return LeftOut(field.name, typed(field), f"the sampled records have {seen.what} there", field.doc)
    sometimes_missing = seen is None or (seen.optional if isinstance(seen, Found) else seen.what == _NULL)
    if sometimes_missing and not field.optional:
        field = field.noting("required by the schema, but not all sampled records have it", optional=True)
    if not isinstance(seen, Found):
        return field
    kinds = (field.kind, seen.kind)
    if field.repeated != seen.repeated or (field.kind != seen.kind and kinds not in (_READ_ALIKE | _CORRECTED.keys())):
        return LeftOut(field.name, typed(field), f"the sampled records have {typed(seen)} there", field.doc)
    if kinds not in _CORRECTED:
        return field
    kind, note = _CORRECTED[kinds]
    return field.noting(note, kind=kind)


def _keeping(field: Found, records: Sequence[dict[str, Any]]) -> Found:
    """The field without the limits that sampled records break. With them, these records would be rejected."""
    values = [record[field.name] for record in records if record.get(field.name) is not None]
    rules = tuple((rule, limit) for rule, limit in field.rules if all(_LIMITS[rule](v, limit) for v in values))
    if rules == field.rules:
        return field
    broken = ", ".join(f"{rule}={limit!r}" for rule, limit in field.rules if (rule, limit) not in rules)
    return field.noting(f"sampled records break its limit {broken}, which is not taken over", rules=rules)
