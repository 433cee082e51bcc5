"""A view's key as people give it, checked, and as the text by which its row is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leftfold.errors import DeclarationError
from leftfold.fold.definition import Definition
from leftfold.fold.values import entity_text


def key_values(definition: Definition, given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key's parts in their declared order, checked by name and type."""
    names = [k.name for k in definition.keys]
    types: dict[str, type] = {"string": str, "int": int}
    wrong = [k.name for k in definition.keys if k.name in given and type(given[k.name]) is not types[k.kind]]
    if set(given) != set(names) or wrong:
        shape = ", ".join(f"{k.name}: {k.kind}" for k in definition.keys)
        raise DeclarationError(
            "wrong-key",
            f"{definition.view} was asked for {', '.join(f'{n}={v!r}' for n, v in given.items()) or 'no key'}",
            why=f"its rows are found by ({shape})",
            fix="give exactly " + ", ".join(f"{n}=..." for n in names),
        )
    return tuple(given[n] for n in names)


def entity_of(definition: Definition, given: Mapping[str, Any]) -> str:
    return entity_text(key_values(definition, given))
