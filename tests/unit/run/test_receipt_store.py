"""What the topic of receipts holds of a build, and what of it a start reads; `ReceiptLog` is one without a broker."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from leftfold.kafka.document_log import Kept
from leftfold.run.receipt_store import DETAILS_KEPT, ReceiptStore
from leftfold.run.receipts import Receipt, known_history, rolled_up
from leftfold.store.layout import LedgerRow
from tests.unit.run.test_receipts import HOUR, receipt

DAY = 24 * HOUR
SCOPE = "clicks/b1"


class DiedError(Exception):
    pass


@dataclass
class Log:
    """An append-only list of documents. `room` is how many it takes before the writer dies."""

    written: list[tuple[str, dict[str, Any] | None]]
    room: int | None = None
    read_from: int = -1

    def append(self, scope: str, documents: Iterable[tuple[str, dict[str, Any] | None]]) -> list[int]:
        offsets = []
        for document in documents:
            if self.room == 0:
                raise DiedError
            self.room = None if self.room is None else self.room - 1
            offsets.append(len(self.written))
            self.written.append(document)
        return offsets

    def read(self, scope: str, *, since: int = 0, only: Collection[str] | None = None) -> dict[str, Kept]:
        self.read_from = since
        found: dict[str, Kept] = {}
        for offset, (key, document) in enumerate(self.written[since:], since):
            found.pop(key, None)
            if document is not None and (only is None or key in only):
                found[key] = Kept(offset, document)
        return found

    @property
    def held(self) -> list[str]:
        return sorted(self.read(SCOPE))


@dataclass
class Mark:
    text: str | None = None

    def read(self) -> str | None:
        return self.text

    def write(self, text: str) -> None:
        self.text = text


def books(log: Any, mark: Mark | None = None, kept: int | None = DETAILS_KEPT) -> ReceiptStore:
    return ReceiptStore(log, SCOPE, bookmark=mark, kept=kept)


def spans(receipts: Iterable[Receipt]) -> list[tuple[int, int]]:
    return [(r.first, r.last) for r in receipts]


def key(first: int, last: int | None = None) -> str:
    return f"{first:012d}" if last is None else f"{first:012d}-{last:012d}"


def check(log: Log, batches: int) -> None:
    """Every batch once in what tiles the log, once in what is known of each; the counts are those of all."""
    tiles = books(log).read()
    assert tiles[0].first == 0
    assert [b.first for b in tiles[1:]] == [a.last + 1 for a in tiles[:-1]]
    assert tiles[-1].last == batches - 1
    assert sum(r.records["accepted"] for r in tiles) == 9 * batches
    assert sum(r.digest for r in tiles) % 2**64 == sum(receipt(n).digest for n in range(batches)) % 2**64
    known = [b for r in known_history(books(log).every()) for b in r.batches() or ()]
    assert [b.batch for b in known] == list(range(batches))
    assert [b.ends["clicks"][0] for b in known] == [10 * (n + 1) for n in range(batches)]


def test_an_hour_is_closed_by_the_next() -> None:
    log, mark = Log([]), Mark()
    mine = books(log, mark)
    for number in range(6):
        mine.write(receipt(number, hour=number // 3))
    assert log.held == [key(0, 2), key(3), key(4), key(5)]
    mine.write(receipt(6, hour=2))
    assert log.held == [key(0, 2), key(0, 5), key(3, 5), key(6)]
    mine.write(receipt(7, hour=3))  # an hour of one batch
    assert log.held == [key(0, 2), key(0, 6), key(3, 5), key(6), key(7)]
    check(log, 8)


def test_a_start_reads_from_the_sum_on() -> None:
    log, mark = Log([]), Mark()
    mine = books(log, mark)
    for number in range(10):
        mine.write(receipt(number, hour=number // 3))
    whole = books(log).read()
    assert log.read_from == 0
    again = books(log, mark)
    assert again.read(9) == whole
    assert [k for k, _ in log.written[log.read_from :]][:3] == [key(9), key(6, 8), key(0, 8)]
    for number in range(10, 20):
        again.write(receipt(number, hour=number // 3))
    check(log, 20)
    assert log.held == [key(0, 2), key(0, 17), *(key(n, n + 2) for n in range(3, 18, 3)), key(18), key(19)]


def test_a_bookmark_is_only_a_hint() -> None:
    log, mark = Log([]), Mark()
    mine = books(log, mark)
    marks = [None, "", "{", "[]", '{"offset": "x", "details": []}', '{"offset": 7}', '{"offset": 7, "details": [[1]]}']
    for number in range(12):
        mine.write(receipt(number, hour=number // 3))
        marks.append(mark.text)
    marks += [json.dumps({"offset": at, "details": []}) for at in range(len(log.written) + 3)]
    whole = books(log).read()
    for text in marks:
        assert books(log, Mark(text)).read(11) == whole, text


@pytest.mark.parametrize("missing", [[key(0, 8), key(0, 2)], [key(0, 8), key(6, 8)], [key(9)], [key(10)], [key(11)]])
def test_what_was_deleted_is_missing(missing: list[str]) -> None:
    """Whether or not there is a bookmark; a gap, or the end, is then refused."""
    log, mark = Log([]), Mark()
    mine = books(log, mark)
    for number in range(12):
        mine.write(receipt(number, hour=number // 3))
    log.append(SCOPE, [(key, None) for key in missing])
    found = books(log, mark).read(11)
    assert found == books(log).read()
    covered = [n for first, last in spans(found) for n in range(first, last + 1)]
    assert covered != list(range(12))


def test_while_the_hours_are_there_they_stand_in_for_the_sum() -> None:
    log = Log([])
    mine = books(log)
    for number in range(12):
        mine.write(receipt(number, hour=number // 3))
    log.append(SCOPE, [(key(0, 8), None)])
    check(log, 12)


@pytest.mark.parametrize("lake", [False, True])
def test_a_death_after_any_record_loses_nothing(lake: bool) -> None:
    """Of hours of one to four batches. The batch that was not committed runs again."""
    kept = None if lake else DETAILS_KEPT
    hours = [0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 5]
    total = Log([])
    writer = books(total, Mark(), kept)
    for number, hour in enumerate(hours):
        writer.write(receipt(number, hour=hour))
    for room in range(len(total.written)):
        for forgets in (False, True):
            log, mark = Log([], room), Mark()
            _until_dead(books(log, mark, kept), hours)
            log.room = None
            alive = books(log, Mark() if forgets else mark, kept)
            found = alive.read()
            for number in range(found[-1].last if found else 0, len(hours)):
                alive.write(receipt(number, hour=hours[number]))
            check(log, len(hours))
            # One hour more, so that what the dead one left is cleared away.
            alive.write(receipt(len(hours), hour=9))
            assert log.held == [*_held(hours)]


def _until_dead(books: ReceiptStore, hours: list[int]) -> None:
    def live() -> None:
        for number, hour in enumerate(hours):
            books.write(receipt(number, hour=hour))

    with pytest.raises(DiedError):
        live()


def _held(hours: list[int]) -> Iterator[str]:
    log = Log([])
    mine = books(log)
    for number, hour in enumerate([*hours, 9]):
        mine.write(receipt(number, hour=hour))
    yield from log.held


def test_one_that_was_overtaken_does_no_harm() -> None:
    """It wakes up anywhere in a roll-up, after another has gone on for hours, and draws its own lines."""
    for behind in range(6):
        for ahead in (0, 1):  # its clock was an hour ahead: it closes an hour that goes on for the other
            log, mark = Log([]), Mark()
            zombie = books(log, mark)
            for number in range(8):
                zombie.write(receipt(number, hour=number // 4))
            other = books(log, mark)
            other.read(7)
            for number in range(8, 8 + 3 * behind):
                other.write(receipt(number, hour=2 + (number - 8) // 4))
            zombie.write(receipt(8, hour=2 + ahead))
            for number in range(8 + 3 * behind, 30):
                other.write(receipt(number, hour=2 + (number - 8) // 4))
            assert books(log, mark).read(29) == books(log).read()
            check(log, 30)


def test_lines_drawn_differently_are_nobodys_loss() -> None:
    log, mark = Log([]), Mark()
    mine = books(log, mark)
    for number in range(5):
        mine.write(receipt(number))
    early = rolled_up([receipt(n) for n in range(3)])
    log.append(SCOPE, [(early.key, early.as_json())])
    for number in range(5, 8):
        mine.write(receipt(number, hour=number // 5))
    mine.write(receipt(8, hour=2))
    check(log, 9)


def test_a_clock_that_goes_back_closes_an_hour_too() -> None:
    log = Log([])
    mine = books(log)
    for number, hour in enumerate([5, 5, 900, 900, 5, 5, 6]):
        mine.write(receipt(number, hour=hour))
    check(log, 7)
    assert log.held == [key(0, 1), key(0, 5), key(2, 3), key(4, 5), key(6)]


def test_a_batch_that_ran_again_counts_once() -> None:
    log = Log([])
    mine = books(log)
    for number in (0, 1, 1, 2):
        mine.write(receipt(number))
    mine.write(replace(receipt(1), redriven=5))  # a correction of an earlier one
    mine.write(receipt(3, hour=1))
    check(log, 4)


def test_a_sum_is_corrected_in_its_place() -> None:
    """Its last batch is the last committed one if the next, of another hour, is still to run again."""
    log, mark = Log([]), Mark()
    mine = books(log, mark)
    for number in range(7):
        mine.write(receipt(number, hour=number // 2))
    again = books(log, mark)
    found = again.read(5)
    assert spans(found) == [(0, 5), (6, 6)]
    again.write(replace(found[0], redriven=3))
    again.write(replace(found[0], redriven=4))
    assert books(log, mark).read(5)[0].redriven == 4
    again.write(receipt(6, hour=3))
    again.write(replace(receipt(7, hour=4), redriven=4))
    assert books(log, mark).read(7)[0].last == 6
    check(log, 8)


def test_receipts_of_older_releases_go_into_the_sum() -> None:
    """Hours that know their batches become details; others have none to keep."""
    log, mark = Log([]), Mark()
    oldest = replace(rolled_up([receipt(n) for n in range(3)]), series=None)
    older = rolled_up([receipt(n, hour=1) for n in range(3, 6)])
    for one in (oldest, older, receipt(6, hour=2)):
        log.append(SCOPE, [(one.key, one.as_json())])
    mine = books(log, mark)
    assert spans(mine.read(6)) == [(0, 2), (3, 5), (6, 6)]
    mine.write(receipt(7, hour=2))
    mine.write(receipt(8, hour=3))
    assert log.held == [key(0, 7), key(3, 5), key(6, 7), key(8)]
    assert spans(books(log, mark).read(8)) == [(0, 7), (8, 8)]
    assert [(r.first, r.last, r.known) for r in known_history(mine.every())] == [
        (3, 5, True),
        (6, 7, True),
        (8, 8, True),
    ]


def test_details_go_after_a_month_or_with_the_lake() -> None:
    for kept in (DETAILS_KEPT, None):
        log, mark = Log([]), Mark()
        mine = books(log, mark, kept)
        for number in range(2 * 24 * 40):  # two batches an hour, forty days
            mine.write(receipt(number, hour=number // 2))
            if number % 500 == 499:
                mine = books(log, mark, kept)
                mine.read(number)
        details = [d for d in mine.every() if d.first != d.last and d.series is not None]
        days = {d.applied["online"] // DAY for d in details}
        assert len(days) == (30 if kept else 40)
        assert len(log.held) < 24 * len(days) + 5
        assert sum(r.records["accepted"] for r in mine.read()) == 9 * 2 * 24 * 40
    moved: list[int] = []
    while day := mine.oldest_day():
        documents = mine.documents(day)
        assert len(documents) == len(day) == 24
        moved += [b.batch for d in day for b in Receipt.from_json(documents[d.key]).batches() or ()]
        mine.remove(d.key for d in day)
    assert moved == list(range(48 * 39))
    assert len({d.applied["online"] // DAY for d in mine.every() if d.known}) == 1


class Measured(Log):
    """Only how large documents are, and the newest ones: a year of them does not fit."""

    def __init__(self) -> None:
        super().__init__([])
        self.live: dict[str, int] = {}
        self.bytes: list[int] = []

    def append(self, scope: str, documents: Iterable[tuple[str, dict[str, Any] | None]]) -> list[int]:
        offsets = []
        for key, document in documents:
            size = len(f"{scope}/{key}")
            self.live.pop(key, None)
            if document is not None:
                lines = {k: v for k, v in document.items() if k != "batches"}
                size += len(json.dumps(lines, separators=(",", ":"))) + len(document.get("batches", ""))
                self.live[key] = size
            offsets.append(len(self.bytes))
            self.bytes.append(size)
        return offsets


def an_hour(partitions: int) -> list[Receipt]:
    """A batch a second, each of other records of every partition; all four outcomes have been seen in each."""
    chance = random.Random(1)
    ends = [0] * partitions
    hour = []
    for number in range(3_600):
        ranges = {"clicks": {p: (end, end + chance.randrange(2_000 // partitions)) for p, end in enumerate(ends)}}
        ends = [end for _, end in ranges["clicks"].values()]
        ledger = tuple(
            LedgerRow("clicks", p, outcome, 10**9 + end, 1_794_736_186_000_000, 1_794_736_186_000_000, 10**9 + end)
            for p, end in enumerate(ends)
            for outcome in ("accepted", "late", "future", "rejected")
        )
        online = number * 1_000_000 + chance.randrange(300_000)
        hour.append(replace(receipt(number), ranges=ranges, ledger=ledger, applied={"online": online}))
    return hour


@pytest.mark.parametrize("partitions", [6, 48])
def test_a_year_at_a_batch_a_second_is_bounded(partitions: int) -> None:
    """An hour is made once, and written again under later numbers in place of its 3,600 receipts.

    Of the first eleven months one hour a day is enough, to see that nothing of it stays.
    """
    hour = an_hour(partitions)
    whole = rolled_up(hour)
    hourly, singles = (sum(len(json.dumps(r.as_json())) for r in some) for some in ([whole], hour))
    told = f"{partitions} partitions: by the hour alone {365 * 24 * hourly / 1e6:,.0f} MB live after a year"
    for lake in (False, True):
        log, mark = Measured(), Mark()
        mine = books(log, mark, None if lake else DETAILS_KEPT)
        hours = [*range(0, 330 * 24, 24), *range(330 * 24, 365 * 24)]
        for number, at in enumerate(hours):
            first = number * 3_600
            mine.write(replace(hour[0], first=first, last=first, applied={"online": at * HOUR}))
            applied = {"online": at * HOUR + HOUR - 1}
            mine.write(replace(whole, first=first + 1, last=first + 3_599, applied=applied))
            while lake and (day := mine.oldest_day()):
                mine.remove(d.key for d in day)
        live = sum(log.live.values())
        to_read = sum(log.bytes[json.loads(mark.text or "")["offset"] :]) - hourly + singles
        told += f"; {'with' if lake else 'without'} a lake {live / 1e6:.1f} MB"
        assert live < (2 if lake else 31) * 24 * hourly * 1.2
        assert to_read < singles + 2 * hourly
    print(
        f"{told}; an hour of single receipts {singles / 1e6:.1f} MB; a start reads up to {to_read / 1e6:.1f} MB of it"
    )
