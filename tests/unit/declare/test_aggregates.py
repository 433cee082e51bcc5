"""What can be asked, before a class tells which event it is about. What a class makes of it is in test_features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.aggregates import Asked, Formula
from leftfold.errors import DeclarationError
from tests.unit.declare.declared import Click

# Without a checker that would rightly object.
ANY: Any = Click
TEXT: Any = "one"


@pytest.mark.parametrize(
    ("declare", "code"),
    [
        (lambda: lf.sum(Click.price, "1h", scale=16), "sum-scale"),
        (lambda: lf.sum(Click.price, "1h", scale=-1), "sum-scale"),
        (lambda: lf.mean(Click.price, "1h", scale=16), "sum-scale"),
        (lambda: lf.last_n(Click.item_id, "1h", n=0), "last-n"),
        (lambda: lf.last_n(Click.item_id, "1h", n=1_001), "last-n"),
        (lambda: lf.distinct(Click.item_id, "1h", lg_k=7), "sketch-size"),
        (lambda: lf.distinct(Click.item_id, "1h", lg_k=13), "sketch-size"),
        (lambda: lf.count("5s"), "window-too-short"),
        (lambda: lf.count("1h", step="7s"), "bad-step"),
        (lambda: lf.count("an hour"), "bad-duration"),
        (lambda: lf.count("0s"), "duration-not-positive"),
        (lambda: lf.count(None, ttl="soon"), "bad-duration"),
        (lambda: lf.count(None, ttl="0s"), "duration-not-positive"),
        (lambda: lf.count(None, step="1m"), "step-without-window"),
        (lambda: lf.last(Click.item_id, "1h", ttl="1d"), "ttl-with-window"),
        (lambda: lf.count("1h", where=True), "not-a-condition"),
        (lambda: lf.count("1h") + ANY.price, "formula-kinds"),
        (lambda: TEXT + lf.count("1h"), "formula-kinds"),
        (lambda: lf.count("1h") * True, "formula-kinds"),
        (lambda: lf.count("1h") / math.inf, "formula-kinds"),
        (lambda: math.nan - lf.count("1h"), "formula-kinds"),
        (lambda: lf.count("1h") + 2**63, "formula-kinds"),
    ],
)
def test_refused(declare: Callable[[], object], code: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare()
    assert caught.value.code == code
    assert caught.value.source is not None
    assert caught.value.source.file == __file__


def test_what_is_asked() -> None:
    recent: Any = lf.last_n(Click.item_id, "7d", n=5, where=Click.price > 1)
    asked = recent.asked
    assert isinstance(asked, Asked)
    assert (asked.aggregate, asked.window, asked.step, asked.ttl, asked.size) == (
        *("last_n", 7 * 86_400_000_000, 3_600_000_000),
        *(None, 5),
    )
    ever: Any = lf.count(None, ttl="90d")
    assert (ever.asked.window, ever.asked.step, ever.asked.ttl) == (None, 0, 90 * 86_400_000_000)


def test_every_operator_from_either_side() -> None:
    feature = lf.count("1h")
    made: list[Any] = [
        *(feature + 1, feature - 1, feature * 1, feature / 1),
        *(1 + feature, 1 - feature, 1 * feature, 1 / feature),
    ]
    assert [m.asked for m in made] == [
        *(Formula(op, feature, 1) for op in "+-*/"),
        *(Formula(op, 1, feature) for op in "+-*/"),
    ]


def test_a_default_is_of_a_copy() -> None:
    feature: Any = lf.sum(Click.price, "1h")
    other: Any = feature.default(0.0)
    assert (feature.fallback, other.fallback) == (None, 0.0)
    assert other.asked is feature.asked
    assert repr(other) == "<feature ?>"
