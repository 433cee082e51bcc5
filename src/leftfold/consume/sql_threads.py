"""The workers of a consumer that books into a database: each books slices of one partition, with its own connection.

A slice is one transaction:

1. begin, and lock the row of the position; it must belong to this process;
2. call the handler for each record, with the connection;
3. move the position behind the last of them, and commit.

There is no savepoint for each record, which would cost two round trips. If a record fails, all is rolled back, and the
records before it are booked once more without it. If the outcome of a commit is unknown, the position tells it at the
next lock.

A record that fails holds its partition, and no other of it is handled that would show whether the fault is its own. So
the handler is called for the records behind it, in a transaction that is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from leftfold import clock
from leftfold.consume.booking import DatabaseAway, PartitionOvertaken, RecordAtFault, RejectedRecord
from leftfold.consume.lanes import Hand, Lanes, Work
from leftfold.consume.sql_rows import Connection, SqlRows, first_line, is_away, is_once_more
from leftfold.consume.workers import Threads
from leftfold.declare.record import NotNow, Unprocessable
from leftfold.errors import LeftfoldError

Book = Callable[[Work, Connection], Any]  # calls the handler for one record
# A slice ends after this time, so that a stop need not wait for many slow calls, and the row is free again.
_LONGEST_S = 1.0
_AGAIN = "100ms"
_WITNESSES = 3  # how many records behind one that fails are tried


class StatementFailed(Exception):  # noqa: N818 # it is shown as the reason of a dead letter
    """A statement failed, and the handler went on: its transaction is aborted."""


class _RecordFailed(Exception):  # noqa: N818 # it says which, and is never shown
    """The record at an index of a slice failed."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__(at)
        self.at = at
        self.error = error


class SqlThreads(Threads):
    """Worker threads that book. A call that takes too long loses its connection, and so its transaction."""

    def __init__(self, lanes: Lanes, rows: SqlRows, book: Book, *, number: int, name: str) -> None:
        self._rows = rows
        self._book = book
        self._called: dict[Hand, int] = {}  # the index of the record that a worker's handler works on at the moment
        super().__init__(lanes, lambda _: None, number=number, batches=False, name=name)

    def _handle_each(self, hand: Hand) -> None:
        session = _Session(self._rows, self._book, self._called, self._lanes)
        while self._lanes.take(hand, 1.0):
            self._lanes.finish(hand, session.book(hand))
        session.close()

    def _called_for(self, hand: Hand) -> int | None:
        return self._called.get(hand)

    def _abandon(self, hand: Hand, works: list[Work], at: int, error: TimeoutError) -> None:
        """Give up a worker and end its session."""
        if at:  # the records before it are not booked; one by one, the next timeout hits the right one
            _one_by_one(works[: at + 1])
        self._lanes.abandon(hand, NotNow(_AGAIN) if at else error)
        with suppress(DatabaseAway):  # then its session is gone too
            self._rows.free_part(works[0].part)

    def close(self) -> None:
        self._rows.close()


