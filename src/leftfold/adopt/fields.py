"""The fields that were found in a topic's records: those that can be declared, and those that are left out and why."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from leftfold.declare.event import Event
from leftfold.fold.values import KEY_KINDS, Kind

# The same rule as an event has for the names of its fields.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# A field with such a name and a default would hide the type from the fields below it.
_TYPE_NAMES = frozenset({"str", "int", "float", "bool", "bytes", "datetime", "list", "Field"})


@dataclass(frozen=True)
class Found:
    """A field that can be declared.

    If `default` is None, there is no default. An optional field reads as None where it is absent.
    """

    name: str
    kind: Kind
    optional: bool = False
    repeated: bool = False
    default: Any = None
    doc: str = ""
    notes: tuple[str, ...] = ()
    rules: tuple[tuple[str, int | float], ...] = ()  # as pydantic's Field takes them
    epoch: bool = False  # a number that is a moment, but not in microseconds

    def noting(self, note: str, **changes: Any) -> Found:
        return replace(self, notes=(*self.notes, note), **changes)

    @property
    def can_be_key(self) -> bool:
        return self.kind in KEY_KINDS and not self.repeated

    @property
    def can_be_time(self) -> bool:
        return self.kind == "datetime" and not self.repeated


@dataclass(frozen=True)
class LeftOut:
    """A field that cannot be declared, and why."""

    name: str
    what: str  # its type, in the words of its schema
    why: str
    doc: str = ""


Field = Found | LeftOut


@dataclass(frozen=True)
class FieldShape:
    """The fields of a record in their order."""

    name: str | None  # the record's own name, if it has one
    fields: tuple[Field, ...]
    doc: str = ""

    @property
    def found(self) -> tuple[Found, ...]:
        return tuple(f for f in self.fields if isinstance(f, Found))

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(f for f in self.fields if isinstance(f, LeftOut))

    def replacing(self, *fields: Found) -> FieldShape:
        new = {f.name: f for f in fields}
        return replace(self, fields=tuple(new.get(f.name, f) for f in self.fields))


def nameable(field: Found) -> Field:
    """The field if an event can have one of this name, else a LeftOut.

    Records are read by name, so the field cannot be declared under another name. A field with the name of a type loses
    its rules, because a declaration would write them as a default.
    """
    name = field.name
    if keyword.iskeyword(name):
        why = "the name is a word of Python's own"
    elif not _NAME.fullmatch(name):
        why = "a field's name is a letter, then letters, digits and _"
    elif hasattr(Event, name):
        why = "an event uses the name of its own method or setting for itself"
    elif name in _TYPE_NAMES and field.default is not None:
        why = "the name is that of a type, which its default would hide from the fields below it"
    else:
        return replace(field, rules=()) if name in _TYPE_NAMES else field
    return LeftOut(name, typed(field), f"{why}, and records are read by name: ask its writer to rename it", field.doc)


def hides_a_type(name: str) -> bool:
    return name in _TYPE_NAMES


def typed(field: Found) -> str:
    """The type of a field, as an annotation in Python."""
    python = {"string": "str"}.get(field.kind, field.kind)
    return f"list[{python}]" if field.repeated else python


def merged(newest: FieldShape, older: Sequence[FieldShape]) -> FieldShape:
    """The newest shape, changed so that it also reads records of every older shape."""
    fields = tuple(_readable(f, older) if isinstance(f, Found) else f for f in newest.fields)
    known = {f.name for f in newest.fields}
    gone: dict[str, Field] = {f.name: f for shape in older for f in shape.fields if f.name not in known}
    dropped = tuple(
        LeftOut(f.name, f.what if isinstance(f, LeftOut) else typed(f), "only older versions of the schema have it")
        for f in gone.values()
    )
    return replace(newest, fields=(*fields, *dropped))


def _readable(field: Found, older: Sequence[FieldShape]) -> Field:
    for shape in older:
        before = next((f for f in shape.fields if f.name == field.name), None)
        if before is None:
            if field.default is None and not field.optional:
                field = field.noting("older versions of the schema lack it", optional=True)
        elif isinstance(before, LeftOut):
            why = f"an older version of the schema has {before.what}: {before.why}"
            return LeftOut(field.name, typed(field), why, field.doc)
        elif not _promotes(before, field):
            why = f"an older version of the schema has {typed(before)}, which does not read as {typed(field)}"
            return LeftOut(field.name, typed(field), why, field.doc)
        elif before.optional and not field.optional:
            field = field.noting("an older version of the schema lets it be null", optional=True)
    return field


def _promotes(written: Found, read: Found) -> bool:
    """Return whether Avro reads the written field as the read one. Between different kinds, only int reads as float."""
    kinds = (written.kind, read.kind)
    return written.repeated == read.repeated and (written.kind == read.kind or kinds == ("int", "float"))
