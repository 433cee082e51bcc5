"""Events: the typed records of a topic, declared as a class.

`Click.price` is a field reference at run time and a `float` for a type checker. So both find a misspelt field.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, Union, dataclass_transform, get_args, get_origin

import annotated_types
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from pydantic._internal._model_construction import ModelMetaclass  # pydantic has no public metaclass to derive from
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from leftfold.declare.rows import html_table
from leftfold.errors import DeclarationError, SourceLine, caller, nearest
from leftfold.fold.expressions import Compare, Expression, FieldRef, Length, from_micros, to_micros
from leftfold.fold.values import Kind

T = TypeVar("T")
E = TypeVar("E", bound="Event")
_KINDS: dict[Any, Kind] = {
    str: "string",
    int: "int",
    float: "float",
    bool: "bool",
    datetime: "datetime",
    bytes: "bytes",
}
_BOUNDS = {
    annotated_types.Gt: ("gt", ">"),
    annotated_types.Ge: ("ge", ">="),
    annotated_types.Lt: ("lt", "<"),
    annotated_types.Le: ("le", "<="),
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")  # as in Avro, but without a leading underscore: pydantic reserves it


class UnknownFieldError(DeclarationError, AttributeError):
    """An event lacks a field. Also an AttributeError, so that `hasattr` and pydantic's own look-ups keep working."""


@dataclass(frozen=True)
class _Mark:
    """The mark of personal data. It is recognized by its type, because pydantic may copy an annotation's metadata."""


if TYPE_CHECKING:
    Personal = Annotated[T, _Mark()]
else:

    class Personal:
        """Marks a field as personal data: `email: lf.Personal[str]`.

        It changes neither values nor schema. For a compacted topic with such a field, the plan limits how long deleted
        or replaced records stay in the log.
        """

        def __class_getitem__(cls, annotation: Any) -> Any:
            return Annotated[annotation, _Mark()]


@dataclass(frozen=True)
class EventField:
    name: str
    kind: Kind
    optional: bool
    repeated: bool  # list[kind]
    default: Any  # PydanticUndefined if the field is required
    rules: tuple[Expression, ...]
    personal: bool = False

    @property
    def required(self) -> bool:
        return self.default is PydanticUndefined


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field, PrivateAttr))
class EventMeta(ModelMetaclass):
    """Makes `Click.price` a reference. Type checkers do not see `__getattr__`: with it they would accept any name."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:  # noqa: N805 # a metaclass: its self is a class
            fields = cls.__dict__.get("__leftfold_fields__")
            if fields is None or name.startswith("_"):
                return super().__getattr__(name)
            if name in fields:
                return FieldRef(name, fields[name].kind, cls)
            raise unknown_field(cls, name, caller())


class Event(BaseModel, metaclass=EventMeta):
    """Base of every event. Values are frozen, unknown fields are refused, floats finite, datetimes with a time zone."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    __leftfold_fields__: ClassVar[dict[str, EventField]]
    __leftfold_source__: ClassVar[SourceLine]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        source = caller()
        _refuse_validators(cls, source)
        cls.__leftfold_source__ = source
        cls.__leftfold_fields__ = {name: _field(cls, name, info, source) for name, info in cls.model_fields.items()}

    @model_validator(mode="after")
    def _aware(self) -> Event:
        for field in type(self).__leftfold_fields__.values():
            value = getattr(self, field.name)
            if field.kind == "datetime" and value is not None:
                for moment in value if field.repeated else (value,):
                    if moment.tzinfo is None:
                        raise ValueError(f"{field.name} has no time zone: use datetime.now(timezone.utc)")
        return self

    def micros(self) -> dict[str, Any]:
        """The event as plain values, with times in microseconds, as the `fold` package takes it."""
        return {
            name: to_micros(value) if isinstance(value, datetime) else value for name, value in self.__dict__.items()
        }

    def _repr_html_(self) -> str:
        return html_table((), ((n, repr(v)) for n, v in self.__dict__.items()), caption=type(self).__name__)


