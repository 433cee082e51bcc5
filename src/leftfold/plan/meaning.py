"""The meaning of a definition, split into aspects of each feature and of the view, each as data and in words.

The data serves to compare two definitions. The words describe their differences. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from leftfold.declare.reasons import rule_text
from leftfold.fold import derived
from leftfold.fold.definition import Definition, Derived, Windowed, read_default
from leftfold.fold.durations import text
from leftfold.fold.expressions import Expression, to_json
from leftfold.fold.latest import Latest
from leftfold.fold.values import Kind

Meaning = Definition | Latest
# The stored data that would be enough for a new definition. all: stored tiles and Spark's state, as they are. tiles:
# stored tiles hold all that is read, with more or in another order. new: something that is needed is not stored.
Serves = Literal["all", "tiles", "new"]
_FOR_EVER = float("inf")


@dataclass(frozen=True, eq=False)
class Aspect:
    """One aspect of a meaning: as data to compare, and in words to show."""

    data: Any  # JSON
    words: str

    def __eq__(self, other: object) -> bool:
        """Compare as a fingerprint does, by JSON text: 2 and 2.0 differ there, while they are equal in Python."""
        return isinstance(other, Aspect) and _canonical(self.data) == _canonical(other.data)

    def __hash__(self) -> int:
        return hash(_canonical(self.data))


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True)


Aspects = dict[str, Aspect]  # by name: window, step, aggregate, field, where, ...


def features_of(meaning: Meaning) -> dict[str, Aspects]:
    """The aspects of every feature that a row shows, by the feature's name."""
    if isinstance(meaning, Latest):
        return {
            c.name: {"field": _field(c.field, c.kind, repeated=c.repeated), "default": _default(c.default, c.kind)}
            for c in meaning.columns
        }
    known: dict[str, Aspects] = {}
    kinds = meaning.kinds()
    for feature in meaning.features:
        own = _formula(feature, known) if isinstance(feature, Derived) else _windowed(meaning, feature)
        known[feature.name] = {**own, "default": _default(feature.default, kinds[feature.name])}
    return {name: known[name] for name in meaning.visible}


def whole_of(meaning: Meaning) -> Aspects:
    """The aspects that all features of a view share: which records count, when, and for which key."""
    origins = meaning.origins
    shared = {
        "key": Aspect(
            [[k.name, k.kind] for k in meaning.keys], ", ".join(f"{k.name} ({k.kind})" for k in meaning.keys)
        ),
        "topics": _list(o.topic for o in origins),
        "lateness": Aspect([o.lateness for o in origins], ", ".join(_duration(o.lateness) for o in origins)),
        "log time": _list(o.log_time for o in origins),
        "rules": _rules(meaning.rules),
    }
    if isinstance(meaning, Latest):
        kind = "a table" if meaning.code is None else "a function"
        return {
            "kind": Aspect(kind, kind),
            **shared,
            "code": Aspect(meaning.code, meaning.code or "none"),
            "ttl": Aspect(meaning.ttl, "none" if meaning.ttl is None else _duration(meaning.ttl)),
        }
    return {
        "kind": Aspect("windows", "windows"),
        **shared,
        "time": Aspect(meaning.time, meaning.time),
        "stream": Aspect(meaning.stream, f"with code {meaning.stream}" if meaning.stream else "none"),
        "future": Aspect(meaning.future, _duration(meaning.future)),
    }


def serves(before: Meaning, after: Meaning) -> Serves:
    """Return which stored data of `before` would be enough for `after`.

    The ttl of a row, which only a table or a function has, is compared separately: a shorter ttl needs nothing new.
    """
    then, now = ({what: a for what, a in whole_of(m).items() if what != "ttl"} for m in (before, after))
    if then != now:
        return "new"
    if isinstance(before, Latest) and isinstance(after, Latest):
        held, read = ([(c.field, c.kind, c.repeated) for c in m.columns] for m in (before, after))
        if not set(read) <= set(held) or (after.ttl or _FOR_EVER) > (before.ttl or _FOR_EVER):
            return "new"
        return "all" if read == held else "tiles"
    assert isinstance(before, Definition)
    assert isinstance(after, Definition)
    if not all(_held(feature, before, after) for feature in after.windowed):
        return "new"
    same = (before.columns, before.rings, before.lifetime) == (after.columns, after.rings, after.lifetime)
    return "all" if same else "tiles"


