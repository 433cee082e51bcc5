"""Checks if a new Avro schema is compatible with the earlier ones, by Avro's rules of schema resolution.

A registry gives the same verdict. This check also says which field breaks which readers, and it needs no network. The
schemas are assumed to be valid: they come from a declared event or from a registry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Direction = Literal["backward", "forward"]

_DIRECTIONS: dict[str, tuple[Direction, ...]] = {
    "BACKWARD": ("backward",),
    "FORWARD": ("forward",),
    "FULL": ("backward", "forward"),
    "NONE": (),
}
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
# The types that a reader can read in addition to its own: by the reader's type.
_WIDENED: dict[str, tuple[str, ...]] = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
_SHOWN = 3  # reasons or versions that one sentence lists; the others are only counted
_NOTHING = object()  # means that there is no default; None is a valid default


@dataclass(frozen=True)
class Break:
    """A pair of schemas of which one cannot read the other's records. `version` numbers the old schemas from 1."""

    version: int
    direction: Direction  # backward: the new schema is to read records of that version; forward: the reverse
    where: str  # the field: "price", "lines[].sku"; the record's name if it is the whole record
    kind: Literal["missing", "type", "branch", "symbols", "size", "name", "ambiguous"]
    why: str

    def __str__(self) -> str:
        return self.said_of(f"version {self.version}")

    def said_of(self, old: str) -> str:
        new = "the new schema"
        reader, writer = (new, old) if self.direction == "backward" else (old, new)
        return f"{self.where}: a reader with {reader} cannot read records of {writer}: {self.why}"

    def as_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "direction": self.direction,
            "where": self.where,
            "kind": self.kind,
            "why": self.why,
        }


