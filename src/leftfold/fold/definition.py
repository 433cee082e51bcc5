"""What a view means, as data.

The one value behind every use of a view: Spark compiles it, the store keeps its JSON as the build's manifest,
a reader merges by it, a unit test folds it. Its canonical JSON is the view's fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from leftfold.fold import expressions
from leftfold.fold.columns import Column
from leftfold.fold.expressions import Expression
from leftfold.fold.tiles import ring_slots
from leftfold.fold.values import Kind

# The layout of state and store rows. A change here makes every view a new build.
LAYOUT = 1


@dataclass(frozen=True)
class Key:
    name: str
    kind: Kind


@dataclass(frozen=True)
class Windowed:
    """A feature: one column over one window."""

    name: str
    column: int
    window: int
    step: int


@dataclass(frozen=True, eq=False)
class Definition:
    view: str
    topic: str
    time: str
    keys: tuple[Key, ...]
    lateness: int
    future: int  # how far an event time may lie ahead of its log time
    rules: tuple[Expression, ...]  # of the event; a record that breaks one is not accepted
    columns: tuple[Column, ...]
    features: tuple[Windowed, ...]

    @cached_property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({f.step for f in self.features}))

    @cached_property
    def longest_window(self) -> int:
        return max(f.window for f in self.features)

    @cached_property
    def rings(self) -> dict[int, int]:
        """Slots per step. A cover uses its own step and coarser ones: a step serves windows of finer ones too."""
        return {
            step: ring_slots(
                step,
                longest_window=max(f.window for f in self.features if f.step <= step),
                finest_step=self.steps[0],
                future=self.future,
            )
            for step in self.steps
        }

    @cached_property
    def fingerprint(self) -> str:
        canonical = json.dumps([LAYOUT, self.as_json()], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def __eq__(self, other: object) -> bool:  # by hand: == of a condition builds another condition
        return isinstance(other, Definition) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def fields(self) -> set[str]:
        """Every field of the event that the view reads."""
        names = {self.time, *(k.name for k in self.keys)}
        for column in self.columns:
            names |= column.fields()
        for rule in self.rules:
            names |= expressions.fields_of(rule)
        return names

    def as_json(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "topic": self.topic,
            "time": self.time,
            "keys": [[k.name, k.kind] for k in self.keys],
            "lateness": self.lateness,
            "future": self.future,
            "rules": [expressions.to_json(r) for r in self.rules],
            "columns": [c.as_json() for c in self.columns],
            "features": [[f.name, f.column, f.window, f.step] for f in self.features],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Definition:
        return cls(
            view=data["view"],
            topic=data["topic"],
            time=data["time"],
            keys=tuple(Key(*k) for k in data["keys"]),
            lateness=data["lateness"],
            future=data["future"],
            rules=tuple(expressions.from_json(r) for r in data["rules"]),
            columns=tuple(Column.from_json(c) for c in data["columns"]),
            features=tuple(Windowed(*f) for f in data["features"]),
        )
