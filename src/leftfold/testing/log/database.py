"""A database in memory whose effects and positions commit together: where "exactly once into SQL" writes in the model.

It is SQLite, with `%s` for parameters as Postgres drivers have it. One session is open at a time, as if all of them
locked the same row. A test may bring another database with the same methods.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from leftfold.testing.log.assignment import Part
from leftfold.testing.log.groups import Fenced


class DatabaseSession(Protocol):
    """An open transaction of a database. Its own methods are those that a handler calls."""

    def savepoint(self) -> None: ...
    def undo(self) -> None:
        """Undo what was done since the savepoint."""
        ...

    def move(self, group: str, part: Part, *, expected: int, to: int) -> None:
        """Move a position. Raises Fenced if it is not where this process believes it to be."""
        ...

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class Database(Protocol):
    """A database that holds effects and positions."""

    def begin(self) -> DatabaseSession | None:
        """Open a transaction; None if another one is open."""
        ...

    def position(self, group: str, part: Part) -> int | None: ...


class _Cursor(sqlite3.Cursor):
    """A cursor with `%s` for parameters."""

    def execute(self, statement: str, parameters: Any = ()) -> _Cursor:
        return super().execute(statement.replace("%s", "?"), parameters)


class InMemoryDatabase:
    """SQLite in memory. `schema` makes the tables that the handler writes to."""

    def __init__(self, schema: str = "") -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.executescript(schema)
        self.connection.execute(
            "create table if not exists leftfold_positions"
            " (grp text, topic text, part int, position int, primary key (grp, topic, part))"
        )
        self.open: InMemorySession | None = None

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self.connection.cursor(_Cursor).execute(statement, parameters)

    def begin(self) -> InMemorySession | None:
        if self.open is not None:
            return None
        self.open = InMemorySession(self)
        return self.open

    def position(self, group: str, part: Part) -> int | None:
        row = self.connection.execute(
            "select position from leftfold_positions where grp = ? and topic = ? and part = ?", (group, *part)
        ).fetchone()
        return None if row is None else int(row[0])


class InMemorySession:
    """One transaction. A handler gets it as its `db`."""

    def __init__(self, database: InMemoryDatabase) -> None:
        self._database = database
        database.connection.execute("begin")

    def cursor(self) -> sqlite3.Cursor:
        self._check()
        return self._database.connection.cursor(_Cursor)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement with parameters for its `%s`."""
        return self.cursor().execute(statement, parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undo what is done inside if it raises, and let the exception through."""
        self.execute("savepoint inner")
        try:
            yield
        except BaseException:
            self.execute("rollback to inner")
            raise
        finally:
            self.execute("release inner")

    def savepoint(self) -> None:
        self._check()
        self._database.connection.execute("savepoint record")

    def undo(self) -> None:
        self._check()
        self._database.connection.execute("rollback to record")

    def move(self, group: str, part: Part, *, expected: int, to: int) -> None:
        self._check()
        stored = self._database.position(group, part)
        if stored is not None and stored != expected:
            raise Fenced(f"{group} is no longer at {expected} of {part[0]}/{part[1]}")
        self._database.connection.execute(
            "insert or replace into leftfold_positions values (?, ?, ?, ?)", (group, *part, to)
        )

    def commit(self) -> None:
        self._check()
        self._database.connection.execute("commit")
        self._database.open = None

    def rollback(self) -> None:
        """End the transaction without effect. A session that is over is left alone."""
        if self._database.open is self:
            self._database.connection.execute("rollback")
            self._database.open = None

    def _check(self) -> None:
        if self._database.open is not self:
            raise Fenced("the session is over")
