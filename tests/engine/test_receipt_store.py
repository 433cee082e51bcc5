"""Receipts over days, in their topic and in a lake: what is kept, what a start reads, and deaths on the way."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest

import leftfold
from leftfold import clock
from leftfold.declare import batches
from leftfold.declare.companions import receipts_table
from leftfold.errors import LeftfoldError
from leftfold.fold.expressions import from_micros
from leftfold.kafka.document_log import Kept
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.run import receipt_lake
from leftfold.run.receipt_store import ReceiptStore
from leftfold.run.receipts import Receipt, known_history
from leftfold.settings import Kafka
from leftfold.spark.checkpoint import ReceiptsBookmark
from leftfold.spark.sinks import receipts as receipt_table
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.crashes import DiedError
from tests.unit.run.test_receipts import HOUR, receipt

DAY = 24 * HOUR
# Batches of three days: of one to three in an hour, and of hours that are apart.
HOURS = [0, 0, 0, 1, 5, 5, 24, 24, 25, 26, 26, 48, 48, 49, 49]


class Dying(ReceiptLog):
    """Dies after so many records."""

    room = 10**9
    since: int | None = None

    def append(self, scope: str, documents: Iterable[tuple[str, dict[str, Any] | None]]) -> list[int]:
        given = list(documents)
        taken, self.room = given[: self.room], self.room - len(given)
        offsets = super().append(scope, taken)
        if self.room < 0:
            self.room = 0
            raise DiedError
        return offsets

    def read(self, scope: str, *, since: int = 0, only: Any = None) -> dict[str, Kept]:
        self.since = since
        return super().read(scope, since=since, only=only)


class Build:
    """A build that only has receipts."""

    def __init__(self, kafka: Kafka, topic: str, directory: Path, spark: Any) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.log = Dying(kafka, topic)
        self.spark = spark
        self.table = receipts_table(str(directory / "lake"), f"clicks-{self.id}")
        self.checkpoint = directory / self.id
        self.checkpoint.mkdir()

    def books(self, *, bookmark: bool = True) -> ReceiptStore:
        """As a start has them."""
        mark = ReceiptsBookmark(self.spark, str(self.checkpoint)) if bookmark else None
        return ReceiptStore(self.log, f"clicks/{self.id}", bookmark=mark, kept=None)

    def write(self, hours: list[int] = HOURS) -> ReceiptStore:
        """Go on where the receipts end; the last batch runs again."""
        books = self.books()
        found = books.read()
        for number in range(found[-1].last if found else 0, len(hours)):
            books.write(receipt(number, hour=hours[number]))
        return books

    def move(self, books: ReceiptStore) -> None:
        receipt_lake.move_closed_days(self.spark, books, self.table, stopping=lambda: False)

    def in_lake(self) -> list[Receipt]:
        rows = receipt_table.rows_of(self.spark, self.table, self.id)
        documents = receipt_table.documents(self.spark, self.table, self.id, 0, 10**9) if rows else []
        assert len(rows) == len(documents)
        return [Receipt.from_json(document) for document in documents]

    def check(self, batches: int = len(HOURS)) -> None:
        """Every batch once, in what tiles the log and in what is known of each."""
        found = self.books(bookmark=False).read()
        assert self.books().read(batches - 1) == found
        assert [n for r in found for n in range(r.first, r.last + 1)] == list(range(batches))
        assert sum(r.records["accepted"] for r in found) == 9 * batches
        known = known_history([*self.books(bookmark=False).every(), *self.in_lake()])
        told = [(b.batch, b.online, b.ends["clicks"][0]) for r in known for b in r.batches() or ()]
        assert told == [(n, HOURS[n] * HOUR + n, 10 * (n + 1)) for n in range(batches)]


@pytest.fixture(scope="module")
def topic(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Kafka, str]:
    root = tmp_path_factory.mktemp("books")
    app = projects.make(root, cluster.endpoints, f"b{uuid.uuid4().hex[:8]}")
    projects.apply(app)
    return app.kafka, app.profile.topic_name("leftfold.receipts")


@pytest.fixture
def build(topic: tuple[Kafka, str], tmp_path: Path, spark: Any) -> Build:
    return Build(*topic, tmp_path, spark)


def test_a_death_in_a_roll_up(topic: tuple[Kafka, str], tmp_path: Path, spark: Any) -> None:
    """After the batch's own receipt, the hour, the sum, and some of the tombstones."""
    before = len(HOURS[:7])
    for room in (1, 2, 3, 5):
        build = Build(*topic, tmp_path, spark)
        books = build.write(HOURS[: before - 1])
        build.log.room = room
        died = 0
        for number in range(before - 1, before + 1):
            try:
                books.write(receipt(number, hour=HOURS[number]))
            except DiedError:
                died = number
                break
        assert died
        build.log.room = 10**9
        found = build.books().read(died - 1)
        assert [n for r in found for n in range(r.first, r.last + 1)] in (list(range(died)), list(range(died + 1)))
        build.write()
        build.check()


