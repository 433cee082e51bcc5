"""The IPython extension that shows declared classes as tables in a notebook: `%load_ext leftfold`.

IPython asks instances for their HTML, but never classes. So the functions here are registered for the types of the
classes. Rows, events, topics and functions under `@lf.view` have their own HTML and need no extension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leftfold.declare.aggregates import Asked, Feature, Formula
from leftfold.declare.event import Event, EventMeta, fields_of
from leftfold.declare.features import Features
from leftfold.declare.reading import Reading
from leftfold.declare.rows import html_table
from leftfold.declare.table import Table
from leftfold.declare.vector import Vector
from leftfold.fold.durations import text
from leftfold.fold.expressions import Both, Compare, Expression, FieldRef, Length, from_micros


def load_ipython_extension(ipython: Any) -> None:
    html = ipython.display_formatter.formatters["text/html"]
    for kind in (EventMeta, type):  # views have no metaclass of their own
        html.for_type(kind, class_html)


def class_html(declared: type) -> str | None:
    """Return the HTML of a declared class. None for any other class, which IPython then shows as usual."""
    if issubclass(declared, Event) and declared is not Event:
        return _event(declared)
    if "__leftfold_definition__" not in vars(declared):
        return None
    if issubclass(declared, Features):
        return _features(declared)
    if issubclass(declared, Table):
        return _table(declared)
    return _vector(declared) if issubclass(declared, Vector) else None


def _event(event: type[Event]) -> str:
    rows = []
    for field in fields_of(event).values():
        kind = f"list of {field.kind}" if field.repeated else field.kind
        rules = [*(["personal"] if field.personal else []), *(["optional"] if field.optional else [])]
        rules += [] if field.required else [f"default {field.default!r}"]
        rows.append((field.name, kind, ", ".join([*rules, *map(_condition, field.rules)])))
    return html_table(("field", "kind", "rules"), rows, caption=f"event {event.__name__}")


def _features(view: type[Features]) -> str:
    definition = view.__leftfold_definition__
    rows = [(name, *_feature(vars(view)[name])) for name in definition.visible]
    caption = _caption(definition.view, view.__leftfold_reading__, (k.name for k in definition.keys))
    return html_table(("feature", "aggregate", "window", "step", "default"), rows, caption=caption)


def _feature(feature: Feature[Any]) -> tuple[str, str, str, str]:
    default = "" if feature.fallback is None else repr(feature.fallback)
    asked = feature.asked
    if not isinstance(asked, Asked):
        return _aggregate(feature), "", "", default
    if asked.window is not None:
        return _aggregate(feature), text(asked.window), text(asked.step), default
    forgotten = "ever" if asked.ttl is None else f"ever, forgotten after {text(asked.ttl)}"
    return _aggregate(feature), forgotten, "", default


def _aggregate(feature: Feature[Any]) -> str:
    asked = feature.asked
    if isinstance(asked, Formula):
        return f"{_side(asked.left)} {asked.op} {_side(asked.right)}"
    assert isinstance(asked, Asked), "a view of windows holds no bare column"
    field = [getattr(asked.field, "name", asked.field)] if asked.aggregate != "count" else []  # a reference, or a name
    size = [str(asked.size)] if asked.aggregate == "last_n" else []
    where = "" if asked.where is None else f" where {_condition(asked.where)}"
    return f"{asked.aggregate}({', '.join([*field, *size])}){where}"


def _side(side: Feature[Any] | int | float) -> str:
    if not isinstance(side, Feature):
        return repr(side)
    if hasattr(side, "owner"):
        return side.name
    return f"({_aggregate(side)})"


def _condition(expression: Expression) -> str:
    match expression:
        case Compare(op, left, FieldRef(name)):
            return f"{left.name} {op} {name}"
        case Compare(op, left, None):
            return f"{left.name} {'is missing' if op == '=' else 'is there'}"
        case Compare(op, left, int(moment)) if left.kind == "datetime":
            return f"{left.name} {op} {from_micros(moment).isoformat()}"
        case Compare(op, left, value):
            return f"{left.name} {op} {value!r}"
        case Both(op, left_side, right_side):
            return f"({_condition(left_side)}) {op} ({_condition(right_side)})"
        case Length(op, _, bound):
            return f"length {op} {bound}"
    raise TypeError(f"not an expression: {expression!r}")


def _table(view: type[Table]) -> str:
    definition = view.__leftfold_definition__
    rows = []
    for column in definition.columns:
        fallback = vars(view)[column.name].fallback
        kind = f"list of {column.kind}" if column.repeated else column.kind
        rows.append((column.name, column.field, kind, "" if fallback is None else repr(fallback)))
    caption = _caption(definition.view, view.__leftfold_reading__, (k.name for k in definition.keys))
    return html_table(("column", "field", "kind", "default"), rows, caption=caption)


def _vector(vector: type[Vector]) -> str:
    definition = vector.__leftfold_definition__
    rows: dict[str, tuple[str, ...]] = {i.name: (i.name, "the caller", i.kind, "") for i in definition.inputs}
    for part in definition.parts:
        default = "" if part.default is None else repr(part.default)
        rows[part.name] = (part.name, part.view, part.feature, default)
    ordered = [rows[name] for name in definition.order]
    return html_table(("value", "from", "what", "default"), ordered, caption=f"vector {definition.name}")


def _caption(name: str, reading: Reading, keys: Iterable[str]) -> str:
    of = reading.stream.name if reading.stream else ", ".join(t.name for t in reading.topics)
    return f"view {name} of {of} by {', '.join(keys)}"
