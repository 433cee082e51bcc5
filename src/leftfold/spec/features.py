"""Features: windowed aggregates of a topic by a key, declared as a class.

The class compiles to a `fold.Definition`, which is all that any engine ever sees; a read gives an instance of it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self, TypeVar

from leftfold.errors import DeclarationError, Source, caller
from leftfold.fold import expressions
from leftfold.fold.columns import Aggregate, Column
from leftfold.fold.compute import compute
from leftfold.fold.definition import Definition, Key, Windowed
from leftfold.fold.durations import SECOND
from leftfold.fold.expressions import FieldRef, to_micros
from leftfold.fold.values import KEY_KINDS
from leftfold.spec import collector
from leftfold.spec.aggregates import Feature
from leftfold.spec.event import Event, fields_of, reference
from leftfold.spec.keys import key_values
from leftfold.spec.topic import Topic

# An event may be stamped this far ahead of the broker's clock; clocks kept by NTP stay well within it.
FUTURE_TOLERANCE = 60 * SECOND


@dataclass(frozen=True)
class Provenance:
    """Which build and batch of a view a value was read from: enough to compute it again."""

    view: str
    build: str
    batch: int


class Features:
    """Base of a view of windowed features. A read gives an instance: each feature a plain value."""

    __leftfold_definition__: ClassVar[Definition]
    __leftfold_topic__: ClassVar[Topic[Any]]
    __leftfold_source__: ClassVar[Source]

    found: bool  # False if the store has never seen this entity
    read_at: datetime
    provenance: Provenance | None  # None for a row that was computed, not read

    def __init_subclass__(cls, *, of: Topic[Any], by: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        source = caller()
        cls.__leftfold_source__ = source
        cls.__leftfold_topic__ = of
        cls.__leftfold_definition__ = _define(cls, of, by, name or _snake(cls.__name__), source)
        collector.declare(cls, source.file)

    @classmethod
    def compute(cls, events: Iterable[Event], *, at: datetime, **key: Any) -> Self:
        """Fold events here, without any engine: the same meaning as the live view, for unit tests.

        Events of other entities are left out; with events of one entity only, the key may be omitted.
        """
        definition = cls.__leftfold_definition__
        rows = [_own(cls, e).micros() for e in events]
        if at.tzinfo is None:
            raise DeclarationError(
                "naive-datetime",
                f"{definition.view} is asked for a moment that has no time zone",
                why="without a zone it is a different moment on every machine",
                fix="use datetime(..., tzinfo=timezone.utc)",
                source=caller(),
            )
        entities = {tuple(r[k.name] for k in definition.keys) for r in rows}
        if key:
            wanted = key_values(definition, key)
        elif len(entities) == 1:
            (wanted,) = entities
        else:
            raise DeclarationError(
                "compute-needs-key",
                f"{len(entities)} entities are among the events",
                why=f"{definition.view} has one row per {', '.join(k.name for k in definition.keys)}",
                fix=f"name one: {cls.__name__}.compute(events, at=..., {definition.keys[0].name}=...)",
                source=caller(),
            )
        mine = [r for r in rows if tuple(r[k.name] for k in definition.keys) == wanted]
        values = compute(definition, mine, to_micros(at))
        return make_row(cls, values, found=bool(mine), read_at=at, provenance=None)

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in type(self).__leftfold_definition__.features)
        return f"{type(self).__name__}({values})"


def _own(view: type[Features], event: Event) -> Event:
    expected = view.__leftfold_topic__.event
    if not isinstance(event, expected):
        raise DeclarationError(
            "wrong-event",
            f"{view.__name__} folds {expected.__name__}, not {type(event).__name__}",
            why=f"its topic {view.__leftfold_topic__.name} holds {expected.__name__}",
            fix=f"give events of type {expected.__name__}",
            source=caller(),
        )
    return event


_VIEW_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,199}")
_RESERVED = frozenset({"found", "read_at", "provenance", "compute", "values"})
R = TypeVar("R", bound=Features)


def make_row(
    view: type[R], values: Mapping[str, Any], *, found: bool, read_at: datetime, provenance: Provenance | None
) -> R:
    row = view.__new__(view)
    row.__dict__.update(values, found=found, read_at=read_at, provenance=provenance)
    return row


def _define(cls: type[Features], of: Any, by: Any, name: str, source: Source) -> Definition:
    if not isinstance(of, Topic):
        raise DeclarationError(
            "not-a-topic",
            f"{cls.__name__} is declared of={of!r}",
            why="features are folded from the records of a topic",
            fix="pass a lf.Topic as of=",
            source=source,
        )
    if not _VIEW_NAME.fullmatch(name):
        raise DeclarationError(
            "view-name",
            f"{name!r} cannot name a view",
            why="the name is part of store keys and of the checkpoint's path: letters, digits, '.', '_' and '-'",
            fix="choose such a name, for example user_activity",
            source=source,
        )
    features = {n: f for n, f in vars(cls).items() if isinstance(f, Feature)}
    if not features:
        raise DeclarationError(
            "no-features",
            f"{cls.__name__} declares no feature",
            why="a view without a feature holds nothing",
            fix='add one, for example clicks_1h = lf.count("1h")',
            source=source,
        )
    columns: dict[str, Column] = {}
    windowed = []
    for feature_name, feature in features.items():
        if feature_name in _RESERVED or feature_name.startswith("_"):
            raise DeclarationError(
                "reserved-name",
                f"{cls.__name__}.{feature_name} cannot be the name of a feature",
                why="a row that was read uses it for itself",
                fix=f"choose another name; taken are {', '.join(sorted(_RESERVED))} and names that start with _",
                source=feature.source,
            )
        if hasattr(feature, "owner") or feature.name != feature_name:
            feature = copy.copy(feature)  # noqa: PLW2901 # used in another class too: each binds its own
            feature.name = feature_name
            setattr(cls, feature_name, feature)
        feature.owner = cls
        column = _column(of, feature)
        columns.setdefault(_canonical(column), column)
        index = list(columns).index(_canonical(column))
        windowed.append(Windowed(feature_name, index, feature.asked.window, feature.asked.step))
    rules = tuple(rule for field in fields_of(of.event).values() for rule in field.rules)
    return Definition(
        view=name,
        topic=of.name,
        time=of.time.name,
        keys=_keys(cls, of, by if isinstance(by, tuple) else (by,), source),
        lateness=of.lateness,
        future=FUTURE_TOLERANCE,
        rules=tuple(replace_event(rule) for rule in rules),
        columns=tuple(columns.values()),
        features=tuple(windowed),
    )


def replace_event(expression: expressions.Expression) -> expressions.Expression:
    """A definition holds names, not classes: what a reader gets from the store is equal to what was declared."""
    return expressions.from_json(expressions.to_json(expression))


def _canonical(column: Column) -> str:
    return repr(column.as_json())


def _column(topic: Topic[Any], feature: Feature[Any]) -> Column:
    asked = feature.asked
    where = None
    if asked.where is not None:
        for compared in expressions.references(asked.where):
            name = reference(topic.event, compared, option="where", source=feature.source).name
            if fields_of(topic.event)[name].repeated:
                raise DeclarationError(
                    "condition-kinds",
                    f"{name} is a list",
                    why="a condition compares one value with another",
                    fix="compare a field that holds one value",
                    source=feature.source,
                )
        where = replace_event(asked.where)
    if asked.aggregate == "count":
        return Column("count", None, "int", where)
    field = reference(topic.event, asked.field, option=asked.aggregate, source=feature.source)
    _check_kind(topic, asked.aggregate, field, feature.source)
    return Column(asked.aggregate, field.name, field.kind, where, asked.scale if field.kind == "float" else 0)


def _check_kind(topic: Topic[Any], aggregate: Aggregate, field: FieldRef, source: Source) -> None:
    allowed = ("int", "float") if aggregate == "sum" else ("string", "int", "float", "bool", "datetime")
    if field.kind not in allowed or fields_of(topic.event)[field.name].repeated:
        raise DeclarationError(
            "aggregate-kind",
            f"{aggregate} of {topic.event.__name__}.{field.name}, which is {field.kind}",
            why=f"{aggregate} takes a field of kind {', '.join(allowed)}",
            fix="choose a field of such a kind",
            source=source,
        )


def _keys(cls: type[Features], topic: Topic[Any], by: tuple[Any, ...], source: Source) -> tuple[Key, ...]:
    keys = tuple(_key(cls, topic, k, source) for k in by)
    if not keys or len(set(keys)) < len(keys):
        raise DeclarationError(
            "by-kind",
            f"{cls.__name__} is keyed by {', '.join(k.name for k in keys) or 'nothing'}",
            why="a row is looked up by its key, each part once",
            fix="use one or several different required str or int fields",
            source=source,
        )
    return keys


def _key(cls: type[Features], topic: Topic[Any], by: Any, source: Source) -> Key:
    field = reference(topic.event, by, option="by", source=source)
    info = fields_of(topic.event)[field.name]
    if field.kind not in KEY_KINDS or info.optional or info.repeated:
        raise DeclarationError(
            "by-kind",
            f"{cls.__name__} is keyed by {field.name}, which is {field.kind}",
            why="a row is looked up by the text of its key, so that must be one thing, and never missing",
            fix="use a required str or int field",
            source=source,
        )
    return Key(field.name, field.kind)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
