"""Differences between two tables of features, counted by feature, with the largest of each."""

from __future__ import annotations

import json
import math
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leftfold.fold.values import Kind

Values = Mapping[str, Any]  # by feature
SHOWN = 200  # characters of a value that a user is shown


@dataclass(frozen=True)
class Largest:
    entity: str
    left: str | None
    right: str | None
    difference: float | None  # None if it is not a number


@dataclass(frozen=True)
class FeatureDifference:
    """The number of entities with an equal value, a different one, or a value on one side only, for one feature.

    An entity without any event has a value too: a count of 0, an empty list, or none. If both sides have that one, they
    count as `empty`, not as `equal`: such a pair says nothing about the two definitions.
    """

    feature: str
    equal: int
    different: int
    only_left: int
    only_right: int
    empty: int
    largest: tuple[Largest, ...]


@dataclass(frozen=True)
class Differences:
    entities: int
    features: tuple[FeatureDifference, ...]

    @property
    def equal(self) -> bool:
        return all(not (f.different or f.only_left or f.only_right) for f in self.features)


class Counting:
    """Counts the differences of one feature, entity by entity. `top` of the largest are kept.

    `kind` is the kind of both sides' values, or of the elements of their lists. `nothing` is the left side's value of
    an entity without events.
    """

    def __init__(self, feature: str, kind: Kind, nothing: Any, *, tolerance: float, top: int) -> None:
        self._feature, self._kind, self._tolerance, self._top = feature, kind, tolerance, top
        self._nothing = _as_float(nothing) if kind == "float" else nothing
        self._counts = {"equal": 0, "different": 0, "left": 0, "right": 0, "empty": 0}
        self._largest: list[tuple[float, str, Largest]] = []  # by size, the largest first, and entity

    def add(self, entity: str, left: Any, right: Any) -> None:
        if self._kind == "float":
            left, right = _as_float(left), _as_float(right)
        fate = self._fate(left, right)
        self._counts[fate] += 1
        if fate in ("equal", "empty") or not self._top:
            return
        difference, size = None, 0.0
        if self._kind in ("int", "float") and not isinstance(left, list) and not isinstance(right, list):
            apart = math.inf if left is None or right is None else float(right) - float(left)
            difference = apart if math.isfinite(apart) else None
            size = math.inf if difference is None else abs(difference)  # a missing value comes first
        one = Largest(entity, text_of(left), text_of(right), difference)
        insort(self._largest, (-size, entity, one), key=lambda ranked: ranked[:2])
        del self._largest[self._top :]

    def result(self) -> FeatureDifference:
        counts = self._counts
        return FeatureDifference(
            self._feature,
            counts["equal"],
            counts["different"],
            counts["left"],
            counts["right"],
            counts["empty"],
            tuple(one for _, _, one in self._largest),
        )

    def _fate(self, left: Any, right: Any) -> str:
        if left is None or right is None:
            return "empty" if left is right else "right" if left is None else "left"
        if _same(left, right):
            return "empty" if left == self._nothing else "equal"
        return "equal" if self._tolerance and _near(left, right, self._tolerance) else "different"


def differences_of(
    pairs: Iterable[tuple[str, Values, Values]],
    kinds: Mapping[str, Kind],
    features: Sequence[str],
    nothing: Values,
    *,
    tolerance: float,
    top: int,
) -> Differences:
    """Compare features entity by entity. A pair is an entity, and its values on both sides.

    `nothing` has the left side's values of an entity without events.
    """
    counting = {f: Counting(f, kinds[f], nothing.get(f), tolerance=tolerance, top=top) for f in features}
    entities = 0
    for entity, left, right in pairs:
        entities += 1
        for name, counted in counting.items():
            counted.add(entity, left.get(name), right.get(name))
    return Differences(entities, tuple(counted.result() for counted in counting.values()))


def common_kind(left: Kind, right: Kind) -> Kind | None:
    """Return the kind in which values of two kinds are compared; None if they cannot be."""
    if left == right:
        return left
    return "float" if {left, right} == {"int", "float"} else None


def _as_float(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_float(one) for one in value]
    return value if value is None else float(value)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right) or (_is_nan(left) and _is_nan(right))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _near(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, list | bool | str | datetime):
        return False
    apart = abs(float(left) - float(right))
    return apart < math.inf and apart <= tolerance * max(abs(float(left)), abs(float(right)))


def text_of(value: Any) -> str | None:
    """Return the text of a value, as a user is shown it."""
    if value is None:
        return None
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    return text[:SHOWN]


def _plain(value: Any) -> Any:
    """Return what JSON has for a value."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        whole, _, fraction = f"{value:%Y-%m-%d %H:%M:%S.%f}".partition(".")
        return f"{whole}.{fraction.rstrip('0')}".rstrip(".")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
