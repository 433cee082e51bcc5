"""Both paths to a value, straight from events and by way of tiles, against an oracle that shares no code with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold.fold import columns
from leftfold.fold.columns import Column
from leftfold.fold.compute import compute
from leftfold.fold.definition import Definition, Key, Windowed
from leftfold.fold.expressions import FieldRef
from leftfold.fold.tiles import STEPS, Tile, cover, floor
from tests.unit.fold.oracle import Asked, counted

S = 1_000_000
M, H, D = 60 * S, 3_600 * S, 86_400 * S
PRICE = FieldRef("price", "float")

# Times around which everything happens: today, the epoch and long before it.
_AROUND = (1_767_614_400 * S + 1_234_567, 0, -77_777_777 * S - 1)


def definition_of(asked: Sequence[Asked]) -> Definition:
    made: list[Column] = []
    features = []
    for number, a in enumerate(asked):
        where = None if a.at_least is None else a.at_least <= PRICE
        made.append(Column(a.aggregate, a.field, a.kind, where, a.scale))  # type: ignore[arg-type] # literals below
        features.append(Windowed(f"f{number}", number, a.window, a.step))
    return Definition("v", "t", "at", (Key("user", "string"),), 600 * S, 60 * S, (), tuple(made), tuple(features))


@st.composite
def _asked(draw: st.DrawFn) -> Asked:
    aggregate, field, kind, scale = draw(
        st.sampled_from(
            [
                ("count", None, "int", 0),
                ("sum", "n", "int", 0),
                ("sum", "price", "float", 2),
                ("sum", "price", "float", 6),
                ("last", "item", "string", 0),
                ("last", "price", "float", 0),
            ]
        )
    )
    window = draw(st.sampled_from([12 * S, 90 * S, 10 * M, 10 * M + 1, H, 5 * H + 7, 24 * H, 7 * D, 30 * D]))
    fitting = [s for s in STEPS if s <= window and window // s <= 400]
    at_least = draw(st.none() | st.sampled_from([0.0, 10.0]))
    return Asked(aggregate, field, window, draw(st.sampled_from(fitting)), at_least, kind, scale)


@st.composite
def _case(draw: st.DrawFn) -> tuple[list[Asked], list[dict[str, Any]], int]:
    """Features, events in log order, and a moment: times lie at the edges of tiles and windows, give or take a µs."""
    asked = draw(st.lists(_asked(), min_size=1, max_size=4))
    at = draw(st.sampled_from(_AROUND)) + draw(st.integers(-D, D))
    if draw(st.booleans()):
        at = at - at % draw(st.sampled_from(STEPS))
    edges = {at - 1, at}
    for a in asked:
        start = (at - a.window) // a.step * a.step
        edges |= {at - a.window, start, start + a.step, at - at % a.step}
        edges |= {start + k * s for s in STEPS for k in (1, 2) if start + k * s <= at}
    near = st.builds(int.__add__, st.sampled_from(sorted(edges)), st.sampled_from([-1, 0, 0, 1]))
    longest = max(a.window for a in asked)
    times = st.lists(near | st.integers(at - longest - D, at - 1), max_size=25)
    events = [
        {
            "user": "u",
            "at": time,
            "n": draw(st.integers(-5, 2**62)),
            "price": draw(st.none() | st.floats(-1e4, 1e4) | st.sampled_from([0.1, 0.005, 1e300, 10.0])),
            "item": draw(st.none() | st.sampled_from(["a", "b", "c"])),
        }
        for time in draw(times)
    ]
    return asked, events, at


@settings(max_examples=300)
@given(_case())
def test_compute_is_the_meaning(case: tuple[list[Asked], list[dict[str, Any]], int]) -> None:
    asked, events, at = case
    expected = {f"f{i}": counted(a, events, at) for i, a in enumerate(asked)}
    assert compute(definition_of(asked), events, at) == expected


def by_tiles(definition: Definition, events: Sequence[dict[str, Any]], at: int) -> dict[str, Any]:
    """As the live view does it: partials per tile of every step, then the fewest tiles that cover each window.

    Tiles live in the store's slots; a newer tile takes the slot of an older one, as its script does.
    """
    in_order = sorted(events, key=lambda e: int(e["at"]))
    tiles: dict[Tile, list[dict[str, Any]]] = {}
    for step in definition.steps:
        for event in in_order:
            tiles.setdefault(Tile(step, event["at"] // step * step), []).append(event)
    slots: dict[tuple[int, int], tuple[int, list[Any]]] = {}
    for tile, held in tiles.items():
        slot = (tile.step, tile.index % definition.rings[tile.step])
        if slot not in slots or tile.index > slots[slot][0]:
            slots[slot] = tile.index, [columns.partial(c, held) for c in definition.columns]
    values: dict[str, Any] = {}
    for feature in definition.features:
        column = definition.columns[feature.column]
        wanted = cover(floor(at - feature.window, feature.step), at, [s for s in definition.steps if s >= feature.step])
        found = [(t, slots.get((t.step, t.index % definition.rings[t.step]))) for t in wanted]
        parts = [slot[1][feature.column] for t, slot in found if slot is not None and slot[0] == t.index]
        values[feature.name] = columns.final(column, columns.merge(column, parts))
    return values


@settings(max_examples=300)
@given(_case(), st.sampled_from([0, 0, 1, S, 10 * M, 3 * D]))
def test_tiles_give_the_same_at_every_moment_after_the_newest_event(
    case: tuple[list[Asked], list[dict[str, Any]], int], later: int
) -> None:
    asked, events, at = case
    at = max([at, *(e["at"] + 1 for e in events)]) + later
    expected = {f"f{i}": counted(a, events, at) for i, a in enumerate(asked)}
    assert by_tiles(definition_of(asked), events, at) == expected


@settings(max_examples=200)
@given(st.lists(_asked(), min_size=1, max_size=4), st.sampled_from(_AROUND), st.integers(-D, D))
def test_every_tile_of_a_read_has_a_slot_of_its_own(asked: list[Asked], around: int, offset: int) -> None:
    definition, at = definition_of(asked), around + offset
    wanted = {
        tile
        for f in definition.features
        for tile in cover(floor(at - f.window, f.step), at, [s for s in definition.steps if s >= f.step])
    }
    assert len({(t.step, t.index % definition.rings[t.step]) for t in wanted}) == len(wanted)


def test_ties_are_decided_by_log_order() -> None:
    asked = Asked("last", "item", H, 5 * M, kind="string")
    events = [
        {"user": "u", "at": t, "n": 0, "price": None, "item": i} for t, i in ((5, "a"), (9, "b"), (9, "c"), (7, "d"))
    ]
    assert compute(definition_of([asked]), events, 10) == {"f0": "c"}


def test_an_event_at_the_asked_moment_is_not_in_yet() -> None:
    asked = [Asked("count", None, H, 5 * M)]
    events = [{"user": "u", "at": t, "n": 0, "price": None, "item": None} for t in (H - 1, H, H + 1)]
    assert compute(definition_of(asked), events, H) == {"f0": 1}


def test_the_window_starts_at_a_step() -> None:
    """At 12:07 the hour reaches back to 11:05, the step below 11:07; to the microsecond."""
    asked = [Asked("count", None, H, 5 * M)]
    at = 12 * H + 7 * M
    events = [
        {"user": "u", "at": t, "n": 0, "price": None, "item": None}
        for t in (11 * H + 5 * M - 1, 11 * H + 5 * M, at - 1)
    ]
    assert compute(definition_of(asked), events, at) == {"f0": 2}
