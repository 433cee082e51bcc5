"""Connections to a Postgres, and the errors that a user sees when it does not answer or refuses."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from leftfold.errors import StoreError, start_or_check
from leftfold.store.engine import STORE
from leftfold.store.postgres.tables import CREATE

T = TypeVar("T")
SCHEMA = "leftfold"  # unless the URL names another one
# A round trip takes milliseconds. A server that is stopped must not block a reader, or a writer's task, for ever.
_READ_S = 5.0
# A writer may wait for the rows that another one holds, at most until the server ends that one's session.
_WRITE_S = 60.0
_ALIVE = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "leftfold",
}
_SETTINGS = {
    # Every statement is a look at few keys. Of a new table Postgres knows nothing, and would read all of it.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # A plan for each call would take longer than the call.
    "plan_cache_mode": "force_generic_plan",
    "default_transaction_isolation": "read\\ committed",
    # A writer that is stopped in the middle of a transaction holds rows that others wait for.
    "idle_in_transaction_session_timeout": "10s",
}
_MOST = 16  # connections of an event loop, which may have thousands of questions at once
_TIMES = 5  # a transaction is begun again so often, if another one was in its way
_SEARCH_PATH = re.compile(r"search_path\s*=\s*\"?([^\s,\"\\]+)")
_IN_THE_WAY = ("40001", "40P01")
_NO_TABLES = ("42P01", "3F000")
_TIMED_OUT = "57014"
_AWAY = ("08", "57P", "58")  # beginnings of SQLSTATEs: connection, shutdown and start, system
_DENIED = re.compile(
    r"password authentication failed|no password supplied|pg_hba\.conf|role \".*\" does not exist|"
    r"database \".*\" does not exist|permission denied|is not permitted to log in"
)
_TLS = re.compile(r"SSL|certificate|TLS")


HIDDEN: LiteralString = "select 1 from pg_namespace where nspname = %s and not has_schema_privilege(oid, 'usage')"


class Again(Exception):  # noqa: N818 # no failure: the transaction is begun again
    """Another transaction was in the way."""


class _Connection(psycopg.Connection[Any]):
    """A connection on which no wait is endless."""

    seconds = _READ_S

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, self.seconds if timeout is None else timeout)


class _AsyncConnection(psycopg.AsyncConnection[Any]):
    async def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return await super().wait(gen, interval, _READ_S if timeout is None else timeout)


class Address:
    """The URL of a store, taken apart: how to connect, where that is, and which schema has the tables."""

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # Without its text and its trace: they repeat the URL, which may hold a password.
            raise _bad_url() from None
        options = str(given.pop("options", ""))
        found = _SEARCH_PATH.search(options)
        self.schema = found[1] if found else SCHEMA
        settings = {**_SETTINGS, "search_path": self.schema}
        ours = " ".join(f"-c {name}={value}" for name, value in settings.items())
        options = f"-c statement_timeout={_WRITE_S - 5:.0f}s {options}"  # a URL may have a shorter one
        self.where = f"{given.get('host', 'localhost')}:{given.get('port', 5432)}"
        self.conninfo = make_conninfo("", **{**_ALIVE, **given, "options": f"{options} {ours}".strip()})

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn the client's failures into a StoreError."""
        try:
            yield
        except psycopg.Error as error:
            raise failed(self, error) from error


class Pool:
    """The connections of one process. A thread has one for as long as it asks."""

    def __init__(self, address: Address, *, writes: bool) -> None:
        self._address = address
        self._seconds = _WRITE_S if writes else _READ_S
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()

    def run(self, ask: Callable[[_Connection], T]) -> T:
        """Ask something, which may happen twice: the connection may have been idle too long. The next one is new."""
        may_be_old = bool(self._idle)
        with self._address.reaching():
            try:
                return self._once(ask)
            except psycopg.OperationalError as error:
                if not (may_be_old and is_away(error)):
                    raise
                return self._once(ask, anew=True)

    def transact(self, work: Callable[[psycopg.Cursor[Any]], T]) -> T:
        """Do something in one transaction. It may be begun again, also after its commit if the answer was lost."""

        def once(connection: _Connection) -> T:
            with connection.transaction(), connection.cursor(binary=True) as cursor:
                return work(cursor)

        for _ in range(_TIMES):
            try:
                return self.run(once)
            except Again:
                continue
            except StoreError as error:
                if getattr(error.__cause__, "sqlstate", None) not in _IN_THE_WAY:
                    raise
        return self.run(once)

    def refuse_hidden(self) -> None:
        """Raise if the schema is there and this role may not look into it. Its tables then seem to be missing."""
        schema = self._address.schema
        if self.run(lambda connection: connection.execute(HIDDEN, (schema,)).fetchone()):
            raise hidden(self._address)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _once(self, ask: Callable[[_Connection], T], *, anew: bool = False) -> T:
        with self._borrowed(anew=anew) as connection:
            return ask(connection)

    @contextmanager
    def _borrowed(self, *, anew: bool) -> Iterator[_Connection]:
        if anew:
            self.close()  # the others are as old
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = _Connection.connect(self._address.conninfo, autocommit=True)
            connection.seconds = self._seconds
        try:
            yield connection
        finally:
            if connection.info.transaction_status == TransactionStatus.IDLE:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()  # nobody would read the answers that are still to come on it