def trusted(event: type[E]) -> Callable[[dict[str, Any]], E]:
    """Return a function that makes an event of decoded fields, without validating them again. It takes over the dict.

    The fields are those of a record that was accepted: each has a value of its kind, and times are in microseconds.
    """
    times = [(field.name, field.repeated) for field in event.__leftfold_fields__.values() if field.kind == "datetime"]
    made = assembled(event)

    def make(fields: dict[str, Any]) -> E:
        for name, repeated in times:
            if (value := fields[name]) is not None:
                fields[name] = [from_micros(v) for v in value] if repeated else from_micros(value)
        return made(fields)

    return make


def assembled(event: type[E]) -> Callable[[dict[str, Any]], E]:
    """Return a function that makes an event of all its fields, without validating them. It takes over the dict."""
    names, new = set(event.__leftfold_fields__), event.__new__  # all events share the names: they are frozen
    # The slots of a pydantic model, set directly: its own constructor would validate, and __setattr__ refuses.
    slots = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
    set_dict, set_fields, set_extra, set_private = (BaseModel.__dict__[slot].__set__ for slot in slots)

    def make(fields: dict[str, Any]) -> E:
        made = new(event)
        set_dict(made, fields)
        set_fields(made, names)
        set_extra(made, None)
        set_private(made, None)
        return made

    return make


def fields_of(event: type[Event]) -> dict[str, EventField]:
    return event.__leftfold_fields__


def reference(event: type[Event], field: Any, *, option: str, source: SourceLine) -> FieldRef:
    """Return the reference to a field that is given as `Click.user_id` or, by generated code, as its name."""
    if isinstance(field, FieldRef):
        if field.event is not event:
            owner = field.event.__name__ if field.event else "another event"
            raise DeclarationError(
                "field-of-other-event",
                f"{option}={owner}.{field.name} is not a field of {event.__name__}",
                why=f"the records it would be read from hold {event.__name__}",
                fix=f"name a field of {event.__name__}: {', '.join(fields_of(event))}",
                source=source,
            )
        return field
    if isinstance(field, str):
        if field not in fields_of(event):
            raise unknown_field(event, field, source)
        return FieldRef(field, fields_of(event)[field].kind, event)
    raise DeclarationError(
        "not-a-field",
        f"{option}={field!r} is not a field",
        why=f"{option}= takes a field of {event.__name__}",
        fix=f"write for example {option}={event.__name__}.{next(iter(fields_of(event)), 'name')}",
        source=source,
    )


def unknown_field(event: type[Event], name: str, source: SourceLine) -> UnknownFieldError:
    names = list(event.__leftfold_fields__)
    near = nearest(name, names)
    return UnknownFieldError(
        "unknown-field",
        f"{event.__name__} has no field {name!r}",
        why=f"its fields are {', '.join(names)}",
        fix=f"write {event.__name__}.{near}" if near else f"declare {name} in {event.__name__}",
        source=source,
    )


