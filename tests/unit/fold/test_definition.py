from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition, Derived, Key, Origin, Windowed, read_default
from leftfold.fold.derived import Arithmetic, Constant, Value
from leftfold.fold.expressions import FieldRef, Length, from_micros

S = 1_000_000
M, H, D = 60 * S, 3_600 * S, 86_400 * S
PRICE, ITEM = FieldRef("price", "float"), FieldRef("item_id", "string")

PER_CLICK = Arithmetic("/", Value("spend_24h"), Value(".per_click.6"))

ONE = Definition(
    view="user_activity",
    origins=(Origin("clicks", 10 * M, "broker"), Origin("old_clicks", 5 * M, "producer")),
    stream=None,
    time="at",
    keys=(Key("user_id", "string"), Key("shop", "int")),
    future=M,
    rules=(PRICE >= 0.0, Length("<=", ITEM, 40)),
    columns=(
        Column("count", None, "int"),
        Column("count", None, "int", where=(PRICE > 100.0) & (ITEM != "x")),
        Column("sum", "price", "float", scale=6),
        Column("last", "item_id", "string"),
        Column("count", "price", "int"),
        Column("last_n", "item_id", "string", size=50),
        Column("distinct", "item_id", "string", size=9),
    ),
    features=(
        Windowed("clicks_1h", (0,), H, 5 * M),
        Windowed("big_1h", (1,), H, 5 * M),
        Windowed("spend_24h", (2,), 24 * H, H),
        Windowed("last_item", (3,), 7 * D, H, default="none"),
        Windowed("price_ever", (2, 4), None, 0, ttl=30 * D),
        Windowed("recent", (5,), 7 * D, H),
        Windowed(".per_click.6", (0,), 24 * H, H),
        Derived("per_click", PER_CLICK, default=0.0),
        Windowed("items_7d", (6,), 7 * D, H),
    ),
)
FIRST = ONE.windowed[0]
# Stores and checkpoints of released versions are found by this. If it changes, every view of every user is built anew:
# only together with definition.LAYOUT.
FINGERPRINT = "0029af605663"


def test_fingerprint_is_for_ever() -> None:
    assert ONE.fingerprint == FINGERPRINT


def test_fingerprint_does_not_depend_on_the_process() -> None:
    """Nor on PYTHONHASHSEED: sets and dicts must not leak their order."""
    script = "from tests.unit.fold.test_definition import ONE; print(ONE.fingerprint)"
    root = Path(__file__).parents[3]
    for seed in ("0", "1"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
            cwd=root,
        )
        assert done.stdout.strip() == FINGERPRINT


def _columns(**at: Column) -> dict[str, Any]:
    """ONE's columns, those of some numbers changed: `_columns(c2=...)`."""
    return {"columns": tuple(at.get(f"c{i}", column) for i, column in enumerate(ONE.columns))}


def _features(**named: Any) -> dict[str, Any]:
    """ONE's features, some of them changed."""
    return {"features": tuple(named.get(f.name, f) for f in ONE.features)}


_EVER = ONE.windowed[4]
CHANGED: dict[str, dict[str, Any]] = {
    "view": {"view": "other"},
    "topic": {"origins": (replace(ONE.origins[0], topic="other"), ONE.origins[1])},
    "topics' order": {"origins": ONE.origins[::-1]},
    "one topic less": {"origins": ONE.origins[:1]},
    "time": {"time": "seen_at"},
    "key": {"keys": (Key("shop", "int"),)},
    "key order": {"keys": ONE.keys[::-1]},
    "key kind": {"keys": (Key("user_id", "int"), ONE.keys[1])},
    "lateness": {"origins": (replace(ONE.origins[0], lateness=11 * M), ONE.origins[1])},
    "log time": {"origins": (replace(ONE.origins[0], log_time="producer"), ONE.origins[1])},
    "stream": {"stream": "0123456789ab"},
    "another stream": {"stream": "ba9876543210"},
    "future": {"future": 2 * M},
    "no rules": {"rules": ()},
    "a rule's bound": {"rules": (PRICE >= 1.0, ONE.rules[1])},
    "a rule's operator": {"rules": (PRICE > 0.0, ONE.rules[1])},
    "aggregate": _columns(c2=Column("last", "price", "float", scale=6)),
    "aggregated field": _columns(c2=Column("sum", "cost", "float", scale=6)),
    "scale": _columns(c2=Column("sum", "price", "float", scale=2)),
    "n of last_n": _columns(c5=Column("last_n", "item_id", "string", size=51)),
    "size of a sketch": _columns(c6=Column("distinct", "item_id", "string", size=10)),
    "where": _columns(c1=Column("count", None, "int", where=PRICE > 100.0)),
    "and for or": _columns(c1=Column("count", None, "int", where=(PRICE > 100.0) | (ITEM != "x"))),
    "window": _features(clicks_1h=replace(FIRST, window=2 * H)),
    "no window": _features(clicks_1h=replace(FIRST, window=None, step=0)),
    "step": _features(clicks_1h=replace(FIRST, step=M)),
    "ttl": _features(price_ever=replace(_EVER, ttl=31 * D)),
    "no ttl": _features(price_ever=replace(_EVER, ttl=None)),
    "feature's name": _features(clicks_1h=replace(FIRST, name="clicks")),
    "feature's column": _features(clicks_1h=replace(FIRST, columns=(1,))),
    "a sum for a mean": _features(price_ever=replace(_EVER, columns=(2,))),
    "feature's default": _features(last_item=replace(ONE.windowed[3], default="?")),
    "formula": _features(per_click=Derived("per_click", replace(PER_CLICK, op="*"), 0.0)),
    "sides of a formula": _features(
        per_click=Derived("per_click", Arithmetic("/", PER_CLICK.right, PER_CLICK.left), 0.0)
    ),
    "a number in a formula": _features(per_click=Derived("per_click", replace(PER_CLICK, right=Constant(2)), 0.0)),
    "default of a formula": _features(per_click=Derived("per_click", PER_CLICK, 1.0)),
    "one feature less": {"features": ONE.features[:-1]},
}


