from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.declare.acceptance import OUTCOMES
from leftfold.errors import StoreError
from leftfold.fold.definition import LAYOUT, Definition, Origin, Windowed
from leftfold.store.layout import (
    Build,
    LedgerRow,
    definition_in,
    field,
    ledger_in,
    manifest,
    reached,
    row_ttl_s,
)
from leftfold.store.redis.names import Names, vector_name
from tests.unit.fold.test_definition import FINGERPRINT, ONE
from tests.unit.fold.test_latest import ITEM

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
    assert Build(replace(ONE, future=1), "01234567-89ab").id != first.id


def test_a_reader_needs_only_the_manifest() -> None:
    document = json.loads(manifest(Build(ONE, "01234567-89ab")))
    assert set(document) == {"layout", "build", "kind", "definition"}
    assert (document["layout"], document["build"], document["kind"]) == (LAYOUT, f"{FINGERPRINT}-01234567", "features")
    assert definition_in(document) == ONE
    document = json.loads(manifest(Build(ITEM, "01234567-89ab")))
    assert document["kind"] == "latest"
    assert definition_in(document) == ITEM


def test_another_layout_is_refused() -> None:
    document = json.loads(manifest(Build(ONE, "g")))
    with pytest.raises(StoreError) as caught:
        definition_in({**document, "layout": LAYOUT + 1})
    assert caught.value.code == "unknown-layout"


def test_the_manifest_is_the_same_bytes_every_time() -> None:
    again = Definition.from_json(json.loads(manifest(Build(ONE, "g")))["definition"])
    assert manifest(Build(again, "g")) == manifest(Build(ONE, "g"))


_COUNT = st.integers(0, 2**62)


_TOPICS = st.sampled_from(["clicks", "prod.clicks-v2_b", "7"])
_ROWS = st.builds(
    LedgerRow,
    *(_TOPICS, st.integers(0, 4_000), st.sampled_from(OUTCOMES)),
    *(_COUNT, _COUNT, st.integers(-(2**62), 2**62), _COUNT),
)


@given(_ROWS)
def test_ledger_rows_come_back(row: LedgerRow) -> None:
    assert LedgerRow.parse(row.name, row.entry) == row
    assert " " not in row.name + row.entry  # the sink sends both in one text, split at a space


def test_ledger_rows_of_batches_add_up() -> None:
    before = LedgerRow("clicks", 3, "late", 5, 10, 20, 30)
    batch = LedgerRow("clicks", 3, "late", 2, 11, 19, 32)
    assert batch.after(before) == LedgerRow("clicks", 3, "late", 7, 11, 20, 32)
    hashed = replace(before, content=(5, 6), newest_hash=-7), replace(batch, content=(3, 6), newest_hash=8)
    assert hashed[1].after(hashed[0]) == replace(batch.after(before), content=(6, 0), newest_hash=8)
    assert hashed[0].after(hashed[1]).newest_hash == 8, "of the newest record, whichever was counted last"
    assert batch.after(None) == batch


def test_a_mark() -> None:
    rows = [LedgerRow("clicks", 3, "late", 5, 10, 20, 30), LedgerRow("old", 0, "accepted", 1, 2, 3, 4)]
    mark = {b"batch": b"7", b"newest": b"20", **{r.name.encode(): r.entry.encode() for r in rows}}
    assert ledger_in(mark) == (7, rows)
    assert ledger_in({}) == (-1, [])


def test_vectors_have_a_key_too() -> None:
    assert vector_name("prod", "ranker") == "lf:prod:vector:ranker"


@pytest.mark.parametrize(("index", "expected"), [(0, "300:0"), (15, "300:15"), (16, "300:0"), (-1, "300:15")])
def test_slots(index: int, expected: str) -> None:
    """Before the epoch too: the remainder is never negative, as Spark's pmod."""
    assert field(300 * S, index, 16) == expected


def _needed(definition: Definition) -> int:
    """How long after its write a row's newest tile can still be in a window, in µs.

    The newest event may be stamped `future` ahead of its write; its tile leaves the longest window when that window's
    start, floored to a step, has passed it.
    """
    return definition.future + max((f.window or f.ttl or 0) + f.step for f in definition.windowed)


@pytest.mark.parametrize("lateness", [1, S, 600 * S, D])
@pytest.mark.parametrize(("window", "step"), [(12 * S, S), (H, 300 * S), (7 * D, H), (30 * D, D), (D, D)])
def test_a_row_outlives_every_window_that_reaches_it(lateness: int, window: int, step: int) -> None:
    origins = (Origin("clicks", lateness, "broker"),)
    for features in (
        (Windowed("f", (0,), window, step),),
        (Windowed("f", (0,), window, step), Windowed("g", (0,), None, 0, ttl=40 * D)),
        (Windowed("g", (0,), None, 0, ttl=window),),
    ):
        definition = replace(ONE, origins=origins, features=features)
        assert row_ttl_s(definition) * S >= _needed(definition)


def test_a_row_does_not_live_much_longer() -> None:
    assert row_ttl_s(ONE) * S <= 30 * D + ONE.lateness + 3 * D


def test_what_is_kept_for_ever() -> None:
    ever = (Windowed("f", (0,), H, 300 * S), Windowed("g", (0,), None, 0), Windowed("h", (0,), None, 0, ttl=1))
    assert row_ttl_s(replace(ONE, features=ever)) == 0
    assert row_ttl_s(ITEM) == 0
    assert row_ttl_s(replace(ITEM, ttl=S + 1)) == 2


def test_reads_are_moved_by_brokers_clocks_and_by_producers_only_as_far_as_a_clock_may_be_ahead() -> None:
    origins = (Origin("kept", H, "broker"), Origin("copied", H, "header"), Origin("stamped", H, "producer"))
    now, ahead = 100 * D, 100 * D + 3 * H

    def row(topic: str, event: int, outcome: str = "accepted") -> LedgerRow:
        return LedgerRow(topic, 0, outcome, 1, newest_log=now, newest_event=event, newest_offset=1)

    assert reached([], origins, now) == 0
    assert reached([row("stamped", ahead), row("kept", now - 1)], origins, now) == now + 60 * S
    assert reached([row("stamped", now - 5)], origins, now) == now - 5
    assert reached([row("kept", ahead)], origins, now) == ahead  # this machine's clock is behind
    assert reached([row("copied", ahead)], origins, now) == ahead
    refused = [row("kept", now + 365 * D, outcome) for outcome in ("future", "late", "rejected")]
    assert reached([row("kept", now - 1), *refused], origins, now) == now - 1