def _field(event: type[Event], name: str, info: FieldInfo, source: SourceLine) -> EventField:
    if not _NAME.fullmatch(name) or hasattr(Event, name):
        raise DeclarationError(
            "field-name",
            f"{event.__name__}.{name} cannot be the name of a field",
            why="Avro allows letters, digits and _, and an event uses the names of its own methods for itself",
            fix="choose another name",
            source=source,
        )
    annotation, optional, repeated = info.annotation, False, False
    personal = any(isinstance(m, _Mark) for m in info.metadata)
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [a for a in get_args(annotation) if a is not type(None)]
        optional, annotation = len(inner) == 1, inner[0] if len(inner) == 1 else annotation
    annotation, inside = _unmarked(annotation)
    personal |= inside
    if get_origin(annotation) is list:
        repeated = True
        annotation, inside = _unmarked(get_args(annotation)[0])
        personal |= inside
    kind = _KINDS.get(annotation)
    if kind is None:
        raise DeclarationError(
            "field-type",
            f"{event.__name__}.{name} has type {getattr(annotation, '__name__', annotation)}",
            why="a field has a type that means the same in Python, Avro and Spark",
            fix="use str, int, float, bool, datetime, bytes, a list of one of them, or one of them | None; or flatten "
            "the value into several fields",
            source=source,
        )
    if info.default_factory is not None:
        raise DeclarationError(
            "default-factory",
            f"{event.__name__}.{name} has a default that is computed",
            why="a schema can only hold a constant default, so old records would read differently from new ones",
            fix="give a constant default, or none",
            source=source,
        )
    if info.default is not PydanticUndefined and not _fits(info.default, kind, optional=optional, repeated=repeated):
        raise DeclarationError(
            "default-type",
            f"{event.__name__}.{name} has the default {info.default!r}",
            why="the schema carries it to every reader, who reads it as the field's own type",
            fix=f"give a default of type {kind}, or none; datetimes need a time zone, floats are finite",
            source=source,
        )
    ref = FieldRef(name, kind, event)
    constraints = [constraint for constraint in info.metadata if not isinstance(constraint, _Mark)]
    rules = tuple(_rule(event, ref, repeated, constraint, source) for constraint in constraints)
    return EventField(name, kind, optional, repeated, info.default, rules, personal)


def _unmarked(annotation: Any) -> tuple[Any, bool]:
    """Remove the mark of personal data from an annotation; also return whether it was there.

    In `Personal[str] | None` and `list[Personal[str]]` the mark is inside, and pydantic leaves it there.
    """
    if get_origin(annotation) is Annotated and all(isinstance(m, _Mark) for m in annotation.__metadata__):
        return annotation.__origin__, True
    return annotation, False


def _fits(value: Any, kind: Kind, *, optional: bool, repeated: bool) -> bool:
    if value is None:
        return optional
    if repeated:
        return isinstance(value, list) and all(_fits(v, kind, optional=False, repeated=False) for v in value)
    if kind == "float":
        return type(value) in (int, float) and math.isfinite(value)
    if kind == "datetime":
        return isinstance(value, datetime) and value.tzinfo is not None
    return _KINDS.get(type(value)) == kind


def _rule(event: type[Event], ref: FieldRef, repeated: bool, constraint: Any, source: SourceLine) -> Expression:
    if not repeated and ref.kind in ("int", "float"):
        for bound, (attribute, op) in _BOUNDS.items():
            if isinstance(constraint, bound):
                value = getattr(constraint, attribute)
                return Compare(op, ref, float(value) if ref.kind == "float" else int(value))
    if not repeated and ref.kind == "string":
        if isinstance(constraint, annotated_types.MinLen):
            return Length(">=", ref, constraint.min_length)
        if isinstance(constraint, annotated_types.MaxLen):
            return Length("<=", ref, constraint.max_length)
    rule = re.sub(r"^\w+\((.*)\)$", r"\1", repr(constraint))  # pydantic's own class is no help to a reader
    raise _not_portable(f"{event.__name__}.{ref.name} has the rule {rule}", source)


def _refuse_validators(event: type[Event], source: SourceLine) -> None:
    decorators = event.__pydantic_decorators__
    own = {**decorators.field_validators, **decorators.validators, **decorators.root_validators}
    names = [*own, *(n for n in decorators.model_validators if n != "_aware")]
    if names:
        raise _not_portable(f"{event.__name__} has the validator {names[0]}", source)


def _not_portable(violation: str, source: SourceLine) -> DeclarationError:
    return DeclarationError(
        "rule-not-portable",
        f"{violation}, which Spark cannot check",
        why="an event's rules decide which records a view accepts, and a view runs in Spark, without Python per record",
        fix="express it with gt, ge, lt or le of a number, or with min_length or max_length of a string; or check it "
        "before you make the event",
        source=source,
    )
