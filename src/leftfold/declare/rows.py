"""A row that was read or computed: its values and their provenance."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeVar


@dataclass(frozen=True)
class Provenance:
    """The build and batch of a view that a value was read from. This is enough to recompute the value."""

    view: str
    build: str
    batch: int
    found: bool  # False if no event of this entity is in any window, or its row is gone


@dataclass(frozen=True)
class Read:
    """The values of one row as they were read, before they become an instance of a class."""

    values: dict[str, Any]
    read_at: datetime
    provenance: tuple[Provenance, ...]

    @property
    def found(self) -> bool:
        return all(p.found for p in self.provenance)


class Row:
    """The values of one entity. `found` is False if a view that it was read from has no data of the entity."""

    __leftfold_names__: ClassVar[tuple[str, ...]] = ()

    found: bool
    read_at: datetime
    provenance: tuple[Provenance, ...]  # one per view; empty for a row that was computed, not read

    @property
    def values(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__leftfold_names__}

    @property
    def _title(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"{self._title}({', '.join(f'{n}={v!r}' for n, v in self.values.items())})"

    def _repr_html_(self) -> str:
        origin = ", ".join(f"{p.view} {p.build} batch {p.batch}" for p in self.provenance)
        caption = f"{self._title} at {self.read_at:%Y-%m-%d %H:%M:%S} UTC{', from ' if origin else ''}{origin}"
        return html_table((), ((n, repr(v)) for n, v in self.values.items()), caption=caption)


R = TypeVar("R", bound=Row)
RESERVED = frozenset({"found", "read_at", "provenance", "compute", "values"})


def make_row(
    view: type[R], values: Mapping[str, Any], *, found: bool, read_at: datetime, provenance: tuple[Provenance, ...]
) -> R:
    row = view.__new__(view)
    row.__dict__.update(values, found=found, read_at=read_at, provenance=provenance)
    return row


def row_of(view: type[R], read: Read, values: Mapping[str, Any]) -> R:
    """Return what was read as an instance of a class, with these values."""
    return make_row(view, values, found=read.found, read_at=read.read_at, provenance=read.provenance)


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]], *, caption: str) -> str:
    """An HTML table for a notebook. Every text is escaped."""
    cells = [f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in rows]
    heads = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    top = f"<thead><tr>{heads}</tr></thead>" if heads else ""
    return f"<table><caption>{html.escape(caption)}</caption>{top}<tbody>{''.join(cells)}</tbody></table>"
