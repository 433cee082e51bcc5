"""A view's key: as it is declared, as people give it, and as the text by which its row is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leftfold.errors import DeclarationError, Source
from leftfold.fold.definition import Key
from leftfold.fold.values import KEY_KINDS
from leftfold.spec.event import Event, fields_of, reference

_TYPES: dict[str, type] = {"string": str, "int": int}


def declared_keys(view: str, event: type[Event], by: Any, source: Source) -> tuple[Key, ...]:
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


def _key(view: str, event: type[Event], by: Any, source: Source) -> Key:
    field = reference(event, by, option="by", source=source)
    info = fields_of(event)[field.name]
    if field.kind not in KEY_KINDS or info.optional or info.repeated:
        raise DeclarationError(
            "by-kind",
            f"{view} is keyed by {field.name}, which is {field.kind}",
            why="a row is looked up by the text of its key, so that must be one thing, and never missing",
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


def key_values(view: str, keys: tuple[Key, ...], given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key's parts in their declared order, checked by name and type."""
    if len(given) == len(keys) and all(type(given.get(k.name)) is _TYPES[k.kind] for k in keys):
        return tuple(given[k.name] for k in keys)
    shape = ", ".join(f"{k.name}: {k.kind}" for k in keys)
    raise DeclarationError(
        "wrong-key",
        f"{view} was asked for {', '.join(f'{n}={v!r}' for n, v in given.items()) or 'no key'}",
        why=f"its rows are found by ({shape})",
        fix="give exactly " + ", ".join(f"{k.name}=..." for k in keys),
    )
