"""Generated views, events and moments, for the tests that compare with the oracle.

A view is described in the oracle's words and declared from them in a person's, so that declaring is tested with it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from hypothesis import strategies as st
from pydantic import Field

import leftfold as lf
from leftfold.fold.definition import Definition
from leftfold.fold.expressions import from_micros
from leftfold.fold.tiles import STEPS
from tests.unit.fold.oracle import Asked, Condition, Formula, Row

S = 1_000_000
M, H, D = 60 * S, 3_600 * S, 86_400 * S


class Thing(lf.Event):
    user: str
    shop: int = Field(le=1_000_000)
    at: datetime
    n: int | None = None
    price: float | None = None
    item: str | None = None
    flag: bool | None = None
    seen: datetime | None = None


things = lf.Topic("things", Thing, key=Thing.user, time=Thing.at)

KINDS = {"n": "int", "price": "float", "item": "string", "flag": "bool", "seen": "datetime"}
TAKES = {
    "sum": ("n", "price"),
    "mean": ("n", "price"),
    "min": ("n", "price", "seen"),
    "max": ("n", "price", "seen"),
    "last": tuple(KINDS),
    "last_n": tuple(KINDS),
    "distinct": ("item", "n", "seen"),
}
AGGREGATES = ("count", *TAKES)
WINDOWS = (5 * S, 12 * S, 90 * S, 10 * M, 10 * M + 1, H, 5 * H + 7, 24 * H, 7 * D, 30 * D)
KEYS = (("user",), ("user", "shop"), ("shop", "user"), ("shop",))
# Two keys of several parts must not meet in one text: ("1:u", …) is there to provoke it.
USERS, SHOPS = ("u", "1:u", "", "é"), (0, 11, -5)
# Values that a sum, a comparison, a JSON text or a sketch might get wrong. An empty text is no value to a sketch.
NUMBERS = (None, 0, 1, -1, 7, 10**6, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
PRICES = (
    *(None, 0.0, -0.0, 0.1, 0.2, 0.005, -0.005, 2.5, 10.0, 1e-7, 123_456.789),
    *(9.3e12, -9.3e12, 1e14, 1e300, -1e300, 5e-324, 1.7976931348623157e308),
)
ITEMS = (None, "", "a", "b", "c", "é", 'q"\\\n')
SEEN = (None, 0, 1, -1, 1_767_614_400 * S + 123_456)
# Times around which everything happens: today, the epoch and long before it.
AROUND = (1_767_614_400 * S + 1_234_567, 0, -77_777_777 * S - 1)
DEFAULTS: dict[str, tuple[Any, ...]] = {
    "int": (0, -3),
    "float": (0.0, -1.5, 1e300),
    "string": ("", "none"),
    "bool": (False, True),
    "datetime": (from_micros(5),),
}
_CONSTANTS: dict[str, tuple[Any, ...]] = {
    "n": (0, 7, 2**62),
    "price": (0.0, 2.5, 1e14),
    "item": ("a", ""),
    "flag": (True, False),
    "seen": (0, 1),
}
_COMPARE: dict[str, Any] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_ARITHMETIC: dict[str, Any] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@dataclass(frozen=True)
class Case:
    asked: dict[str, Asked | Formula]
    keys: tuple[str, ...]
    events: list[dict[str, Any]]  # in log order
    at: int

    def of(self, entity: tuple[Any, ...]) -> list[dict[str, Any]]:
        return [e for e in self.events if tuple(e[k] for k in self.keys) == entity]

    @property
    def entities(self) -> set[tuple[Any, ...]]:
        return {tuple(e[k] for k in self.keys) for e in self.events}

    @property
    def windowed(self) -> list[Asked]:
        """Also those that stand only inside a formula."""
        sides = [s for f in self.asked.values() if isinstance(f, Formula) for s in (f.left, f.right)]
        return [a for a in (*self.asked.values(), *sides) if isinstance(a, Asked)]

    def count(self, seen: Counter[str]) -> None:
        """What this case is about, for a test that all of it was met."""
        for asked in self.windowed:
            seen[asked.aggregate] += 1
            seen["lifetime"] += asked.window is None
            seen["ttl"] += asked.ttl is not None
            seen["where"] += asked.where is not None
            seen["default"] += asked.default is not None
        for formula in self.asked.values():
            if isinstance(formula, Formula):
                seen[formula.op] += 1
        seen["composite key"] += len(self.keys) > 1


def kind_of(asked: Mapping[str, Asked | Formula], one: str | float | Asked | Formula) -> str:
    """By the rules of the reference: counts are ints, means and quotients floats, arithmetic of ints ints."""
    if isinstance(one, str):
        return kind_of(asked, asked[one])
    if isinstance(one, Asked):
        return {"count": "int", "distinct": "int", "mean": "float"}.get(one.aggregate, one.kind)
    if isinstance(one, Formula):
        both = {kind_of(asked, one.left), kind_of(asked, one.right)}
        return "int" if both == {"int"} and one.op != "/" else "float"
    return "float" if isinstance(one, float) else "int"


# Declaring ----------------------------------------------------------------------------------------------------------


def declare(asked: Mapping[str, Asked | Formula], keys: Sequence[str], of: Any = things) -> Definition:
    """The view as a person would write it, through its manifest as a reader gets it."""
    features: dict[str, Any] = {}
    for name, one in asked.items():
        features[name] = _formula(one, features) if isinstance(one, Formula) else _feature(one)
    made: Any = type("Made", (lf.Features,), features, of=of, by=tuple(keys))
    definition = made.__leftfold_definition__
    assert isinstance(definition, Definition)
    return definition


def _feature(asked: Asked) -> Any:
    options: dict[str, Any] = {"where": None if asked.where is None else _condition(asked.where)}
    if asked.window is not None:
        options["step"] = timedelta(microseconds=asked.step)
    if asked.ttl is not None:
        options["ttl"] = timedelta(microseconds=asked.ttl)
    if asked.kind == "float" and asked.aggregate in ("sum", "mean"):
        options["scale"] = asked.scale
    if asked.aggregate in ("last_n", "distinct"):
        options["n" if asked.aggregate == "last_n" else "lg_k"] = asked.size
    window = None if asked.window is None else timedelta(microseconds=asked.window)
    fields = () if asked.field is None else (getattr(Thing, asked.field),)
    feature = getattr(lf, asked.aggregate)(*fields, window, **options)
    return feature if asked.default is None else feature.default(asked.default)


def _formula(formula: Formula, features: Mapping[str, Any]) -> Any:
    sides = [
        features[s] if isinstance(s, str) else _feature(s) if isinstance(s, Asked) else s
        for s in (formula.left, formula.right)
    ]
    made = _ARITHMETIC[formula.op](*sides)
    return made if formula.default is None else made.default(formula.default)


def _condition(condition: Condition) -> Any:
    first, second, third = condition
    if first in ("and", "or"):
        return reduce(operator.and_ if first == "and" else operator.or_, (_condition(second), _condition(third)))
    constant = from_micros(third) if KINDS[first] == "datetime" and third is not None else third
    return _COMPARE[second](getattr(Thing, first), constant)


# Generating ---------------------------------------------------------------------------------------------------------


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    first = _compared(draw)
    shape = draw(st.sampled_from(["one", "one", "and", "or"]))
    return first if shape == "one" else (shape, first, _compared(draw))


def _compared(draw: st.DrawFn) -> Condition:
    field = draw(st.sampled_from(sorted(KINDS)))
    if draw(st.integers(0, 4)) == 0:
        return field, draw(st.sampled_from(["=", "!="])), None
    return field, draw(st.sampled_from(sorted(_COMPARE))), draw(st.sampled_from(_CONSTANTS[field]))


@st.composite
def asked_features(draw: st.DrawFn) -> Asked:
    aggregate = draw(st.sampled_from(AGGREGATES))
    field = None if aggregate == "count" else draw(st.sampled_from(TAKES[aggregate]))
    kind = "int" if field is None else KINDS[field]
    where = draw(st.none() | conditions())
    scale = draw(st.sampled_from([0, 2, 6])) if kind == "float" and aggregate in ("sum", "mean") else 0
    size = draw(st.sampled_from([1, 3, 50])) if aggregate == "last_n" else 9 if aggregate == "distinct" else 0
    asked = Asked(aggregate, field, kind, None, 0, None, where, scale, size)
    if draw(st.integers(0, 4)):
        window = draw(st.sampled_from(WINDOWS))
        # A tile per step: few enough for a test, as in life.
        fitting = [s for s in STEPS if s <= window and window // s <= 400]
        asked = replace(asked, window=window, step=draw(st.sampled_from(fitting)))
    else:
        asked = replace(asked, ttl=draw(st.none() | st.sampled_from([1, H, 30 * D])))
    if aggregate != "last_n" and draw(st.booleans()):
        asked = replace(asked, default=draw(st.sampled_from(DEFAULTS[kind_of({}, asked)])))
    return asked


_NUMBERS_IN_FORMULAS = st.sampled_from([0, 1, -2, 2**62, 0.0, 0.5, 1e300])


@st.composite
def views(draw: st.DrawFn) -> dict[str, Asked | Formula]:
    asked: dict[str, Asked | Formula] = {
        f"f{i}": one for i, one in enumerate(draw(st.lists(asked_features(), min_size=1, max_size=4)))
    }
    for i in range(draw(st.integers(0, 2))):
        numbers = [
            name
            for name, one in asked.items()
            if kind_of(asked, one) in ("int", "float") and getattr(one, "aggregate", "") != "last_n"
        ]
        hidden = asked_features().filter(lambda a: kind_of({}, a) in ("int", "float") and a.aggregate != "last_n")
        feature: Any = hidden if not numbers else st.sampled_from(numbers) | hidden
        left = draw(feature)
        right = draw(feature | _NUMBERS_IN_FORMULAS)
        if draw(st.booleans()):
            left, right = right, left
        formula = Formula(draw(st.sampled_from("+-*/")), left, right)
        if draw(st.booleans()):
            formula = replace(formula, default=draw(st.sampled_from(DEFAULTS[kind_of(asked, formula)])))
        asked[f"d{i}"] = formula
    return asked


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Times lie at the edges of tiles and windows, give or take a µs; ties and disorder come with them."""
    asked = draw(views())
    keys = draw(st.sampled_from(KEYS))
    at = draw(st.sampled_from(AROUND)) + draw(st.integers(-D, D))
    if draw(st.booleans()):
        at = at - at % draw(st.sampled_from(STEPS))
    edges = {at - 1, at}
    spans = Case(asked, keys, [], at).windowed
    for a in spans:
        if a.window is None:
            edges |= {at - (a.ttl or 0)}
        else:
            start = (at - a.window) // a.step * a.step
            edges |= {at - a.window, start, start + a.step, at - at % a.step}
            edges |= {start + k * s for s in STEPS for k in (1, 2) if start + k * s <= at}
    longest = max(a.window or a.ttl or D for a in spans)
    near = st.builds(operator.add, st.sampled_from(sorted(edges)), st.sampled_from([0, 0, -1, 1]))
    row = st.tuples(
        near | st.integers(at - longest - D, at - 1),
        st.sampled_from(USERS[:2] if "shop" in keys else USERS),
        st.sampled_from(SHOPS),
        st.sampled_from(NUMBERS),
        st.sampled_from(PRICES) | st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(ITEMS),
        st.sampled_from([None, True, False]),
        st.sampled_from(SEEN),
    )
    names = ("at", "user", "shop", *KINDS)
    events = [dict(zip(names, values, strict=True)) for values in draw(st.lists(row, max_size=16))]
    return Case(asked, keys, events, at)


def newest(events: Sequence[Row]) -> int:
    return max((int(e["at"]) for e in events), default=0)