@dataclass(frozen=True)
class Silent:
    """A change that every registry accepts, but that changes the meaning of old records."""

    where: str
    kind: Literal["default", "logical"]
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True)
class Verdict:
    level: str
    breaks: tuple[Break, ...]
    silent: tuple[Silent, ...]

    @property
    def compatible(self) -> bool:
        return not self.breaks

    @property
    def why(self) -> str:
        """The first reasons against compatibility, each once, with the versions that it applies to."""
        versions: dict[Break, list[int]] = {}
        for one in self.breaks:
            versions.setdefault(replace(one, version=0), []).append(one.version)
        reasons = [one.said_of(_versions(numbers)) for one, numbers in versions.items()]
        rest = len(reasons) - _SHOWN
        return "; ".join(reasons[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")

    def __str__(self) -> str:
        first = f"{'compatible' if self.compatible else 'not compatible'} under {self.level}"
        lines = [*(f"  ✗ {b}" for b in self.breaks), *(f"  ! {s}" for s in self.silent)]
        return "\n".join([first, *lines])

    def as_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "compatible": self.compatible,
            "breaks": [b.as_json() for b in self.breaks],
            "silent": [{"where": s.where, "kind": s.kind, "why": s.why} for s in self.silent],
        }


def verdict(old: Sequence[str], new: str, level: str) -> Verdict:
    """Judge a new schema against the `old` ones of a subject, oldest first.

    A level that is not transitive compares with the newest of them only.
    """
    proposed, before = _parse(new), [_parse(text) for text in old]
    asked = list(enumerate(before, 1))
    if not level.endswith("_TRANSITIVE"):
        asked = asked[-1:]
    breaks = [
        Break(number, direction, *flaw)
        for number, known in asked
        for direction in _DIRECTIONS[level.removesuffix("_TRANSITIVE")]
        for flaw in _read(*((proposed, known) if direction == "backward" else (known, proposed)))
    ]
    return Verdict(level, tuple(breaks), tuple(_silent(before, proposed)))


def is_whole(schema: str) -> bool:
    """Return whether a schema can be judged alone.

    A registry also holds other formats, and schemas that refer to types of other subjects.
    """
    try:
        _parse(schema)
    except (ValueError, LookupError, TypeError):
        return False
    return True


def _versions(numbers: Sequence[int]) -> str:
    rest = len(numbers) - _SHOWN
    listed = ", ".join(map(str, numbers[:_SHOWN])) + (f" and {rest} more" if rest > 0 else "")
    return f"version{'' if len(numbers) == 1 else 's'} {listed}"


# Schemas as graphs ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Type:
    """A schema. A named type is one object wherever it is used, even inside itself."""

    kind: str  # as Avro names it
    name: str = ""  # with its namespace
    aliases: tuple[str, ...] = ()
    fields: list[_Field] = field(default_factory=list)
    parts: list[_Type] = field(default_factory=list)  # items, values, branches
    symbols: tuple[str, ...] = ()
    size: int = 0
    default: Any = None  # for an enum: the symbol that replaces unknown ones
    logical: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.kind == "union":
            return " or ".join(map(str, self.parts))
        if self.kind in ("array", "map"):
            return f"{self.kind} of {self.parts[0]}"
        return f"{self.kind} {self.name}" if self.name else self.kind


@dataclass(eq=False)
class _Field:
    name: str
    aliases: tuple[str, ...]
    type: _Type
    default: Any


def _parse(text: str) -> _Type:
    return _type(json.loads(text), "", {})


def _type(schema: Any, space: str, known: dict[str, _Type]) -> _Type:
    if isinstance(schema, list):
        return _Type("union", parts=[_type(branch, space, known) for branch in schema])
    if isinstance(schema, str):
        return _Type(schema) if schema in _PRIMITIVES else known[_full(schema, space)]
    kind = schema["type"]
    if not isinstance(kind, str):
        return _type(kind, space, known)
    if kind in ("array", "map"):
        return _Type(kind, parts=[_type(schema["items" if kind == "array" else "values"], space, known)])
    if kind in ("record", "error", "enum", "fixed"):
        return _named(schema, "record" if kind == "error" else kind, space, known)
    resolved = _type(kind, space, known)
    if kind in _PRIMITIVES:
        resolved.logical = _logical(schema)
    return resolved


def _named(schema: dict[str, Any], kind: str, space: str, known: dict[str, _Type]) -> _Type:
    name = _full(schema["name"], schema.get("namespace", space))
    own = name.rpartition(".")[0]
    named = known[name] = _Type(
        kind,
        name,
        tuple(_full(alias, own) for alias in schema.get("aliases", ())),
        symbols=tuple(schema.get("symbols", ())),
        size=schema.get("size", 0),
        default=schema.get("default"),
        logical=_logical(schema),
    )
    for each in schema.get("fields", ()):
        aliases, default = tuple(each.get("aliases", ())), each.get("default", _NOTHING)
        named.fields.append(_Field(each["name"], aliases, _type(each["type"], own, known), default))
    return named


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _logical(schema: dict[str, Any]) -> tuple[Any, ...]:
    if "logicalType" not in schema:
        return ()
    return tuple(schema[k] for k in ("logicalType", "precision", "scale") if k in schema)


# Resolution -------------------------------------------------------------------------------------------------------

_Flaw = tuple[str, Any, str]  # where, kind, why


def _read(reader: _Type, writer: _Type) -> list[_Flaw]:
    """The reasons why the reader cannot read every record of the writer; empty if it can."""
    return _Resolution().flaws(reader, writer, "")


class _Resolution:
    def __init__(self) -> None:
        self._found: dict[tuple[_Type, _Type], list[_Flaw]] = {}

    def flaws(self, reader: _Type, writer: _Type, where: str) -> list[_Flaw]:
        pair = (reader, writer)
        if pair not in self._found:
            self._found[pair] = []  # a recursive type is compatible unless another part of it is not
            self._found[pair] = self._compare(reader, writer, where)
        return self._found[pair]

    def _compare(self, reader: _Type, writer: _Type, where: str) -> list[_Flaw]:
        if writer.kind == "union":
            if reader.kind == "union":
                lacking = [branch for branch in writer.parts if self.flaws(reader, branch, where)]
                return [_unread(branch, reader, where) for branch in lacking]
            return [flaw for branch in writer.parts for flaw in self.flaws(reader, branch, where)]
        if reader.kind == "union":
            fits = any(not self.flaws(branch, writer, where) for branch in reader.parts)
            return [] if fits else [_unread(writer, reader, where)]
        if reader.kind != writer.kind:
            return [] if writer.kind in _WIDENED.get(reader.kind, ()) else [_mismatch(writer, reader, where)]
        return [*_names(reader, writer, where), *self._inside(reader, writer, where)]

    def _inside(self, reader: _Type, writer: _Type, where: str) -> list[_Flaw]:
        match reader.kind:
            case "record":
                return [flaw for own in reader.fields for flaw in self._field(own, writer, where)]
            case "array" | "map":
                inside = where + ("[]" if reader.kind == "array" else "{}")
                return self.flaws(reader.parts[0], writer.parts[0], inside)
            case "enum":
                return _symbols(reader, writer, where)
            case "fixed" if reader.size != writer.size:
                return [(where or reader.name, "size", f"{writer.size} bytes cannot be read as {reader.size}")]
        return []

    def _field(self, own: _Field, writer: _Type, where: str) -> list[_Flaw]:
        inside = f"{where}.{own.name}" if where else own.name
        meant = [f for f in writer.fields if f.name in (own.name, *own.aliases)]
        if len(meant) > 1:
            names = " and ".join(f.name for f in meant)
            return [(inside, "ambiguous", f"by its aliases it is {names} of the records at once")]
        if meant:
            return self.flaws(own.type, meant[0].type, inside)
        if own.default is _NOTHING:
            return [(inside, "missing", "the records lack it, and the reader has no default for it")]
        return []


def _names(reader: _Type, writer: _Type, where: str) -> list[_Flaw]:
    """Compare the names of two types. Names are compared without namespace, which may change; aliases with it."""
    if reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2] or writer.name in reader.aliases:
        return []
    return [(where or reader.name, "name", f"{writer} is not {reader}, nor an alias of it")]


