from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leftfold.fold.columns import Column
from leftfold.fold.definition import Definition, Key, Windowed
from leftfold.fold.expressions import FieldRef, Length

S = 1_000_000
M, H, D = 60 * S, 3_600 * S, 86_400 * S
PRICE, ITEM = FieldRef("price", "float"), FieldRef("item_id", "string")

ONE = Definition(
    view="user_activity",
    topic="clicks",
    time="at",
    keys=(Key("user_id", "string"), Key("shop", "int")),
    lateness=10 * M,
    future=M,
    rules=(PRICE >= 0.0, Length("<=", ITEM, 40)),
    columns=(
        Column("count", None, "int"),
        Column("count", None, "int", where=(PRICE > 100.0) & (ITEM != "x")),
        Column("sum", "price", "float", scale=6),
        Column("last", "item_id", "string"),
    ),
    features=(
        Windowed("clicks_1h", 0, H, 5 * M),
        Windowed("big_1h", 1, H, 5 * M),
        Windowed("spend_24h", 2, 24 * H, H),
        Windowed("last_item", 3, 7 * D, H),
    ),
)
# Stores and checkpoints of released versions are found by this. If it changes, every view of every user is built anew:
# only together with definition.LAYOUT.
FINGERPRINT = "9637c482cecf"


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


CHANGED: dict[str, dict[str, Any]] = {
    "view": {"view": "other"},
    "topic": {"topic": "other"},
    "time": {"time": "seen_at"},
    "key": {"keys": (Key("shop", "int"),)},
    "key order": {"keys": ONE.keys[::-1]},
    "key kind": {"keys": (Key("user_id", "int"), ONE.keys[1])},
    "lateness": {"lateness": 11 * M},
    "future": {"future": 2 * M},
    "no rules": {"rules": ()},
    "a rule's bound": {"rules": (PRICE >= 1.0, ONE.rules[1])},
    "a rule's operator": {"rules": (PRICE > 0.0, ONE.rules[1])},
    "aggregate": {"columns": (*ONE.columns[:2], Column("last", "price", "float", scale=6), ONE.columns[3])},
    "aggregated field": {"columns": (*ONE.columns[:2], Column("sum", "cost", "float", scale=6), ONE.columns[3])},
    "scale": {"columns": (*ONE.columns[:2], Column("sum", "price", "float", scale=2), ONE.columns[3])},
    "where": {"columns": (ONE.columns[0], Column("count", None, "int", where=PRICE > 100.0), *ONE.columns[2:])},
    "and for or": {
        "columns": (
            ONE.columns[0],
            Column("count", None, "int", where=(PRICE > 100.0) | (ITEM != "x")),
            *ONE.columns[2:],
        )
    },
    "window": {"features": (replace(ONE.features[0], window=2 * H), *ONE.features[1:])},
    "step": {"features": (replace(ONE.features[0], step=M), *ONE.features[1:])},
    "feature's name": {"features": (replace(ONE.features[0], name="clicks"), *ONE.features[1:])},
    "feature's column": {"features": (replace(ONE.features[0], column=1), *ONE.features[1:])},
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


def test_steps_and_rings() -> None:
    assert ONE.steps == (5 * M, H)
    assert ONE.longest_window == 7 * D
    assert set(ONE.rings) == {5 * M, H}
    assert ONE.rings[5 * M] < 20  # of the 1 h window only
    assert ONE.rings[H] > 7 * 24


def test_a_coarse_ring_serves_windows_of_finer_steps_too() -> None:
    """A week at steps of 5 min is covered mostly by tiles of an hour, which another feature keeps."""
    both = replace(ONE, features=(Windowed("week", 0, 7 * D, 5 * M), Windowed("day", 0, 24 * H, H)))
    assert both.rings[H] > 7 * 24
