"""What a window holds, by hand. Generated cases, against an oracle, are in test_algebra."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold.fold.compute import compute
from leftfold.fold.tiles import cover, floor
from tests.unit.fold.generated import AROUND, D, H, M, S, asked_features, declare
from tests.unit.fold.oracle import Asked, Formula

COUNT_1H = Asked("count", None, "int", H, 5 * M)


def event(at: int, **fields: Any) -> dict[str, Any]:
    return {"user": "u", "shop": 1, "at": at, "n": 0, "price": None, "item": None, "flag": None, "seen": None, **fields}


def computed(asked: dict[str, Asked | Formula], events: list[dict[str, Any]], at: int) -> dict[str, Any]:
    return compute(declare(asked, ("user",)), events, at)


@settings(max_examples=200)
@given(
    st.lists(asked_features().filter(lambda a: a.window is not None), min_size=1, max_size=4),
    st.sampled_from(AROUND),
    st.integers(-D, D),
)
def test_every_tile_of_a_read_has_a_slot_of_its_own(asked: list[Asked], around: int, offset: int) -> None:
    definition, at = declare({f"f{i}": a for i, a in enumerate(asked)}, ("user",)), around + offset
    wanted = {
        tile
        for f in definition.windowed
        for tile in cover(floor(at - (f.window or 0), f.step), at, [s for s in definition.steps if s >= f.step])
    }
    assert len({(t.step, t.index % definition.rings[t.step]) for t in wanted}) == len(wanted)


def test_ties_are_decided_by_log_order() -> None:
    last = Asked("last", "item", "string", H, 5 * M)
    recent = Asked("last_n", "item", "string", H, 5 * M, size=3)
    events = [event(t, item=i) for t, i in ((5, "a"), (9, "b"), (9, "c"), (7, "d"))]
    assert computed({"last": last, "recent": recent}, events, 10) == {"last": "c", "recent": ["c", "b", "d"]}


def test_an_event_at_the_asked_moment_is_not_in_yet() -> None:
    assert computed({"n": COUNT_1H}, [event(t) for t in (H - 1, H, H + 1)], H) == {"n": 1}


def test_the_window_starts_at_a_step() -> None:
    """At 12:07 the hour reaches back to 11:05, the step below 11:07; to the microsecond."""
    at = 12 * H + 7 * M
    events = [event(t) for t in (11 * H + 5 * M - 1, 11 * H + 5 * M, at - 1)]
    assert computed({"n": COUNT_1H}, events, at) == {"n": 2}


def test_without_a_window_everything_counts_until_nothing_happened_for_too_long() -> None:
    ever, fading = Asked("count", None, "int", None), Asked("count", None, "int", None, ttl=H)
    events = [event(0), event(400 * D)]
    for at, alive in ((400 * D + H, True), (400 * D + H + 1, False)):
        assert computed({"ever": ever, "fading": fading}, events, at) == {"ever": 2, "fading": 2 if alive else 0}


def test_an_event_that_does_not_count_keeps_the_others_alive() -> None:
    """ttl= is about the entity: whether anything happened, not whether it met the condition."""
    sales = Asked("count", None, "int", None, ttl=H, where=("flag", "=", True))
    assert computed({"sales": sales}, [event(0, flag=True), event(5 * H, flag=False)], 5 * H + 1) == {"sales": 1}


def test_a_default_stands_in_inside_a_formula_too() -> None:
    spend = Asked("sum", "price", "float", H, 5 * M, scale=6, default=10.0)
    asked: dict[str, Asked | Formula] = {
        "spend": spend,
        "clicks": COUNT_1H,
        "each": Formula("/", "spend", "clicks", default=-1.0),
        "more": Formula("+", "each", 1),
    }
    assert computed(asked, [], S) == {"spend": 10.0, "clicks": 0, "each": -1.0, "more": 0.0}
    assert computed(asked, [event(0), event(1)], S) == {"spend": 10.0, "clicks": 2, "each": 5.0, "more": 6.0}
