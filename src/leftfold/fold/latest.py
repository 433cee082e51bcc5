"""The definition of a view that keeps the newest row of each key: a table, or a free view (a user's function).

The newest row is the one with the largest position. For a table the position is the record's offset. For a free view it
is the column named by `latest=`, or the batch if none is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from leftfold.fold import expressions
from leftfold.fold.definition import LAYOUT, STATE, Key, Origin, fingerprint, read_default
from leftfold.fold.expressions import Expression, from_micros
from leftfold.fold.values import Kind


@dataclass(frozen=True)
class TakenColumn:
    """A column of a row: a field of the event, or a column that a free view returns."""

    name: str
    field: str
    kind: Kind
    repeated: bool = False
    default: Any = None


@dataclass(frozen=True, eq=False)
class Latest:
    view: str
    origins: tuple[Origin, ...]
    keys: tuple[Key, ...]
    columns: tuple[TakenColumn, ...]
    rules: tuple[Expression, ...] = ()
    code: str | None = None  # for a free view: the fingerprint of its function
    ttl: int | None = None  # a row that was not written for that long is removed; None keeps it

    @cached_property
    def visible(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint([LAYOUT, STATE, self.as_json()])

    def __eq__(self, other: object) -> bool:  # written by hand, because == of a condition builds a condition
        return isinstance(other, Latest) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def fields(self) -> set[str]:
        names = {k.name for k in self.keys} | {c.field for c in self.columns}
        for rule in self.rules:
            names |= expressions.fields_of(rule)
        return names

    def judged(self) -> dict[str, Kind]:
        """The kind of every field whose value decides whether a record is accepted; lists do not."""
        return {
            **{k.name: k.kind for k in self.keys},
            **{c.field: c.kind for c in self.columns if not c.repeated},
        }

    def row(self, values: list[Any] | None) -> dict[str, Any]:
        """Convert the JSON values of a row to the values that a user reads. `values` is None if there is no row."""
        held = values if values is not None else [None] * len(self.columns)
        return {c.name: _read(c, v) for c, v in zip(self.columns, held, strict=True)}

    def as_json(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "origins": [[o.topic, o.lateness, o.log_time] for o in self.origins],
            "keys": [[k.name, k.kind] for k in self.keys],
            "columns": [[c.name, c.field, c.kind, c.repeated, c.default] for c in self.columns],
            "rules": [expressions.to_json(r) for r in self.rules],
            "code": self.code,
            "ttl": self.ttl,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Latest:
        return cls(
            view=data["view"],
            origins=tuple(Origin(*o) for o in data["origins"]),
            keys=tuple(Key(*k) for k in data["keys"]),
            columns=tuple(TakenColumn(*c) for c in data["columns"]),
            rules=tuple(expressions.from_json(r) for r in data["rules"]),
            code=data["code"],
            ttl=data["ttl"],
        )


def _read(column: TakenColumn, value: Any) -> Any:
    if value is None:
        return read_default(column.default, column.kind)
    if column.kind == "datetime":
        return [from_micros(v) for v in value] if column.repeated else from_micros(value)
    if column.kind == "float":
        return [float(v) for v in value] if column.repeated else float(value)
    return value
