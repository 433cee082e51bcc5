from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.fold.definition import Definition, Windowed
from leftfold.store.layout import (
    OUTCOMES,
    Build,
    LedgerRow,
    Names,
    definition_in,
    field,
    manifest,
    row_ttl_s,
)
from tests.unit.fold.test_definition import FINGERPRINT, ONE

S = 1_000_000
H, D = 3_600 * S, 86_400 * S


def test_key_names_are_as_documented() -> None:
    names = Names("prod", "user_activity")
    assert names.active == "lf:prod:active:user_activity"
    assert names.manifest("b1") == "lf:prod:build:user_activity:b1"
    assert names.mark("b1") == "lf:prod:mark:user_activity:b1"
    assert names.row_prefix("b1") == "lf:prod:row:user_activity:b1:"
    assert Names("", "v").active == "lf::active:v"


def test_a_build_is_a_fingerprint_and_a_generation() -> None:
    first, second = Build(ONE, "01234567-89ab"), Build(ONE, "76543210-89ab")
    assert first.id == f"{FINGERPRINT}-01234567"
    assert first.id != second.id
    assert Build(replace(ONE, lateness=1), "01234567-89ab").id != first.id


def test_a_reader_needs_only_the_manifest() -> None:
    document = json.loads(manifest(Build(ONE, "01234567-89ab")))
    assert set(document) == {"layout", "build", "definition"}
    assert (document["layout"], document["build"]) == (1, f"{FINGERPRINT}-01234567")
    assert definition_in(document).fingerprint == FINGERPRINT


def test_the_manifest_is_the_same_bytes_every_time() -> None:
    again = Definition.from_json(json.loads(manifest(Build(ONE, "g")))["definition"])
    assert manifest(Build(again, "g")) == manifest(Build(ONE, "g"))


_COUNT = st.integers(0, 2**62)


@given(st.integers(0, 4_000), st.sampled_from(OUTCOMES), _COUNT, _COUNT, st.integers(-(2**62), 2**62), _COUNT)
def test_ledger_rows_come_back(p: int, outcome: str, n: int, log: int, event: int, offset: int) -> None:
    row = LedgerRow(p, outcome, n, log, event, offset)
    assert LedgerRow.parse(row.name, row.entry) == row
    assert " " not in row.name + row.entry  # the sink sends both in one text, split at a space


@pytest.mark.parametrize(("index", "expected"), [(0, "300:0"), (15, "300:15"), (16, "300:0"), (-1, "300:15")])
def test_slots(index: int, expected: str) -> None:
    """Before the epoch too: the remainder is never negative, as Spark's pmod."""
    assert field(300 * S, index, 16) == expected


def _needed(definition: Definition) -> int:
    """How long after its write a row's newest tile can still be in a window, in µs.

    The newest event may be stamped `future` ahead of its write; its tile leaves the longest window when that window's
    start, floored to a step, has passed it.
    """
    return definition.future + max(f.window + f.step for f in definition.features)


@pytest.mark.parametrize("lateness", [1, S, 600 * S, D])
@pytest.mark.parametrize(("window", "step"), [(12 * S, S), (H, 300 * S), (7 * D, H), (30 * D, D), (D, D)])
def test_a_row_outlives_every_window_that_reaches_it(lateness: int, window: int, step: int) -> None:
    definition = replace(ONE, lateness=lateness, features=(Windowed("f", 0, window, step),))
    assert row_ttl_s(definition) * S >= _needed(definition)


def test_a_row_does_not_live_much_longer() -> None:
    assert row_ttl_s(ONE) * S <= ONE.longest_window + ONE.lateness + 3 * D
