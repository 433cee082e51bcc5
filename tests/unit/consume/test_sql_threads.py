"""The transaction of a worker that books, on a stand-in for a database: what is booked, and which record is blamed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

import leftfold as lf
from leftfold.consume.booking import DatabaseAway, PartitionOvertaken, RecordAtFault, RejectedRecord
from leftfold.consume.lanes import BatchLanes, Hand, Work
from leftfold.consume.settled import Committed, Settled
from leftfold.consume.sql_threads import _Session
from leftfold.errors import RunError


class StandInDatabase:
    """A database of one table and one position, with one session at a time."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.position = 0
        self.owned = True
        self.lose_answer = self.refuse = False
        self._pending: tuple[list[int], int] = ([], 0)
        self.closed = self.broken = False
        self.pgconn = SimpleNamespace(transaction_status=TransactionStatus.IDLE)

    def connect(self) -> StandInDatabase:
        if self.refuse:
            raise DatabaseAway("refused")
        self.closed = self.broken = False
        self.pgconn.transaction_status = TransactionStatus.IDLE
        return self

    def execute(self, statement: str) -> None:
        begins = statement == "begin"
        self.pgconn.transaction_status = TransactionStatus.INTRANS if begins else TransactionStatus.IDLE
        self._pending = ([], self.position)

    def book(self, number: int) -> None:
        self._pending[0].append(number)

    def lock(self, _connection: Any, _part: Settled) -> tuple[int, str]:
        if not self.owned:
            raise PartitionOvertaken
        return self.position, "7"

    def move_with(self, _connection: Any, _part: Settled, target: int, _transaction: str) -> None:
        self._pending = (self._pending[0], target)

    def commit(self, _connection: Any) -> None:
        self.rows += self._pending[0]
        self.position = self._pending[1]
        self.execute("commit")
        if self.lose_answer:
            self.lose_answer = False
            self.broken = self.closed = True
            raise psycopg.OperationalError("the connection is lost")

    def handler_committed(self) -> RunError:
        return RunError("handler-committed", "it has", why="", fix="")

    def close(self) -> None:
        self.closed = True


class Worker:
    """A worker with the records 0 to 5 in its hand."""

    def __init__(self, handler: Callable[[int], None] = lambda _: None) -> None:
        self.database = StandInDatabase()
        self.part = Settled("payments", "id", 0, Committed(0))
        self.works = [Work(self.part, offset, "lane", offset, "accepted", None) for offset in range(6)]
        self.lanes = BatchLanes(10, 0.0, whole=False)
        self.calls: list[int] = []

        def book(work: Work, connection: Any) -> None:
            self.calls.append(work.offset)
            connection.book(work.offset)
            handler(work.offset)

        rows: Any = self.database
        self._session = _Session(rows, book, {}, self.lanes)

    def book(self, works: list[Work] | None = None) -> tuple[int, BaseException | None]:
        hand = Hand(works=self.works if works is None else works)
        error = self._session.book(hand)
        return hand.at, error


def fails(*numbers: int, error: Exception | None = None) -> Callable[[int], None]:
    def handler(number: int) -> None:
        if number in numbers:
            raise error or ValueError(f"{number} is bad")

    return handler


def test_all_are_one_transaction() -> None:
    worker = Worker()
    assert worker.book() == (6, None)
    assert (worker.database.rows, worker.database.position, worker.part.booked) == ([0, 1, 2, 3, 4, 5], 6, 6)


def test_those_before_a_bad_one_are_booked_without_it() -> None:
    worker = Worker(fails(3))
    at, error = worker.book()
    assert (at, worker.database.rows, worker.database.position) == (3, [0, 1, 2], 3)
    assert isinstance(error, RecordAtFault), "others were booked after it had failed"
    assert str(error.error) == "3 is bad"
    assert worker.calls == [0, 1, 2, 3, 0, 1, 2]


@pytest.mark.parametrize("alone", [False, True])
def test_records_behind_a_bad_one_are_witnesses(alone: bool) -> None:
    worker = Worker(fails(0, 1))
    worker.works[1].event = RejectedRecord("no event") if alone else worker.works[1].event
    if alone:  # as the one record that an open breaker tries
        worker.lanes.put(worker.works[1:])
    at, error = worker.book(worker.works[:1] if alone else None)
    assert at == 0
    assert isinstance(error, RecordAtFault)
    assert worker.calls == ([0, 2] if alone else [0, 1, 2])
    assert (worker.database.rows, worker.database.position) == ([], 0), "what a witness books is rolled back"


def test_an_outage_has_no_witness() -> None:
    worker = Worker(fails(*range(6), error=ConnectionError("the service is away")))
    at, error = worker.book()
    assert (at, type(error)) == (0, ConnectionError)
    assert worker.calls == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [lf.NotNow("1s"), lf.Unprocessable("never")])
def test_what_a_handler_says_itself_needs_no_witness(error: Exception) -> None:
    worker = Worker(fails(0, error=error))
    assert worker.book() == (0, error)
    assert worker.calls == [0]


def test_a_record_that_is_no_event_ends_the_slice() -> None:
    worker = Worker()
    worker.works[2].event = rejected = RejectedRecord("no event")
    assert worker.book() == (2, rejected)
    assert worker.database.rows == [0, 1]
    assert worker.book(worker.works[2:]) == (0, rejected)


def test_the_position_tells_what_became_of_a_commit() -> None:
    worker = Worker()
    worker.database.lose_answer = True
    at, error = worker.book()
    assert (at, type(error)) == (0, DatabaseAway)
    assert worker.book() == (6, None)
    assert worker.database.rows == [0, 1, 2, 3, 4, 5], "booked once"
    assert worker.part.booked == 6


def test_a_database_that_is_away_blames_nobody() -> None:
    worker = Worker()
    worker.database.refuse = True
    at, error = worker.book()
    assert (at, type(error), worker.calls) == (0, DatabaseAway, [])


def test_an_overtaken_process_books_nothing() -> None:
    worker = Worker()
    worker.database.owned = False
    at, error = worker.book()
    assert (at, type(error), worker.database.rows) == (0, PartitionOvertaken, [])


def test_records_of_a_partition_that_is_gone_are_let_go() -> None:
    worker = Worker()
    worker.part.owned = False
    assert worker.book() == (6, None)
    assert (worker.calls, worker.database.position) == ([], 0)


@pytest.mark.parametrize("closes", [False, True])
def test_a_handler_that_ends_the_transaction(closes: bool) -> None:
    def end(number: int) -> None:
        if number == 2:
            worker.database.execute("commit")
            worker.database.closed = closes

    worker = Worker(end)
    at, error = worker.book()
    assert (at, type(error)) == (0, RunError)
    assert worker.calls == [0, 1, 2]


def test_a_handler_that_goes_on_after_a_failed_statement() -> None:
    def swallow(number: int) -> None:
        if number == 2:
            worker.database.pgconn.transaction_status = TransactionStatus.INERROR

    worker = Worker(swallow)
    at, error = worker.book()
    assert (at, worker.database.rows) == (2, [0, 1])
    assert isinstance(error, RecordAtFault)
    assert type(error.error).__name__ == "StatementFailed"
