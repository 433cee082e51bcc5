"""Features: windowed aggregates of a topic by a key, declared as a class.

The class compiles to a `fold.Definition`. The engines see nothing else. A read returns an instance of the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Self

from leftfold.declare import collector
from leftfold.declare.aggregates import Asked, AskedAggregate, Feature, Formula, Taken
from leftfold.declare.event import Event, fields_of, reference
from leftfold.declare.keys import declared_keys, key_values
from leftfold.declare.labels import refuse_labels
from leftfold.declare.names import check_name, check_view_name, snake
from leftfold.declare.reading import Reading, reading
from leftfold.declare.rows import Row, make_row
from leftfold.declare.sinks import Online, Sink, checked_sinks
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold import columns, derived, expressions
from leftfold.fold.columns import Column
from leftfold.fold.compute import compute, happened
from leftfold.fold.definition import Definition, Derived, Windowed
from leftfold.fold.definition import Feature as FoldFeature
from leftfold.fold.derived import Node
from leftfold.fold.durations import SECOND
from leftfold.fold.expressions import FieldRef, to_micros
from leftfold.fold.values import Kind, is_number

# The event time may be this far ahead of the broker's clock. Clocks synchronized by NTP differ by much less.
FUTURE_TOLERANCE = 60 * SECOND

_NUMBERS: tuple[Kind, ...] = ("int", "float")
_SCALARS: tuple[Kind, ...] = ("string", "int", "float", "bool", "datetime")
TAKES: dict[AskedAggregate, tuple[Kind, ...]] = {
    "sum": _NUMBERS,
    "mean": _NUMBERS,
    "min": (*_NUMBERS, "datetime"),
    "max": (*_NUMBERS, "datetime"),
    "last": _SCALARS,
    "last_n": _SCALARS,
    "distinct": ("string", "int", "datetime"),
}


def check_aggregated(event: type[Event], aggregate: AskedAggregate, field: FieldRef, source: SourceLine) -> None:
    """Raise if an aggregate cannot take a field of an event."""
    allowed, fields = TAKES[aggregate], fields_of(event).values()
    fitting = [f.name for f in fields if f.kind in allowed and not f.repeated]
    if field.name not in fitting:
        raise DeclarationError(
            "aggregate-kind",
            f"{aggregate} of {event.__name__}.{field.name}, which is {field.kind}",
            why=f"{aggregate} takes a field of type {' or '.join(allowed)}",
            fix=f"choose {' or '.join(fitting)}" if fitting else f"add a field of type {' or '.join(allowed)}",
            source=source,
        )


class Features(Row):
    """Base of a view of windowed features. A read returns an instance, in which each feature is a plain value."""

    __leftfold_definition__: ClassVar[Definition]
    __leftfold_reading__: ClassVar[Reading]
    __leftfold_source__: ClassVar[SourceLine]
    __leftfold_sinks__: ClassVar[tuple[Sink, ...]]

    def __init_subclass__(cls, *, of: Any, by: Any, name: str | None = None, to: Sequence[Sink] = (Online(),)) -> None:
        super().__init_subclass__()
        source = caller()
        cls.__leftfold_source__ = source
        cls.__leftfold_sinks__ = checked_sinks(cls.__name__, to, source)
        cls.__leftfold_reading__ = reading(cls.__name__, of, source)
        cls.__leftfold_definition__ = _define(cls, by, check_view_name(name or snake(cls.__name__), source))
        cls.__leftfold_names__ = cls.__leftfold_definition__.visible
        collector.declare(cls, source.file)

    @classmethod
    def compute(cls, events: Iterable[Event], *, at: datetime, **key: Any) -> Self:
        """Compute the features from events in this process, without any engine. For unit tests.

        The values mean the same as in the live view. Events of other entities are ignored. The key may be omitted if
        all events are of one entity.
        """
        definition = cls.__leftfold_definition__
        rows = [_own(cls, e).micros() for e in events]
        if at.tzinfo is None:
            raise DeclarationError(
                "naive-datetime",
                f"{definition.view} is asked for a time that has no time zone",
                why="without a zone it is a different time on every machine",
                fix="use datetime(..., tzinfo=timezone.utc)",
                source=caller(),
            )
        entities = {tuple(r[k.name] for k in definition.keys) for r in rows}
        if key:
            wanted = key_values(definition.view, definition.keys, key)
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
        moment = to_micros(at)
        values, exists = compute(definition, mine, moment), happened(definition, mine, moment)
        return make_row(cls, values, found=exists, read_at=at, provenance=())


def _own(view: type[Features], event: Event) -> Event:
    expected = view.__leftfold_reading__.event
    if not isinstance(event, expected):
        raise DeclarationError(
            "wrong-event",
            f"{view.__name__} folds {expected.__name__}, not {type(event).__name__}",
            why=f"what it reads holds {expected.__name__}",
            fix=f"give events of type {expected.__name__}",
            source=caller(),
        )
    return event


def _define(cls: type[Features], by: Any, name: str) -> Definition:
    read, source = cls.__leftfold_reading__, cls.__leftfold_source__
    refuse_labels(cls, source)
    declared = {
        n: Feature[Any](Taken(f), source) if isinstance(f, FieldRef) else f
        for n, f in vars(cls).items()
        if isinstance(f, Feature | FieldRef)
    }
    if not declared:
        raise DeclarationError(
            "no-features",
            f"{cls.__name__} declares no feature",
            why="a view without a feature holds nothing",
            fix='add one, for example clicks_1h = lf.count("1h")',
            source=source,
        )
    compiled = _Compiled(read)
    for feature_name, feature in declared.items():
        check_name(cls.__name__, feature_name, feature.source)
        bound = feature.bound(cls, feature_name)
        setattr(cls, feature_name, bound)
        compiled.add(feature_name, feature)
    time = read.topics[0].time
    assert time is not None, "reading() refuses a topic that is compacted; any other has a time"
    rules = tuple(rule for field in fields_of(read.topics[0].event).values() for rule in field.rules)
    return Definition(
        view=name,
        origins=read.origins,
        stream=None if read.stream is None else read.stream.fingerprint,
        time=time.name,
        keys=declared_keys(cls.__name__, read.event, by, source),
        future=FUTURE_TOLERANCE,
        rules=tuple(nameless(rule) for rule in rules),
        columns=tuple(compiled.columns),
        features=tuple(compiled.features),
    )


def nameless(expression: expressions.Expression) -> expressions.Expression:
    """Remove the event classes from an expression and keep only names.

    So a definition that a reader gets from the store is equal to the declared one.
    """
    return expressions.from_json(expressions.to_json(expression))


class _Compiled:
    """The columns and features collected from a class. Equal columns are kept once."""

    def __init__(self, read: Reading) -> None:
        self._event = read.event
        self._streamed = read.stream is not None
        self._names: dict[int, str] = {}  # by the id() of the feature that the user wrote
        self._kinds: dict[str, Kind | None] = {}  # None: not a number, so not allowed in arithmetic
        self.columns: list[Column] = []
        self.features: list[FoldFeature] = []

    def add(self, name: str, feature: Feature[Any]) -> None:
        asked = feature.asked
        if isinstance(asked, Formula):
            node = self._node(name, asked, feature.source)
            self._kinds[name] = derived.kind_of(node, {n: k for n, k in self._kinds.items() if k is not None})
            compiled: FoldFeature = Derived(name, node, self._default(feature, self._kinds[name] or "float"))
        elif isinstance(asked, Asked):
            indexes = tuple(self._column(c) for c in self._columns(asked, feature.source))
            kind = self._kind(asked, self.columns[indexes[0]])
            self._kinds[name] = kind if kind in _NUMBERS and asked.aggregate != "last_n" else None
            default = self._default(feature, kind)
            compiled = Windowed(name, indexes, asked.window, asked.step, asked.ttl, default)
        else:
            raise DeclarationError(
                "column-of-a-table",
                f"{name} takes a field as it is",
                why="a view of windows aggregates events; the newest row of a key is a Table's",
                fix="write an aggregate, such as lf.last(field, window), or declare a lf.Table",
                source=feature.source,
            )
        self._names[id(feature)] = name
        self.features.append(compiled)

    def _kind(self, asked: Asked, column: Column) -> Kind:
        if asked.aggregate in ("count", "distinct"):
            return "int"
        return "float" if asked.aggregate == "mean" else column.kind

    def _default(self, feature: Feature[Any], kind: Kind) -> Any:
        listed = isinstance(feature.asked, Asked) and feature.asked.aggregate == "last_n"
        return checked_default(feature, kind, listed=listed)

    def _node(self, name: str, formula: Formula, source: SourceLine) -> Node:
        left, right = (self._side(name, side, source) for side in (formula.left, formula.right))
        return derived.Arithmetic(formula.op, left, right)

    def _side(self, name: str, side: Feature[Any] | int | float, source: SourceLine) -> Node:
        if not isinstance(side, Feature):
            return derived.Constant(side)
        if id(side) in self._names:
            known = self._names[id(side)]
            if self._kinds[known] is None:
                raise DeclarationError(
                    "formula-kinds",
                    f"{known} is in the formula of {name}, and is no number",
                    why="a derived feature is arithmetic of features and numbers",
                    fix="use a count, a sum, a mean, or another feature that is a number",
                    source=source,
                )
            return derived.Value(known)
        if hasattr(side, "owner"):
            raise DeclarationError(
                "feature-of-other-view",
                f"{side.name} is in the formula of {name}, and belongs to {side.owner.__name__}",
                why="a derived feature is computed from one entity's row of one view",
                fix="declare it here too, or combine them where both are read, in a Vector",
                source=source,
            )
        hidden = f".{name}.{len(self.features)}"
        self.add(hidden, side)
        return self._side(name, side, source)

    def _column(self, column: Column) -> int:
        if column not in self.columns:
            self.columns.append(column)
        return self.columns.index(column)

    def _columns(self, asked: Asked, source: SourceLine) -> tuple[Column, ...]:
        where = checked_where(self._event, asked.where, source)
        if asked.aggregate == "count":
            return (Column("count", None, "int", where),)
        field = reference(self._event, asked.field, option=asked.aggregate, source=source)
        check_aggregated(self._event, asked.aggregate, field, source)
        scale = asked.scale if field.kind == "float" else 0
        if asked.aggregate == "mean":
            # If the field is never missing, the events are counted. In a stream any field can be missing.
            always = not self._streamed and not fields_of(self._event)[field.name].optional
            counted = None if always else field.name
            return Column("sum", field.name, field.kind, where, scale), Column("count", counted, "int", where)
        plain: columns.Aggregate = asked.aggregate
        return (Column(plain, field.name, field.kind, where, scale, asked.size),)


def checked_where(
    event: type[Event], where: expressions.Expression | None, source: SourceLine
) -> expressions.Expression | None:
    """Return a condition over fields of an event, without the event's class. Refuse one that compares a list."""
    if where is None:
        return None
    for compared in expressions.references(where):
        name = reference(event, compared, option="where", source=source).name
        if fields_of(event)[name].repeated:
            raise DeclarationError(
                "condition-kinds",
                f"{name} is a list",
                why="a condition compares one value with another",
                fix="compare a field that holds one value",
                source=source,
            )
    return nameless(where)


def checked_default(feature: Feature[Any], kind: Kind, *, listed: bool = False) -> Any:
    """Return a feature's default as its JSON value. Refuse a default that is not of the feature's kind."""
    value = feature.fallback
    if value is None:
        return None
    if kind == "float" and type(value) is int and is_number(value):
        return float(value)
    if kind == "datetime" and isinstance(value, datetime) and value.tzinfo is not None:
        return to_micros(value)
    types: dict[Kind, type] = {"string": str, "int": int, "float": float, "bool": bool}
    if listed or type(value) is not types.get(kind) or (kind in _NUMBERS and not is_number(value)):
        raise DeclarationError(
            "default-kind",
            f"{getattr(feature, 'name', 'a feature')} has the default {value!r}",
            why="the feature is a list, and gives [] by itself where there is no event"
            if listed
            else f"the feature is {kind}",
            fix=f"leave .default({value!r}) out" if listed else f"give a default of type {kind}, or none",
            source=feature.source,
        )
    return value
