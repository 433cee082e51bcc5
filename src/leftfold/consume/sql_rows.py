"""The positions of a consumer as rows of its own database: claimed with a partition, moved with what was booked.

A row has an owner: the process to which the group has assigned the partition. A process that gets the partition claims
the row, and ends the session of one that was overtaken and still holds it. From then on that one can book nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row
from pydantic import SecretStr

from leftfold.consume.booking import DatabaseAway, PartitionOvertaken
from leftfold.consume.settled import Settled
from leftfold.declare.consumer import Consumer
from leftfold.errors import RunError
from leftfold.kafka.group import LogPartition

Connection = psycopg.Connection[Any]
Key = tuple[str, int]  # the id of a topic, and a partition of it
T = TypeVar("T")

CREATE: LiteralString = """\
create table if not exists leftfold_positions (
  consumer text, topic_id text, partition integer, next bigint not null, owner text not null,
  primary key (consumer, topic_id, partition)
)"""
_ROW: LiteralString = "consumer = %(consumer)s and topic_id = %(topic_id)s and partition = %(partition)s"
_MINE: LiteralString = _ROW + " and owner = %(owner)s"
_LOCK: LiteralString = f"select next, pg_current_xact_id()::text from leftfold_positions where {_MINE} for update"
_MOVE: LiteralString = (
    f"update leftfold_positions set next = %(next)s where {_MINE} returning pg_current_xact_id()::text"
)
_CLAIM: LiteralString = f"update leftfold_positions set owner = %(owner)s where {_ROW} returning next"
_BEGIN: LiteralString = """\
insert into leftfold_positions (consumer, topic_id, partition, next, owner)
values (%(consumer)s, %(topic_id)s, %(partition)s, %(next)s, %(owner)s)
on conflict (consumer, topic_id, partition) do """
# The transaction that holds the row stands in the row itself.
_FREE: LiteralString = f"""\
select pg_terminate_backend(activity.pid)
from leftfold_positions join pg_stat_activity as activity on activity.backend_xid = leftfold_positions.xmax
where {_ROW}"""

_CLAIM_TRIES = 10  # of two seconds each
# A peer that is gone without a word is noticed within half a minute. What the URL says comes first.
_ALIVE = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# Beginnings of SQLSTATEs that are about the server: connection, resources, shutdown, system, a replica.
_SERVER = ("08", "53", "57P", "58", "25006")
# The request to run a transaction once more: serialization failures and deadlocks.
_ONCE_MORE = ("40",)


class SqlRows:
    """The rows of one consumer. Workers call `connect`, `lock`, `move_with` and `commit`; one thread calls the rest."""

    def __init__(self, consumer: Consumer[..., Any], group: str, url: SecretStr) -> None:
        assert consumer.into is not None
        self._consumer = consumer
        self._variable = consumer.into.variable
        self._group = group
        self._owner = secrets.token_hex(8)
        try:
            options = {**_ALIVE, "application_name": group, **conninfo_to_dict(url.get_secret_value())}
        except psycopg.Error:
            # Without its text and its trace: they repeat the URL, which may hold a password.
            raise self._refused("it is no URL of a Postgres database") from None
        self._conninfo = SecretStr(make_conninfo("", **options))
        self._kept: Connection | None = None

    # Connections -----------------------------------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Return a new connection. Each of its transactions begins and ends with a statement of ours."""
        try:
            return psycopg.connect(self._conninfo.get_secret_value(), autocommit=True)
        except psycopg.OperationalError as error:
            raise DatabaseAway(first_line(error)) from error

    def open(self) -> None:
        """Connect for the first time, and make the table if it is not there. An error here is not waited for."""
        try:
            self._ask(self._make_table)
        except DatabaseAway as error:
            raise self.away(error) from error

    def _make_table(self, connection: Connection) -> None:
        if one(connection, "select to_regclass('leftfold_positions') is null")[0]:
            # Two that make a table at the same time are refused, "if not exists" or not; so they queue up.
            with connection.transaction():
                connection.execute("select pg_advisory_xact_lock(hashtext('leftfold_positions'))")
                connection.execute(CREATE)

    def _ask(self, work: Callable[[Connection], T]) -> T:
        """Do something with the connection that is kept. If it was lost, connect once more."""
        for fresh in (False, True):
            if self._kept is None or self._kept.closed:
                self._kept, fresh = self.connect(), True  # noqa: PLW2901 # a new one is not replaced
            try:
                return work(self._kept)
            except psycopg.Error as error:
                if not is_away(error, self._kept):
                    raise self._refused(first_line(error)) from error
                self.close()
                if fresh:
                    raise DatabaseAway(first_line(error)) from error
        raise AssertionError

    @contextmanager
    def opened(self) -> Iterator[None]:
        """For a verb: connect, and disconnect in the end."""
        self.open()
        try:
            yield
        except DatabaseAway as error:
            raise self.away(error) from error
        finally:
            self.close()

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    # Rows ------------------------------------------------------------------------------------------------------------

    def read(self, parts: Iterable[LogPartition], ids: Mapping[str, str]) -> dict[LogPartition, int]:
        """Return the positions of those partitions that have one. `ids` are those of the topics."""
        statement: LiteralString = "select topic_id, partition, next from leftfold_positions where consumer = %s"
        rows = self._ask(lambda c: c.cursor(row_factory=tuple_row).execute(statement, (self._group,)).fetchall())
        there = {(topic_id, partition): offset for topic_id, partition, offset in rows}
        keys = {part: (ids[part.topic], part.partition) for part in parts}
        return {part: there[key] for part, key in keys.items() if key in there}

    def claim(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Own the rows of partitions that were assigned, and return the positions of those that have one."""
        claimed = {key: self._claim_one(key) for key in keys}
        return {key: offset for key, offset in claimed.items() if offset is not None}

    def _claim_one(self, key: Key) -> int | None:
        for _ in range(_CLAIM_TRIES):
            try:
                row = self._ask(lambda c: self._claimed(c, key))
            except _RowHeld:
                self.free(key)
            else:
                return None if row is None else int(row[0])
        raise self._refused(f"another session holds the row of partition {key[1]}, and does not end")

    def _claimed(self, connection: Connection, key: Key) -> Any:
        try:
            with connection.transaction():
                connection.execute("set local lock_timeout = '2s'")
                return one(connection, _CLAIM, self._values(key))
        except psycopg.errors.LockNotAvailable as error:
            raise _RowHeld from error

    def begin(self, starts: Mapping[Key, int]) -> dict[Key, int]:
        """Write the first positions of partitions, and own them. Returns what is there afterwards."""
        own: LiteralString = _BEGIN + "update set owner = excluded.owner returning next"

        def write(connection: Connection) -> dict[Key, int]:
            return {key: int(one(connection, own, self._values(key, at))[0]) for key, at in starts.items()}

        return self._ask(write)

    def put(self, positions: Mapping[Key, int]) -> None:
        """Set positions, whoever owns them: an owner that is left can no longer book."""
        over: LiteralString = _BEGIN + "update set next = excluded.next, owner = excluded.owner"

        def write(connection: Connection) -> None:
            with connection.transaction():
                for key, at in positions.items():
                    connection.execute(over, self._values(key, at))

        self._ask(write)

    def pass_over(self, part: Settled) -> None:
        """Move the position of a partition past settled records that left nothing to book."""
        target = part.low
        if self._ask(lambda c: one(c, _MOVE, self._values(_key(part), target))) is not None:
            part.booked = target

    def free(self, key: Key) -> None:
        """End the session that holds a row, if there is one. Its transaction is rolled back."""
        self._ask(lambda c: c.execute(_FREE, self._values(key)))

    def free_part(self, part: Settled) -> None:
        self.free(_key(part))

    # Inside of a worker's transaction --------------------------------------------------------------------------------

    def lock(self, connection: Connection, part: Settled) -> tuple[int, str]:
        """Lock the row of a partition. Returns the position, and the id of the transaction."""
        row = one(connection, _LOCK, self._values(_key(part)))
        if row is None:
            raise PartitionOvertaken
        return int(row[0]), str(row[1])

    def move_with(self, connection: Connection, part: Settled, target: int, transaction: str) -> None:
        """Move the position in the transaction that locked it."""
        row = one(connection, _MOVE, self._values(_key(part), target))
        if row is None or row[0] != transaction:
            raise self.handler_committed()

    def commit(self, connection: Connection) -> None:
        connection.execute("commit")

    def _values(self, key: Key, offset: int | None = None) -> dict[str, Any]:
        return {
            "consumer": self._group,
            "topic_id": key[0],
            "partition": key[1],
            "owner": self._owner,
            "next": offset,
        }

    # Errors ----------------------------------------------------------------------------------------------------------

    def away(self, error: BaseException) -> RunError:
        return RunError(
            "database-away",
            f"the database of {self._consumer.name} does not answer",
            why=str(error),
            state="nothing is booked, and no position was moved",
            fix=f"start the database, or correct the URL in {self._variable}; then start the consumer again",
            source=self._consumer.source,
            retriable=True,
        )

    def overtaken(self, part: Settled) -> RunError:
        return RunError(
            "partition-overtaken",
            f"{part.topic}/{part.partition} is assigned to this member of {self._consumer.name}, and another process "
            "has claimed its position",
            why="its row in leftfold_positions has another owner, or is gone",
            state="nothing of these records is booked by this process",
            fix="start it again: it claims the row, and continues from the position there",
            source=self._consumer.source,
            retriable=True,
        )

    def handler_committed(self) -> RunError:
        return RunError(
            "handler-committed",
            f"{self._consumer.name} has ended the transaction in which it is called",
            why="rows that the handler commits by itself are not one with the position; after a crash they would be "
            "booked again",
            state="the position is not moved; what the handler has committed stays",
            fix="leave commits to Leftfold; to undo a part of a call, write: with db.transaction():",
            source=self._consumer.source,
        )

    def _refused(self, why: str) -> RunError:
        return RunError(
            "database-refused",
            f"the database of {self._consumer.name} does not take what Leftfold asks",
            why=why,
            state="nothing is booked, and no position was moved",
            fix=f"correct the URL in {self._variable}, or let its role read, write and, for the first start, make the "
            "table leftfold_positions",
            source=self._consumer.source,
        )

    def refused(self, error: psycopg.Error) -> RunError:
        return self._refused(first_line(error))


class _RowHeld(Exception):  # noqa: N818 # it says what is, and is never shown
    """Another session holds the row."""


def one(connection: Connection, statement: LiteralString, values: Mapping[str, Any] | None = None) -> Any:
    """Return the first row of an answer as a tuple, whatever rows the handler has asked for on this connection."""
    return connection.cursor(row_factory=tuple_row).execute(statement, values).fetchone()


def is_away(error: BaseException, connection: Connection) -> bool:
    """Return whether an error means that the server is away, or takes no work from anybody."""
    return connection.broken or (isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_SERVER))


def is_once_more(error: BaseException) -> bool:
    """Return whether an error asks to run the same transaction again."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_ONCE_MORE)


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _key(part: Settled) -> Key:
    return part.topic_id, part.partition