@pytest.mark.parametrize("change", sorted(CHANGED))
def test_every_change_of_meaning_is_another_build(change: str) -> None:
    assert replace(ONE, **CHANGED[change]).fingerprint != FINGERPRINT


def test_changes_differ_from_each_other() -> None:
    prints = [replace(ONE, **change).fingerprint for change in CHANGED.values()]
    assert len(set(prints)) == len(prints)


def test_the_layout_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftfold.fold.definition.LAYOUT", 999)
    assert replace(ONE).fingerprint != FINGERPRINT


def test_json_round_trip() -> None:
    back = Definition.from_json(json.loads(json.dumps(ONE.as_json())))
    assert back.as_json() == ONE.as_json()
    assert (back.fingerprint, back.steps, back.rings, back.fields()) == (
        FINGERPRINT,
        ONE.steps,
        ONE.rings,
        ONE.fields(),
    )


def test_equal_definitions_are_equal() -> None:
    """What a reader gets from the store is equal to what was declared, conditions and all."""
    back = Definition.from_json(ONE.as_json())
    assert back == ONE
    assert hash(back) == hash(ONE)
    assert replace(ONE, rules=()) != ONE


def test_what_it_reads() -> None:
    assert ONE.fields() == {"at", "user_id", "shop", "price", "item_id"}


def test_what_a_row_shows() -> None:
    """A feature that stands only inside a formula is kept, and not shown."""
    assert ".per_click.6" in [f.name for f in ONE.features]
    assert ONE.visible == (
        *("clicks_1h", "big_1h", "spend_24h", "last_item", "price_ever", "recent", "per_click", "items_7d"),
    )


def test_kinds() -> None:
    assert {name: kind for name, kind in ONE.kinds().items() if name in ONE.visible} == {
        **{"clicks_1h": "int", "big_1h": "int", "spend_24h": "float", "last_item": "string"},
        **{"price_ever": "float", "recent": "string", "per_click": "float", "items_7d": "int"},
    }


def test_finals() -> None:
    """Nothing happened: counts are 0, lists empty, defaults stand in for the rest."""
    nothing = {(f.span, c): 0 if c in (0, 1, 4) else None for f in ONE.windowed for c in f.columns}
    assert ONE.finals(nothing) == {
        **{"clicks_1h": 0, "big_1h": 0, "spend_24h": None, "last_item": "none"},
        **{"price_ever": None, "recent": [], "per_click": 0.0, "items_7d": 0},
    }


def test_a_default_of_a_moment_is_kept_in_microseconds() -> None:
    assert read_default(5, "datetime") == from_micros(5)
    assert read_default(5, "int") == 5
    assert read_default(None, "datetime") is None


def test_the_latest_of_several_topics_decides_how_long_state_is_kept() -> None:
    assert ONE.lateness == 10 * M


def test_steps_and_rings() -> None:
    assert ONE.steps == (5 * M, H)
    assert ONE.lifetime
    assert ONE.longest_window == 7 * D
    assert set(ONE.rings) == {5 * M, H}
    assert ONE.rings[5 * M] < 20  # of the 1 h window only
    assert ONE.rings[H] > 7 * 24


def test_a_coarse_ring_serves_windows_of_finer_steps_too() -> None:
    """A week at steps of 5 min is covered mostly by tiles of an hour, which another feature keeps."""
    both = replace(ONE, features=(Windowed("week", (0,), 7 * D, 5 * M), Windowed("day", (0,), 24 * H, H)))
    assert both.rings[H] > 7 * 24


def test_everything_that_ever_happened_has_no_tiles_of_a_step() -> None:
    ever = replace(ONE, features=(Windowed("ever", (0,), None, 0),))
    assert (ever.steps, ever.rings, ever.longest_window, ever.lifetime) == ((), {}, 0, True)