class _Session:
    """One worker's connection."""

    def __init__(self, rows: SqlRows, book: Book, called: dict[Hand, int], lanes: Lanes) -> None:
        self._lanes = lanes
        self._rows = rows
        self._book = book
        self._called = called
        self._connection: Connection | None = None

    def book(self, hand: Hand) -> BaseException | None:
        """Book what is in a worker's hand, up to the first record that fails. Sets `hand.at`, and returns the error."""
        works, part = hand.works, hand.works[0].part
        end = next((i for i, work in enumerate(works) if isinstance(work.event, RejectedRecord)), len(works))
        error: BaseException | None = works[end].event if end < len(works) else None
        failed = False
        while end:
            try:
                booked = self._transaction(hand, works[:end])
            except _RecordFailed as raised:
                end, error, failed = raised.at, raised.error, True
            except (DatabaseAway, PartitionOvertaken, NotNow, LeftfoldError) as raised:
                end, error, failed = 0, raised, False
            else:
                break
        else:
            booked = 0
        if not part.owned:
            hand.at = len(works)  # they are of no interest any more, booked or not
            return None
        hand.at = booked
        if booked < end or error is None:
            return None
        if not failed or isinstance(error, NotNow | Unprocessable):
            return error
        # Those before it were booked after it had failed.
        at_fault = end > 0 or self._works_for_another(hand, works)
        return RecordAtFault(error) if at_fault else error

    def _works_for_another(self, hand: Hand, works: list[Work]) -> bool:
        """Return whether the handler works for a record behind the first one. What it books is rolled back."""
        behind = works[1 : _WITNESSES + 1] or self._lanes.behind(works[0].lane, _WITNESSES)
        for work in (one for one in behind if not isinstance(one.event, RejectedRecord)):
            try:
                connection = self._connected()
                connection.execute("begin")
                position, _ = self._rows.lock(connection, work.part)
                if position <= work.offset and self._call_for(hand, [work], position, connection):
                    return True
            except Exception:  # noqa: BLE001 # it is no witness, whatever it raises; its own turn will tell
                continue
            finally:
                if self._connection is not None:
                    self._roll_back(self._connection)
        return False

    def _transaction(self, hand: Hand, works: list[Work]) -> int:
        """Book records in one transaction. Returns how many were booked: fewer than all if it takes too long."""
        part = works[0].part
        connection = self._connected()
        try:
            connection.execute("begin")
            position, transaction = self._rows.lock(connection, part)
            booked = self._call_for(hand, works, position, connection)
            target = works[booked - 1].offset + 1 if booked else position
            if target > position:
                self._rows.move_with(connection, part, target, transaction)
            self._rows.commit(connection)
        except psycopg.Error as error:
            self._roll_back(connection)
            if is_away(error, connection):
                self.close()
                raise DatabaseAway(first_line(error)) from error
            if is_once_more(error):
                raise NotNow(_AGAIN) from error
            if isinstance(error, psycopg.IntegrityError):  # a constraint that is checked at the commit
                if len(works) == 1:
                    raise _RecordFailed(0, error) from error
                _one_by_one(works)
                raise NotNow(_AGAIN) from error
            raise self._rows.refused(error) from error
        except BaseException as raised:
            self._roll_back(connection)
            if isinstance(raised, DatabaseAway):
                self.close()
            raise
        part.booked = max(target, position)
        return booked

    def _call_for(self, hand: Hand, works: list[Work], position: int, connection: Connection) -> int:
        """Call the handler for records from the position on. Returns the number of records that are done."""
        until = clock.monotonic() + _LONGEST_S
        for at, work in enumerate(works):
            if work.offset < position:
                continue  # a commit of which no answer came took effect
            if clock.monotonic() > until or not work.part.owned or hand.abandoned:
                return at
            self._called[hand] = at
            try:
                self._book(work, connection)
            except BaseException as raised:  # noqa: BLE001 # a person's handler may raise anything, sys.exit too
                error = raised
            else:
                if connection.pgconn.transaction_status == TransactionStatus.INTRANS:
                    continue
                error = self._ended_transaction(connection)
            finally:
                self._called.pop(hand, None)
            if is_away(error, connection):
                raise DatabaseAway(first_line(error)) from error
            if is_once_more(error):
                raise NotNow(_AGAIN) from error
            if isinstance(error, LeftfoldError):
                raise error
            raise _RecordFailed(at, error)
        return len(works)

    def _ended_transaction(self, connection: Connection) -> Exception:
        if connection.closed or connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return self._rows.handler_committed()
        return StatementFailed("a statement of the handler failed, and the handler went on")

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._rows.connect()
        return self._connection

    def _roll_back(self, connection: Connection) -> None:
        try:
            if not connection.closed and connection.pgconn.transaction_status != TransactionStatus.IDLE:
                connection.execute("rollback")
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _one_by_one(works: list[Work]) -> None:
    """Let records be booked in transactions of their own, so that the one at fault is found."""
    for work in works:
        work.alone = True
