"""Vectors: the input of a model, with features of several views and values of the caller."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, overload

from leftfold.declare import collector
from leftfold.declare.aggregates import Feature, Formula
from leftfold.declare.event import fields_of
from leftfold.declare.features import Features, checked_default
from leftfold.declare.free import View
from leftfold.declare.labels import refuse_labels
from leftfold.declare.names import check_name, check_view_name, snake
from leftfold.declare.rows import Row
from leftfold.errors import DeclarationError, SourceLine, caller
from leftfold.fold.expressions import FieldRef
from leftfold.fold.values import Kind
from leftfold.fold.vector import Input, Part, VectorDefinition

T = TypeVar("T", str, bool, int, float)
_KINDS: dict[type, Kind] = {str: "string", int: "int", float: "float", bool: "bool"}


class Request(Generic[T]):
    """A value that the caller passes to a read."""

    name: str

    def __init__(self, kind: type[T], source: SourceLine) -> None:
        self.kind: type[T] = kind
        self.source = source

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, row: None, owner: type) -> Request[T]: ...
    @overload
    def __get__(self, row: object, owner: type) -> T: ...
    def __get__(self, row: object | None, owner: type) -> Request[T] | T:
        if row is None:
            return self
        value: T = row.__dict__[self.name]
        return value


def request(kind: type[T]) -> Request[T]:
    """Declare a value that the caller gives: an argument of `get`, or a column of the labels of a training set."""
    source = caller()
    if kind not in _KINDS:
        raise DeclarationError(
            "request-kind",
            f"request({getattr(kind, '__name__', kind)}) has a type that a vector cannot hold",
            why="a request is a value that JSON can carry",
            fix="use str, int, float or bool",
            source=source,
        )
    return Request(kind, source)


class PartKind(NamedTuple):
    """The kind of a value in a vector."""

    kind: Kind
    repeated: bool = False


class Vector(Row):
    """Base of a vector. Its key consists of the keys of all its views. A read is one round trip."""

    __leftfold_definition__: ClassVar[VectorDefinition]
    __leftfold_source__: ClassVar[SourceLine]
    __leftfold_kinds__: ClassVar[dict[str, PartKind]]  # of its parts and requests, in declared order
    __leftfold_personal__: ClassVar[frozenset[str]]  # keys and parts that show personal data
    __leftfold_keys__: ClassVar[dict[str, Kind | None]]  # None: only a free view has it, whose kinds Spark knows

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        super().__init_subclass__()
        source = caller()
        cls.__leftfold_source__ = source
        cls.__leftfold_definition__ = _define(cls, check_view_name(name or snake(cls.__name__), source))
        cls.__leftfold_names__ = cls.__leftfold_definition__.order
        collector.declare(cls, source.file)


def _define(cls: type[Vector], name: str) -> VectorDefinition:
    refuse_labels(cls, cls.__leftfold_source__)
    declared = {n: v for n, v in vars(cls).items() if isinstance(v, Feature | Request | FieldRef)}
    if not any(isinstance(v, Feature) for v in declared.values()):
        raise DeclarationError(
            "no-features",
            f"{cls.__name__} holds no feature",
            why="a vector gathers features of views",
            fix="add one, for example clicks_1h = UserActivity.clicks_1h",
            source=cls.__leftfold_source__,
        )
    parts, inputs = [], []
    for part_name, value in declared.items():
        source = cls.__leftfold_source__ if isinstance(value, FieldRef) else value.source
        check_name(cls.__name__, part_name, source)
        if isinstance(value, Request):
            inputs.append(Input(part_name, _KINDS[value.kind]))
            continue
        owner = getattr(value, "owner", None)
        if isinstance(value, FieldRef) or owner is None or (isinstance(owner, type) and issubclass(owner, Vector)):
            raise DeclarationError(
                "feature-of-no-view",
                f"{cls.__name__}.{part_name} belongs to no view",
                why="a vector gathers what views keep; it aggregates nothing itself",
                fix="declare it in a lf.Features or a lf.Table, and take it from there",
                source=source,
            )
        parts.append(_part(part_name, value))
        setattr(cls, part_name, value.bound(cls, part_name))
    keys = {key for value in declared.values() if isinstance(value, Feature) for key in _keys(value.owner)}
    if clash := keys & {i.name for i in inputs}:
        raise DeclarationError(
            "request-is-key",
            f"{cls.__name__} asks for {min(clash)}, which is a key of one of its views too",
            why="a read gives keys and requests by name, side by side",
            fix="choose another name for the request",
            source=cls.__leftfold_source__,
        )
    cls.__leftfold_kinds__ = {
        name: PartKind(_KINDS[value.kind]) if isinstance(value, Request) else _part_kind(value)
        for name, value in declared.items()
        if not isinstance(value, FieldRef)
    }
    features = {name: value for name, value in declared.items() if isinstance(value, Feature)}
    owners = [feature.owner for feature in features.values()]
    cls.__leftfold_keys__ = _key_kinds(owners)
    personal = {name for name, feature in features.items() if _is_personal(feature)}
    cls.__leftfold_personal__ = frozenset(personal | {key for owner in owners for key in _personal_keys(owner)})
    return VectorDefinition(name, tuple(parts), tuple(inputs), tuple(declared))


def _part(name: str, feature: Feature[Any]) -> Part:
    owner = feature.owner
    kind, listed = _part_kind(feature)
    view = owner.name if isinstance(owner, View) else owner.__leftfold_definition__.view
    if not isinstance(owner, View) and feature.fallback is getattr(owner, feature.name).fallback:
        return Part(name, view, feature.name)  # this is the view's own default, which the view applies itself
    default = checked_default(feature, kind, listed=listed)
    if isinstance(feature.fallback, datetime):
        raise DeclarationError(
            "default-kind",
            f"{name} has the default {feature.fallback!r}",
            why="a vector's default is a number, a string or a boolean",
            fix="leave .default() out, and decide in your code what a missing time means",
            source=feature.source,
        )
    return Part(name, view, feature.name, default)


def _part_kind(feature: Feature[Any]) -> PartKind:
    owner = feature.owner
    if isinstance(owner, View):
        _, kind = feature.asked.field  # type: ignore[union-attr] # a free view makes its columns this way
        return PartKind(kind)
    if issubclass(owner, Features):
        kinds = owner.__leftfold_definition__.kinds()
        return PartKind(kinds[feature.name], getattr(feature.asked, "aggregate", None) == "last_n")
    (column,) = (c for c in owner.__leftfold_definition__.columns if c.name == feature.name)
    return PartKind(column.kind, column.repeated)


def _is_personal(feature: Feature[Any] | float) -> bool:
    """Return whether a feature shows personal data. What a free view makes of its records is not known."""
    if not isinstance(feature, Feature):
        return False
    if isinstance(getattr(feature, "owner", None), View):  # a part of a formula may have no name, and so no view
        return any(field.personal for field in fields_of(feature.owner.reading.event).values())
    asked = feature.asked
    if isinstance(asked, Formula):
        return _is_personal(asked.left) or _is_personal(asked.right)
    field = asked.field
    return isinstance(field, FieldRef) and field.event is not None and fields_of(field.event)[field.name].personal


def _personal_keys(owner: Any) -> list[str]:
    fields = fields_of(owner.reading.event if isinstance(owner, View) else owner.__leftfold_reading__.event)
    return [key for key in _keys(owner) if key in fields and fields[key].personal]


def _key_kinds(owners: list[Any]) -> dict[str, Kind | None]:
    """Return the kinds of all keys of these views, in the order of the views."""
    kinds: dict[str, Kind | None] = {}
    for owner in owners:
        if isinstance(owner, View):
            kinds |= {name: kinds.get(name) for name in owner.by}
        else:
            kinds |= {key.name: key.kind for key in owner.__leftfold_definition__.keys}
    return kinds


def _keys(owner: Any) -> tuple[str, ...]:
    return owner.by if isinstance(owner, View) else tuple(k.name for k in owner.__leftfold_definition__.keys)