def test_a_start_reads_from_its_bookmark(build: Build) -> None:
    build.write()
    found = build.books().read(len(HOURS) - 1)
    offset = build.log.since
    assert offset
    assert [(r.first, r.last) for r in found] == [(0, 12), (13, 13), (14, 14)]
    assert found == build.books(bookmark=False).read()
    bookmark = build.checkpoint / "leftfold-receipts.json"
    whole = bookmark.read_text()
    for text in (
        "",
        whole[:20],
        json.dumps({"offset": 10**9, "details": []}),
        json.dumps({"offset": 0, "details": []}),
    ):
        ReceiptsBookmark(build.spark, str(build.checkpoint)).write(text)
        assert build.books().read(len(HOURS) - 1) == found
    bookmark.write_text("damaged behind the file system's back")
    assert build.books().read(len(HOURS) - 1) == found
    bookmark.unlink()
    assert build.books().read(len(HOURS) - 1) == found


@pytest.mark.parametrize("missing", [(13,), (14,), (0, 12)])
def test_a_deleted_receipt_is_missing(build: Build, missing: tuple[int, ...]) -> None:
    build.move(build.write())
    key = "-".join(f"{n:012d}" for n in missing)
    build.log.append(f"clicks/{build.id}", [(key, None)])
    found = build.books().read(len(HOURS) - 1)
    assert build.log.since == 0, "what the bookmark says is not enough, so all was read"
    assert [n for r in found for n in range(r.first, r.last + 1)] != list(range(len(HOURS)))


def test_deaths_on_the_way_to_the_lake(build: Build) -> None:
    """Before and after each step that takes a day there: the table is made, appended to, the topic cleared."""
    overtaken = build.write()
    for where, what in ((receipt_table, "make"), (receipt_table, "add"), (ReceiptStore, "remove")):
        for after in (False, True):
            books = build.books()
            books.read(len(HOURS) - 1)
            with mock.patch.object(where, what, dying(getattr(where, what), after=after)), pytest.raises(DiedError):
                build.move(books)
            if what != "make":
                build.check()
    again = build.books()
    again.read(len(HOURS) - 1)
    build.move(again)
    build.move(overtaken)
    build.check()
    assert sorted(n for r in build.in_lake() for n in range(r.first, r.last + 1)) == list(range(11))
    assert {(r.first, r.last) for r in again.every()} == {(0, 12), (11, 12), (13, 13), (14, 14)}


def dying(step: Any, *, after: bool) -> Any:
    def dies(*arguments: Any) -> None:
        if after:
            step(*arguments)
        raise DiedError

    return dies


def test_two_that_take_the_same_day(build: Build) -> None:
    """Both have looked where the table ends before either appends."""
    books = build.write()
    day = books.oldest_day()
    rows = [(receipt_table.ReceiptRow(d.first, d.last, d.online), books.documents(day)[d.key]) for d in day]
    receipt_table.make(build.spark, build.table)
    for _ in range(2):
        receipt_table.add(build.spark, build.table, build.id, rows)
    receipt_table.add(build.spark, build.table, build.id, rows[:1])
    assert len(build.in_lake()) == len(day)
    build.move(books)
    build.check()


@pytest.mark.nightly
def test_a_table_that_was_restored_is_told(build: Build) -> None:
    """To Delta what was appended since counts as done, and is left out when it is appended again."""
    books = build.write()
    with mock.patch.object(ReceiptStore, "remove", side_effect=DiedError), pytest.raises(DiedError):
        build.move(books)
    build.spark.sql(f"RESTORE TABLE delta.`{build.table}` TO VERSION AS OF 0")
    with pytest.raises(LeftfoldError) as refused:
        build.move(books)
    assert refused.value.code == "receipts-not-moved"
    shutil.rmtree(build.table)
    build.move(books)
    build.check()