class AsyncPool:
    """The same for one event loop. Only for questions."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[_AsyncConnection] = []
        self._most = asyncio.Semaphore(_MOST)

    @property
    def may_be_old(self) -> bool:
        return bool(self._idle)

    @asynccontextmanager
    async def borrowed(self, *, anew: bool) -> AsyncIterator[_AsyncConnection]:
        old, self._idle = (self._idle, []) if anew else ([], self._idle)
        for one in old:
            await one.close()
        async with self._most:
            connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = await _AsyncConnection.connect(self._address.conninfo, autocommit=True)
            try:
                yield connection
            finally:
                if connection.info.transaction_status == TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    await connection.close()


def is_away(error: psycopg.OperationalError) -> bool:
    """Return whether the same question may be answered on a new connection. One that timed out is not asked again."""
    if error.sqlstate is None:
        return type(error).__name__ != "_WaitTimeout"  # psycopg's own, for a wait that took too long
    return error.sqlstate.startswith(_AWAY)


def lacks_tables(error: BaseException | None) -> bool:
    return isinstance(error, psycopg.Error) and error.sqlstate in _NO_TABLES


def create_tables(pool: Pool, address: Address) -> None:
    """Make the tables, if this role may. Several processes may do it at once."""
    name: LiteralString = "select 1 from pg_namespace where nspname = %s"

    def create(cursor: psycopg.Cursor[Any]) -> None:
        cursor.execute("select pg_advisory_xact_lock(hashtext('leftfold tables'))")
        if not cursor.execute(name, (address.schema,)).fetchone():
            cursor.execute(sql.SQL("create schema {}").format(sql.Identifier(address.schema)))
        for statement in CREATE.split(";"):
            cursor.connection.execute(statement)

    try:
        pool.transact(create)
    except StoreError as error:
        if error.code != "store-denied":
            raise
        raise StoreError(
            "store-no-tables",
            f"Postgres at {address.where} has no tables of Leftfold in schema {address.schema}",
            why=f"this role may not make them: {error.why}",
            fix="run the statements of docs/reference/protocol.md as the owner of that schema, or let the role create "
            "in it; then leftfold run",
        ) from error


def failed(address: Address, error: psycopg.Error) -> StoreError:
    """Return the StoreError for a client's failure: Postgres does not answer, or it answers and refuses."""
    says, state, at = str(error).strip(), error.sqlstate or "", f"Postgres at {address.where}"
    why = next(iter(says.splitlines()), type(error).__name__)
    if state.startswith("28") or state in ("3D000", "42501") or (not state and _DENIED.search(says)):
        return StoreError(
            "store-denied",
            f"{at} refused the login, or a statement of this role",
            why=why,
            fix="correct the user, the password and the database in online.url of the profile, or grant the role what "
            "docs/reference/project.md lists",
        )
    if not state and _TLS.search(says):
        return StoreError(
            "store-tls",
            f"no TLS connection could be made to {at}",
            why=why,
            fix="set online.ca of the profile to the PEM file of the CA that signed its certificate, and sslmode in "
            "online.url to what the server offers",
        )
    if state in ("53100", "53200"):
        return StoreError(
            "store-full",
            f"{at} has no room left",
            why=why,
            state="what was written before stays; the batch is not committed",
            fix="give it more disk or memory, or remove views; leftfold plan shows which builds nobody needs",
            retriable=True,
        )
    if state and not state.startswith((*_AWAY, _TIMED_OUT)):
        return StoreError(
            "store-refused",
            f"{at} refused a statement",
            why=why,
            state="what was written before stays; the batch is not committed",
            fix="see the log of Postgres for the cause; leftfold run continues once it is removed",
            retriable=True,
        )
    return StoreError(
        "store-unreachable",
        f"no Postgres answered at {address.where}",
        why=why,
        fix=start_or_check(STORE),
        retriable=True,
    )


def hidden(address: Address) -> StoreError:
    """Return the error for a role that may not look into the schema."""
    return failed(address, psycopg.errors.InsufficientPrivilege(f"permission denied for schema {address.schema}"))


def _bad_url() -> StoreError:
    return StoreError(
        "store-unreachable",
        "online.url names no Postgres",
        why="it is not of the form postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
        fix="correct online.url of the profile",
    )
