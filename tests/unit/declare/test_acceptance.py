"""The quick check of events that are certainly sound, against the whole rule."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import leftfold as lf
from leftfold.declare.acceptance import Soundness, plain_check
from leftfold.declare.event import fields_of
from leftfold.fold.definition import Key


class Reading(lf.Event):
    sensor: str
    room: int
    note: str | None = None
    value: float
    spread: float | None = None
    tags: list[str]
    at: datetime


TEXTS = st.one_of(st.text(max_size=5), st.text(alphabet="aé", min_size=100, max_size=300), st.just("\udc80"))
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
EVENTS = st.fixed_dictionaries(
    {
        "sensor": st.one_of(st.none(), TEXTS),
        "room": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "note": st.one_of(st.none(), TEXTS),
        "value": st.one_of(st.none(), FLOATS),
        "spread": st.one_of(st.none(), FLOATS),
        "tags": st.one_of(st.none(), st.lists(st.text(max_size=3), max_size=2)),
        "at": st.one_of(st.none(), st.integers(0, 2**50)),
    }
)
FIELDS = fields_of(Reading)
KEYS = [(Key("sensor", "string"),), (Key("sensor", "string"), Key("room", "int"))]
SOUND: dict[str, Any] = {"sensor": "s", "room": 1, "note": None, "value": 0.5, "spread": None, "tags": [], "at": 1}


@given(EVENTS)
def test_a_plain_event_is_sound(event: dict[str, Any]) -> None:
    is_plain = plain_check(FIELDS.values(), KEYS, ())
    assert is_plain is not None
    required = [field.name for field in FIELDS.values() if not field.optional]
    if is_plain(event):
        assert Soundness(required, KEYS, ()).flaw(event) is None


def test_an_ordinary_event_is_plain() -> None:
    is_plain = plain_check(FIELDS.values(), KEYS, ())
    assert is_plain is not None
    assert is_plain(SOUND)
    assert not is_plain(SOUND | {"value": float("nan")})
    assert not is_plain(SOUND | {"room": None})
    assert not is_plain(SOUND | {"sensor": "é"}), "it may be sound, and is looked at more closely"


def test_rules_are_never_passed_over() -> None:
    rule: Any = Reading.value > 0
    assert plain_check(FIELDS.values(), KEYS, (rule,)) is None
