"""The definition of a view of windowed features, as data.

Every use of a view takes this one value: Spark compiles it, the store keeps its JSON as the build's manifest, a reader
merges tiles by it, a unit test folds events by it. The view's fingerprint is a hash of its canonical JSON and of the
versions of the layouts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from leftfold.fold import columns, derived, expressions
from leftfold.fold.columns import Column, Partial
from leftfold.fold.derived import Node
from leftfold.fold.expressions import Expression, from_micros
from leftfold.fold.tiles import ring_slots
from leftfold.fold.values import Kind

# The versions of the layout of store rows and of Spark's state. A change of either one gives every view a new build.
LAYOUT = 3
STATE = 2
# The layouts of rows that readers of this release understand. In layout 2 no tile is packed; all else is the same.
LAYOUTS_READ = (2, LAYOUT)


@dataclass(frozen=True)
class Key:
    name: str
    kind: Kind


@dataclass(frozen=True)
class Origin:
    """A topic that a view reads, with the settings that decide which of its records are late."""

    topic: str
    lateness: int
    log_time: Literal["broker", "producer", "header"]


Span = tuple[int | None, int, int | None]  # window, step, ttl; features with the same span share their tiles


@dataclass(frozen=True)
class Windowed:
    """A feature over one window: the value of one column, or a mean from two columns (a sum and a count)."""

    name: str
    columns: tuple[int, ...]
    window: int | None  # None: everything that ever happened
    step: int  # 0 without a window
    ttl: int | None = None  # only without a window: the value is missing if no event happened for that long
    default: Any = None

    @property
    def span(self) -> Span:
        return self.window, self.step, self.ttl


@dataclass(frozen=True)
class Derived:
    """A feature that is computed at read time from other features of the view."""

    name: str
    node: Node
    default: Any = None


Feature = Windowed | Derived


# A function from the merged partials, and the values of the earlier features, to the value of a feature.
_ValueOf = Callable[[Mapping[tuple[Span, int], Partial], Mapping[str, Any]], Any]


@dataclass(frozen=True, eq=False)
class Definition:
    view: str
    origins: tuple[Origin, ...]
    stream: str | None  # the fingerprint of the function between the topics and the view, if there is one
    time: str
    keys: tuple[Key, ...]
    future: int  # how far an event time may be ahead of its log time
    rules: tuple[Expression, ...]  # the event's rules; a record that breaks one is not accepted
    columns: tuple[Column, ...]
    features: tuple[Feature, ...]  # a derived feature comes after the features that it uses

    @cached_property
    def windowed(self) -> tuple[Windowed, ...]:
        return tuple(f for f in self.features if isinstance(f, Windowed))

    @cached_property
    def visible(self) -> tuple[str, ...]:
        """The names of the features that a row shows.

        A feature that is used only inside a derived one has a name that starts with a dot, and is not shown.
        """
        return tuple(f.name for f in self.features if not f.name.startswith("."))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({f.step for f in self.windowed if f.window is not None}))

    @cached_property
    def lifetime(self) -> bool:
        return any(f.window is None for f in self.windowed)

    @cached_property
    def lateness(self) -> int:
        return max(origin.lateness for origin in self.origins)

    @cached_property
    def longest_window(self) -> int:
        return max((f.window for f in self.windowed if f.window is not None), default=0)

    @cached_property
    def rings(self) -> dict[int, int]:
        """The number of slots per step.

        The cover of a window uses tiles of the window's step and of coarser steps. So the tiles of a step also serve
        windows with finer steps.
        """
        return {
            step: ring_slots(
                step,
                longest_window=max(f.window for f in self.windowed if f.window is not None and f.step <= step),
                finest_step=self.steps[0],
                future=self.future,
            )
            for step in self.steps
        }

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint([LAYOUT, STATE, self.as_json()])

    def __eq__(self, other: object) -> bool:  # written by hand, because == of a condition builds a condition
        return isinstance(other, Definition) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def fields(self) -> set[str]:
        """The names of all fields of the event that the view reads."""
        names = {self.time, *(k.name for k in self.keys)}
        for column in self.columns:
            names |= column.fields()
        for rule in self.rules:
            names |= expressions.fields_of(rule)
        return names

    def judged(self) -> dict[str, Kind]:
        """The kind of every field whose value decides whether a record is accepted: those that the view reads.

        Its time is not among them, nor a field of which only the presence is counted.
        """
        conditions = [c.where for c in self.columns if c.where is not None]
        if self.stream is None:
            conditions += self.rules
        return {
            **{k.name: k.kind for k in self.keys},
            **{c.field: c.kind for c in self.columns if c.field and c.aggregate != "count"},
            **{ref.name: ref.kind for condition in conditions for ref in expressions.references(condition)},
        }

    def kinds(self) -> dict[str, Kind]:
        """The kind of each feature's value. For last_n it is the kind of the elements."""
        found: dict[str, Kind] = {}
        for feature in self.features:
            found[feature.name] = (
                derived.kind_of(feature.node, found) if isinstance(feature, Derived) else self._kind(feature)
            )
        return found

    def _kind(self, feature: Windowed) -> Kind:
        column = self.columns[feature.columns[0]]
        if len(feature.columns) > 1:
            return "float"
        return "int" if column.aggregate in ("count", "distinct") else column.kind

    def finals(self, merged: Mapping[tuple[Span, int], Partial]) -> dict[str, Any]:
        """The value of every visible feature. `merged` holds the merged partial of each needed (span, column)."""
        values: dict[str, Any] = {}
        for name, key, value_of, default in self._finals:
            value = value_of(merged, values) if key is None else merged[key]
            values[name] = default if value is None else value
        if len(self.visible) < len(values):
            return {name: values[name] for name in self.visible}
        return values

    @cached_property
    def _finals(self) -> list[tuple[str, tuple[Span, int] | None, _ValueOf, Any]]:
        """Each feature's name, the key of the partial that is its value, or else how it is made, and its default."""
        return [(f.name, self._as_it_is(f), self._value_of(f), self._defaults[f.name]) for f in self.features]

    def _as_it_is(self, feature: Feature) -> tuple[Span, int] | None:
        if isinstance(feature, Derived) or len(feature.columns) > 1:
            return None
        (number,) = feature.columns
        return (feature.span, number) if columns.is_final(self.columns[number]) else None

    def _value_of(self, feature: Feature) -> _ValueOf:
        if isinstance(feature, Derived):
            node = feature.node
            return lambda _, values: derived.evaluate(node, values)
        finish = columns.finisher(self.columns[feature.columns[0]])
        first = (feature.span, feature.columns[0])
        if len(feature.columns) == 1:
            return lambda merged, _: finish(merged[first])
        second = (feature.span, feature.columns[1])
        return lambda merged, _: columns.mean(finish(merged[first]), merged[second])

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        kinds = self.kinds()
        return {f.name: read_default(f.default, kinds[f.name]) for f in self.features}

    def as_json(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "origins": [[o.topic, o.lateness, o.log_time] for o in self.origins],
            "stream": self.stream,
            "time": self.time,
            "keys": [[k.name, k.kind] for k in self.keys],
            "future": self.future,
            "rules": [expressions.to_json(r) for r in self.rules],
            "columns": [c.as_json() for c in self.columns],
            "features": [_feature_to_json(f) for f in self.features],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Definition:
        return cls(
            view=data["view"],
            origins=tuple(Origin(*o) for o in data["origins"]),
            stream=data["stream"],
            time=data["time"],
            keys=tuple(Key(*k) for k in data["keys"]),
            future=data["future"],
            rules=tuple(expressions.from_json(r) for r in data["rules"]),
            columns=tuple(Column.from_json(c) for c in data["columns"]),
            features=tuple(_feature_from_json(f) for f in data["features"]),
        )


def fingerprint(document: Any) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def read_default(default: Any, kind: Kind) -> Any:
    """Convert a default from its JSON value to the value that a row shows."""
    return from_micros(default) if kind == "datetime" and default is not None else default


def _feature_to_json(feature: Feature) -> dict[str, Any]:
    if isinstance(feature, Derived):
        return {"name": feature.name, "derived": derived.to_json(feature.node), "default": feature.default}
    return {
        "name": feature.name,
        "columns": list(feature.columns),
        "window": feature.window,
        "step": feature.step,
        "ttl": feature.ttl,
        "default": feature.default,
    }


def _feature_from_json(data: Mapping[str, Any]) -> Feature:
    if "derived" in data:
        return Derived(data["name"], derived.from_json(data["derived"]), data["default"])
    return Windowed(data["name"], tuple(data["columns"]), data["window"], data["step"], data["ttl"], data["default"])
