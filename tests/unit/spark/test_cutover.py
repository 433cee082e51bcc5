from __future__ import annotations

import json

from leftfold.offsets import later
from leftfold.spark.cutover import FrozenHistory, Past
from leftfold.store.layout import LedgerRow

FROZEN = FrozenHistory(
    "id", {"t": {0: 0, 1: 5}}, {"t": {0: 70, 1: 5}}, {"t": {0: 100, 1: 9}}, {300: 7, 3_600: 5}, {300: 1, 3_600: 2}
)


def row(partition: int, records: int, offset: int) -> LedgerRow:
    return LedgerRow("t", partition, "accepted", records, 0, 0, offset)


def test_it_comes_back_from_its_text() -> None:
    past = Past(FROZEN, (row(0, 100, 99), row(1, 4, 8)), 12, 2**63 + 5)
    assert Past.from_text(past.as_text()) == past
    assert FrozenHistory.from_json(json.loads(json.dumps(FROZEN.as_json()))) == FROZEN


def test_the_stream_reads_again_what_counts_as_reached() -> None:
    assert FROZEN.reached({"t": {0: 70, 1: 12}}) == {"t": {0: 100, 1: 12}}
    assert FROZEN.reached({"t": {0: 101, 1: 9, 2: 3}}) == {"t": {0: 101, 1: 9, 2: 3}}
    assert not FROZEN.passed_by({"t": {0: 99, 1: 50}})
    assert not FROZEN.passed_by({"t": {0: 100}})
    assert FROZEN.passed_by({"t": {0: 100, 1: 9, 2: 0}})


def test_later_of_either() -> None:
    assert later({"a": {0: 1}}, {"a": {0: 3, 1: 2}, "b": {0: 1}}) == {"a": {0: 3, 1: 2}, "b": {0: 1}}


def test_the_ledger_goes_on_from_history() -> None:
    past = Past(FROZEN, (row(0, 100, 99), row(1, 4, 8)), 0, 0)
    first = past.total([row(0, 7, 106)], known=())
    assert {r.partition: (r.records, r.newest_offset) for r in first} == {0: (107, 106), 1: (4, 8)}
    later_on = past.total([row(2, 1, 0)], known={r.name for r in first})
    assert [(r.partition, r.records) for r in later_on] == [(2, 1)], "what did not change is not told again"