def _symbols(reader: _Type, writer: _Type, where: str) -> list[_Flaw]:
    unknown = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not unknown or reader.default in reader.symbols:
        return []
    why = f"it does not know {', '.join(unknown)}, and has no default symbol"
    return [(where or reader.name, "symbols", why)]


def _mismatch(writer: _Type, reader: _Type, where: str) -> _Flaw:
    return where or str(reader), "type", f"{writer} cannot be read as {reader}"


def _unread(writer: _Type, reader: _Type, where: str) -> _Flaw:
    return where or str(reader), "branch", f"{writer} may stand there, and the reader takes only {reader}"


# Changes that Avro's rules allow ----------------------------------------------------------------------------------


def _silent(old: Sequence[_Type], new: _Type) -> Iterator[Silent]:
    """Find silent changes of meaning between the newest old schema and the new one, field by field.

    A changed default is reported only if some old version lacks the field.
    """
    if not old:
        return
    known = [dict(_fields(schema, "", ())) for schema in old]
    for where, (now, default) in _fields(new, "", ()):
        if where not in known[-1]:
            continue
        then, earlier = known[-1][where]
        if then.kind == now.kind and then.logical != now.logical:
            change = f"{_meaning(then)} becomes {_meaning(now)}"
            yield Silent(where, "logical", f"{change}: the numbers in old records are read as something else")
        lacking = [str(number) for number, fields in enumerate(known, 1) if where not in fields]
        if lacking and _NOTHING not in (earlier, default) and earlier != default:
            records = f"records of version {', '.join(lacking)}, which lack it,"
            change = f"{json.dumps(earlier)}, and from now on as {json.dumps(default)}"
            yield Silent(where, "default", f"{records} were read as {change}; a view that goes on keeps what it read")


def _fields(schema: _Type, where: str, inside: tuple[_Type, ...]) -> Iterator[tuple[str, tuple[_Type, Any]]]:
    """Every field by its path, with its type and default.

    For a union the type is its first branch that is not null. A type inside itself is not followed again.
    """
    if schema in inside:
        return
    within = (*inside, schema)
    for own in schema.fields:
        path = f"{where}.{own.name}" if where else own.name
        yield path, (_meant(own.type), own.default)
        yield from _fields(own.type, path, within)
    for part in schema.parts:
        yield from _fields(part, where + {"array": "[]", "map": "{}"}.get(schema.kind, ""), within)


def _meant(schema: _Type) -> _Type:
    if schema.kind in ("array", "map"):
        return _meant(schema.parts[0])
    if schema.kind != "union":
        return schema
    return next((_meant(part) for part in schema.parts if part.kind != "null"), schema)


def _meaning(schema: _Type) -> str:
    return " ".join(map(str, (schema.kind, *schema.logical))) if schema.logical else f"plain {schema.kind}"