# A whole project ---------------------------------------------------------------------------------------------------

STREAMS = projects.PAYMENTS.replace("by=Payment.account)", "by=Payment.account, to=[lf.Online(), lf.Lake()])").replace(
    'payments_1h = lf.count("1h")', 'payments_1h = lf.count("1h")\n    ever = lf.count(None)'
)
VIEW = "account_activity"
ACCOUNTS = 10


class Shifted:
    """A project whose batches lie hours apart, because the clock is moved before each of them."""

    def __init__(self, app: leftfold.App, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app, self.spark = app, spark
        self.shift = 0
        self.written: dict[int, Receipt] = {}
        now = clock.now_us
        monkeypatch.setattr(clock, "now_us", lambda: now() + self.shift)
        write = ReceiptStore.write

        def noted(books: ReceiptStore, receipt: Receipt) -> None:
            write(books, receipt)
            self.written[receipt.last] = receipt

        monkeypatch.setattr(ReceiptStore, "write", noted)

    def send(self, count: int) -> None:
        with self.app.producer("payments") as producer:
            for n in range(count):
                record = {"id": n, "account": f"a{n % ACCOUNTS}", "amount": 1.0, "points": 1, "note": None}
                producer.send_dict({**record, "at": datetime.now(UTC)})

    def run(self, step: int) -> None:
        """Two batches to an hour, `step` between such hours."""
        supervisor = self.app.supervisor(until_caught_up=True)
        (view,) = supervisor.views
        begins = self.shift

        def moved(at: str, batch: int) -> None:
            if at == "begun":
                self.shift = max(self.shift, begins + (batch - first) // 2 * step)

        first = len(self.written)
        view.at_step = moved
        for one in supervisor.run(lambda _: None, session=self.spark):
            assert one.error is None, one.error

    def served(self) -> dict[int, int]:
        """By batch, how many records a reader found just after it: the sum over all accounts."""
        moments = {n: r.applied["online"] + 1 for n, r in self.written.items()}
        labels = pd.DataFrame(
            [{"account": f"a{a}", "ts": from_micros(t), "n": n} for n, t in moments.items() for a in range(ACCOUNTS)]
        )
        with self.app.training_set(labels, VIEW, time="ts", as_of="served") as train:
            found = train.to_pandas()
        return {int(n): int(rows["ever"].sum()) for n, rows in found.groupby("n")}


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_view_over_days(cluster: Cluster, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", 10)
    app = projects.make(tmp_path / "p", cluster.endpoints, f"b{uuid.uuid4().hex[:8]}", STREAMS)
    projects.apply(app)
    project = Shifted(app, spark, monkeypatch)
    project.send(600)
    project.run(step=12 * HOUR)
    assert len(project.written) > 8
    expected = {n: sum(row.records for row in r.ledger) for n, r in project.written.items()}
    assert project.served() == expected
    (build,) = [path.name for path in Path(app.lake, "leftfold.receipts", VIEW).glob("build=*")]
    table, id = receipts_table(app.lake, VIEW), build.removeprefix("build=")
    moved = receipt_table.rows_of(spark, table, id)
    assert moved[-1].last >= 3, "days that are over are in the lake"
    log = Dying(app.kafka, app.profile.topic_name("leftfold.receipts"))
    held = ReceiptStore(log, f"{VIEW}/{id}").every()
    assert min(r.first for r in held if r.known) == moved[-1].last + 1, "and no longer in the topic"

    project.send(200)
    reads: list[int] = []
    read = ReceiptLog.read

    def noted(log: ReceiptLog, scope: str, *, since: int = 0, only: Any = None) -> dict[str, Kept]:
        if only is None:
            reads.append(since)
        return read(log, scope, since=since, only=only)

    monkeypatch.setattr(ReceiptLog, "read", noted)
    project.run(step=12 * HOUR)
    assert len(reads) == 1
    assert reads[0] > 0, "the start read from its bookmark on"
    expected = {n: sum(row.records for row in r.ledger) for n, r in project.written.items()}
    assert expected[max(expected)] == 800
    assert project.served() == expected
    shutil.rmtree(table)
    with pytest.raises(LeftfoldError) as refused:
        project.served()
    assert refused.value.code == "served-not-known"