def _held(feature: Windowed, before: Definition, after: Definition) -> bool:
    """Return whether the tiles of `before` hold what `feature` of `after` reads."""
    if not {after.columns[i] for i in feature.columns} <= set(before.columns):
        return False
    if feature.window is None:
        return before.lifetime and (feature.ttl or _FOR_EVER) <= _row_kept(before)
    if feature.step not in before.steps:
        return False
    return feature.window <= max(f.window for f in before.windowed if f.window is not None and f.step <= feature.step)


def _row_kept(definition: Definition) -> float:
    """The shortest time in µs for which a row is kept after the last event of its entity."""
    ttls = [f.ttl or _FOR_EVER for f in definition.windowed if f.window is None]
    return max([*ttls, definition.longest_window])


# Aspects ----------------------------------------------------------------------------------------------------------


def _windowed(definition: Definition, feature: Windowed) -> Aspects:
    columns = [definition.columns[i] for i in feature.columns]
    first = columns[0]
    name = "mean" if len(columns) > 1 else first.aggregate
    aspects = {
        "aggregate": Aspect(name, name),
        "field": _field(first.field, first.kind) if first.field else Aspect(None, "none"),
        "where": _condition(first.where),
        "window": Aspect(feature.window, "everything" if feature.window is None else _duration(feature.window)),
        "step": Aspect(feature.step, _duration(feature.step) if feature.step else "none"),
        "ttl": Aspect(feature.ttl, "none" if feature.ttl is None else _duration(feature.ttl)),
    }
    if first.aggregate == "sum":
        aspects["scale"] = Aspect(first.scale, str(first.scale))
    if first.size:
        aspects["n" if first.aggregate == "last_n" else "lg_k"] = Aspect(first.size, str(first.size))
    if len(columns) > 1:
        counted = "events" if columns[1].field is None else "values that are not missing"
        aspects["divided by"] = Aspect(counted, counted)
    return aspects


def _formula(feature: Derived, known: Mapping[str, Aspects]) -> Aspects:
    """The formula of a derived feature, compared by the meaning of its parts.

    So a renamed part changes nothing, and a part with a changed meaning changes the formula.
    """
    return {"formula": Aspect(_meant(feature.node, known), _written(feature.node, known))}


def _meant(node: derived.Node, known: Mapping[str, Aspects]) -> Any:
    match node:
        case derived.Value(name):
            return {what: aspect.data for what, aspect in known[name].items()}
        case derived.Arithmetic(op, left, right):
            return [op, _meant(left, known), _meant(right, known)]
    return derived.to_json(node)


def _written(node: derived.Node, known: Mapping[str, Aspects]) -> str:
    match node:
        case derived.Value(name):
            return in_words(known[name]) if name.startswith(".") else name
        case derived.Arithmetic(op, left, right):
            sides = [f"({t})" if isinstance(n, derived.Arithmetic) else t for n, t in _sides(left, right, known)]
            return f"{sides[0]} {op} {sides[1]}"
        case derived.Constant(value):
            return str(value)
    raise TypeError(f"not a derived feature: {node!r}")


def _sides(left: derived.Node, right: derived.Node, known: Mapping[str, Aspects]) -> list[tuple[derived.Node, str]]:
    return [(side, _written(side, known)) for side in (left, right)]


def in_words(aspects: Aspects) -> str:
    """A feature in words, as a formula shows a part that has no name."""
    if "formula" in aspects:
        return f"({aspects['formula'].words})"
    if "aggregate" not in aspects:
        return aspects["field"].words
    arguments = [] if aspects["field"].data is None else [aspects["field"].words]
    arguments.append(aspects["window"].words)
    if aspects["where"].data is not None:
        arguments.append(f"where {aspects['where'].words}")
    return f"{aspects['aggregate'].words}({', '.join(arguments)})"


def _field(name: str, kind: Kind, *, repeated: bool = False) -> Aspect:
    return Aspect([name, kind, repeated], f"{name} ({'list of ' if repeated else ''}{kind})")


def _condition(where: Expression | None) -> Aspect:
    return Aspect(None, "none") if where is None else Aspect(to_json(where), rule_text(where))


def _rules(rules: Iterable[Expression]) -> Aspect:
    known = list(rules)
    return Aspect([to_json(rule) for rule in known], ", ".join(map(rule_text, known)) or "none")


def _default(value: Any, kind: Kind) -> Aspect:
    if value is None:
        return Aspect(None, "none")
    return Aspect(value, str(read_default(value, kind)) if kind == "datetime" else json.dumps(value))


def _list(values: Iterable[str]) -> Aspect:
    known = list(values)
    return Aspect(known, ", ".join(known))


def _duration(us: int) -> str:
    return text(us) if us else "none"
