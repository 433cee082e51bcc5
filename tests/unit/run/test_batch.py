"""The steps of a batch, with stores that live in this process: their order, and a death after each of them."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from leftfold.declare.acceptance import OUTCOMES
from leftfold.errors import StoreError
from leftfold.fold.definition import Origin
from leftfold.run import batch
from leftfold.run.batch import STEPS, Hooks
from leftfold.run.progress import Progress
from leftfold.run.receipts import Receipt
from leftfold.run.running import RunAgainError
from leftfold.run.watermark import SLACK, Watermark
from leftfold.spark.sinks.online import DRIVER_ROWS, Output, TooWideError, Written
from leftfold.store.engine import Calls
from leftfold.store.layout import LedgerRow

TOPIC, DECLARED = "shop.clicks", "clicks"
PER_BATCH = 10


class DiedError(Exception):
    """Stands for a process that ends here."""


class Stores:
    """Two stores and the receipts, as far as a batch touches them. They outlive a process."""

    def __init__(self) -> None:
        self.empty()

    def empty(self) -> None:
        self.rows: dict[str, int] = {}  # by entity: the number of the batch that wrote it
        self.mark = -1
        self.ledger: dict[str, LedgerRow] = {}
        self.changelog: list[tuple[int, str]] = []
        self.logged = -1
        self.receipts: dict[int, Receipt] = {}
        self.forgets = False  # loses its rows before the mark
        self.done: list[str] = []

    # What a BuildWriter does.

    def announce(self) -> None:
        self.done.append("announce")

    def check(self, number: int, *, redriven: int) -> None:
        self.done.append("check")
        assert self.mark in (number - 1, number)

    def mark_batch(self, number: int, ledger: Any, calls: Any, *, redriven: int, history: str | None) -> None:
        if self.forgets:
            raise StoreError("store-went-back", "rows of the batch are gone", why="a test", fix="none")
        self.done.append("mark")
        self.mark = number
        self.ledger = {row.name: row for row in ledger}

    # What the sinks and the receipts do.

    def write(self, output: Output, target: Any) -> Written:
        self.done.append("rows")
        number = int(str(target()))
        self.rows |= dict.fromkeys(entities(number), number)
        row = LedgerRow(
            DECLARED, 0, "accepted", PER_BATCH, 1_000 * number, 1_000 * number, PER_BATCH * (number + 1) - 1
        )
        return Written(3, (row,), number, (Calls("w", 1),))

    def log(self, rows: Any, topic: Any, number: int, *, repair: bool) -> None:
        self.done.append("changelog")
        if self.logged < number or repair:
            self.changelog += [(number, entity) for entity in entities(number)]
            self.logged = number

    def write_receipt(self, receipt: Receipt) -> None:
        self.done.append("receipt")
        self.receipts[receipt.last] = replace(receipt, applied={})  # times differ

    def state(self) -> tuple[object, ...]:
        return self.rows, self.mark, self.ledger, self.changelog, self.receipts


def entities(number: int) -> list[str]:
    return ["always", f"e{number}"]


class Process:
    """One life of a view: what it knows of the build, made from the stores as a start makes it."""

    def __init__(self, stores: Stores, *, small: bool = True, behind: bool = False) -> None:
        self.stores = stores
        self.number = -1
        self.released = 0
        self.behind = behind
        self.dies_at: str | None = None
        self.shown: list[Any] = []
        build: Any = SimpleNamespace(
            job=SimpleNamespace(
                packed=lambda rows, number: rows,
                rows_per_record=1 if small else None,
                sweeps=True,
                cumulative=False,
            ),
            source=SimpleNamespace(partitions=(1,)),
            positions=SimpleNamespace(
                after=lambda number: {TOPIC: {0: PER_BATCH * (number + 1)}} if number >= 0 else {},
                ranges=lambda starts, ends: {DECLARED: {0: (starts.get(TOPIC, {}).get(0, 0), ends[TOPIC][0])}},
                unread=lambda ends, read: [("slow", 0)] if self.behind else [],
            ),
            watermark=Watermark([Origin(DECLARED, 60_000_000, "broker")]),
            announce=stores.announce,
            writer=SimpleNamespace(check=stores.check, mark=stores.mark_batch),
            target=lambda: self.number,
            receipts=SimpleNamespace(write=stores.write_receipt),
            receipt=None,
            changelog="changelog",
            progress=Progress("users", "view"),
            topic_ids={DECLARED: "id"},
            stores={},
            past=None,
            passed=False,
            ends=None,
            ledger=dict(stores.ledger),
            applied=stores.mark,
            redriven=0,
            beyond=0,
            log_again=-1,
        )
        self.build = build

    def apply(self, number: int, *, by_executors: bool = False) -> None:
        self.number = number
        self.build.receipt = self.stores.receipts.get(number - 1)  # a start takes that of the last committed batch
        hooks = Hooks(lambda starts, ends: self.stores.done.append("look"), self._at, self.shown.append)
        batch.apply(self, number, self.build, hooks, by_executors=by_executors)  # type: ignore[arg-type]

    def unpersist(self) -> None:
        self.released += 1

    def _at(self, step: str, number: int) -> None:
        assert number == self.number
        if step == self.dies_at:
            raise DiedError(step)


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    stores = Stores()

    def collected(packed: Any) -> Output:
        stores.done.append("collect")
        return Output(packed, [])

    def cached(packed: Any) -> Output:
        stores.done.append("keep")
        return Output(packed, persisted=True)

    monkeypatch.setattr(batch, "collected", collected)
    monkeypatch.setattr(batch, "cached", cached)
    monkeypatch.setattr(batch, "write_online", stores.write)
    monkeypatch.setattr(batch, "write_changelog", stores.log)
    monkeypatch.setattr(batch, "write_changelog_rows", stores.log)
    return stores


def two_batches(stores: Stores) -> Stores:
    process = Process(stores)
    process.apply(0)
    process.apply(1)
    return stores


def test_the_order_of_the_steps(stores: Stores) -> None:
    process = Process(stores)
    process.apply(0)
    assert stores.done == ["announce", "check", "look", "collect", "rows", "mark", "changelog", "receipt"]
    assert process.shown == [{TOPIC: {0: PER_BATCH}}]
    stores.done.clear()
    process.apply(1)
    assert stores.done == ["check", "look", "collect", "rows", "mark", "changelog", "receipt"]
    assert stores.receipts[1].ranges == {DECLARED: {0: (PER_BATCH, 2 * PER_BATCH)}}
    assert stores.receipts[1].records["accepted"] == PER_BATCH
    assert stores.ledger[f"{DECLARED}/0:accepted"].records == 2 * PER_BATCH
    assert process.build.progress.batches == 2


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [0, 1])
def test_a_death_after_each_step_has_no_effect(stores: Stores, step: str, number: int) -> None:
    undisturbed = two_batches(stores).state()
    stores.empty()
    process = Process(stores)
    if number:
        process.apply(0)
    process.dies_at = step
    with pytest.raises(DiedError):
        process.apply(number)
    again = Process(stores)
    again.apply(number)
    if not number:
        again.apply(1)
    assert stores.state() == undisturbed


def test_a_batch_after_a_death_at_every_step_in_turn(stores: Stores) -> None:
    undisturbed = two_batches(stores).state()
    stores.empty()
    for number in (0, 1):
        for step in STEPS:
            process = Process(stores)
            process.dies_at = step
            with pytest.raises(DiedError):
                process.apply(number)
        Process(stores).apply(number)
    assert stores.state() == undisturbed


def test_a_large_batch_stays_with_the_executors_and_is_released(stores: Stores) -> None:
    process = Process(stores, small=False)
    process.apply(0)
    assert "keep" in stores.done
    assert process.released == 1
    process.dies_at = "changelog"
    with pytest.raises(DiedError):
        process.apply(1)
    assert process.released == 2

    process = Process(stores)
    process.apply(1, by_executors=True)
    assert stores.done.count("collect") == 0


def test_a_batch_is_small_by_its_records_and_the_rows_of_its_ledger(stores: Stores) -> None:
    process = Process(stores)
    most = DRIVER_ROWS - len(OUTCOMES)
    assert batch._small(process.build, {}, {TOPIC: {0: most}})
    assert not batch._small(process.build, {}, {TOPIC: {0: most + 1}})
    assert batch._small(process.build, {TOPIC: {0: 1}}, {TOPIC: {0: most + 1}})


def test_rows_too_wide_for_the_driver_leave_nothing(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_wide(_: Any) -> Output:
        raise TooWideError

    monkeypatch.setattr(batch, "collected", too_wide)
    with pytest.raises(TooWideError):
        Process(stores).apply(0)
    assert (stores.rows, stores.mark, stores.receipts) == ({}, -1, {})


def test_a_commit_that_would_overtake_unread_records_is_refused_before_the_mark(stores: Stores) -> None:
    process = Process(stores, behind=True)
    process.build.watermark.newest_log = {("slow", 0): -2 * SLACK}
    before = process.build.watermark.delay
    with pytest.raises(RunAgainError, match="swept later"):
        process.apply(0)
    assert process.build.watermark.delay > before
    assert (stores.mark, stores.changelog, stores.receipts) == (-1, [], {})
    process.apply(0)  # with the longer delay
    assert stores.mark == 0


def test_a_store_that_forgot_rows_of_the_batch_gets_no_mark_and_no_receipt(stores: Stores) -> None:
    stores.forgets = True
    with pytest.raises(StoreError, match="gone"):
        Process(stores).apply(0)
    assert (stores.mark, stores.changelog, stores.receipts) == (-1, [], {})


def test_the_page_states_the_steps_in_the_order_of_the_code() -> None:
    stated = re.findall(r"^(\d)\. (\w+)", inspect.getdoc(batch) or "", re.MULTILINE)
    assert [int(number) for number, _ in stated] == list(range(1, 9))
    code = inspect.getsource(batch.apply) + inspect.getsource(batch._write_online)
    commented = re.findall(r"# (\d)\.(?: to (\d)\.)? ", code)
    assert sorted({int(n) for pair in commented for n in pair if n}) == list(range(1, 9))
