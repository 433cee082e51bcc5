"""A view's key: its declaration, its values as a caller gives them, and the limit on its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leftfold.declare.event import Event, fields_of, reference
from leftfold.errors import DeclarationError, SourceLine
from leftfold.fold.definition import Key
from leftfold.fold.expressions import Expression, Length
from leftfold.fold.values import KEY_KINDS

_TYPES: dict[str, type] = {"string": str, "int": int}
# The text of a key is stored in every row, in state and in memory, once per tile. A longer key is a mistake.
KEY_BYTES = 1_024
_CHARACTER_BYTES = 4  # the maximum in UTF-8


def longest_key(rules: Iterable[Expression], names: Iterable[str] | None = None) -> int:
    """The largest allowed size of a key's text in bytes of UTF-8: 1,024, or more if max_length of its parts allows it.

    `names` are the fields of the key. Without them, the limit is for a key of any fields of the event. It is used for
    the key of a record.
    """
    declared = {rule.field.name: rule.bound for rule in rules if isinstance(rule, Length) and rule.op == "<="}
    parts = [_CHARACTER_BYTES * declared.get(name, 0) for name in (declared if names is None else names)]
    return max(KEY_BYTES, sum(parts) + sum(len(f"{part}:") for part in parts if len(parts) > 1))


def declared_keys(view: str, event: type[Event], by: Any, source: SourceLine) -> tuple[Key, ...]:
    keys = tuple(_key(view, event, k, source) for k in (by if isinstance(by, tuple) else (by,)))
    if not keys or len(set(keys)) < len(keys):
        raise DeclarationError(
            "by-kind",
            f"{view} is keyed by {', '.join(k.name for k in keys) or 'nothing'}",
            why="a row is looked up by its key, each part once",
            fix="use one or several different required str or int fields",
            source=source,
        )
    return keys


def _key(view: str, event: type[Event], by: Any, source: SourceLine) -> Key:
    field = reference(event, by, option="by", source=source)
    info = fields_of(event)[field.name]
    if field.kind not in KEY_KINDS or info.optional or info.repeated:
        raise DeclarationError(
            "by-kind",
            f"{view} is keyed by {field.name}, which is {field.kind}",
            why="a row is looked up by the text of its key, which must be exact and never missing",
            fix="use a required str or int field",
            source=source,
        )
    if field.name == "at":
        raise DeclarationError(
            "reserved-name",
            f"{view} is keyed by a field named 'at'",
            why="a read uses at= for the moment it answers for",
            fix="choose another name for the field",
            source=source,
        )
    return Key(field.name, field.kind)


def key_values(view: str, keys: tuple[Key, ...], parts: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the parts of the key in their declared order. Check their names and types."""
    if len(parts) == len(keys) and all(type(parts.get(k.name)) is _TYPES[k.kind] for k in keys):
        return tuple(parts[k.name] for k in keys)
    shape = ", ".join(f"{k.name}: {k.kind}" for k in keys)
    raise DeclarationError(
        "wrong-key",
        f"{view} was asked for {', '.join(f'{n}={v!r}' for n, v in parts.items()) or 'no key'}",
        why=f"its rows are found by ({shape})",
        fix="give exactly " + ", ".join(f"{k.name}=..." for k in keys),
    )
