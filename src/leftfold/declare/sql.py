"""The database into which a consumer books exactly once: where it is, and the connection that a handler gets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, LiteralString, Protocol

from leftfold.errors import DeclarationError, caller

_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Sql:
    """A Postgres database. `url` is "env:NAME": the environment variable NAME, or .env, holds the URL.

    A URL itself is refused, because it may hold a password, and declarations are kept in a repository.
    """

    url: str

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or _VARIABLE.fullmatch(self.url) is None:
            raise DeclarationError(
                "sql-url",
                'lf.Sql takes "env:NAME", and was given something else',
                why="a URL may hold a password, and differs from one profile to the next; declarations are kept in a "
                "repository",
                fix='write lf.Sql("env:LEDGER_URL"), and put the URL into that environment variable, or into .env',
                source=caller(),
            )

    @property
    def variable(self) -> str:
        """The name of the environment variable that holds the URL."""
        return self.url.removeprefix("env:")


class SqlCursor(Protocol):
    """The answer to a statement: the part of psycopg's cursor that handlers need most."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, query: LiteralString, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Any: ...
    def executemany(self, query: LiteralString, params_seq: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None: ...
    def fetchone(self) -> Any: ...
    def fetchmany(self, size: int = 0) -> list[Any]: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """The connection that a handler books with: a psycopg connection inside of a transaction that Leftfold commits.

    The handler neither commits nor rolls back. `transaction` is a savepoint: it undoes a part of what a handler did.
    """

    def execute(self, query: LiteralString, params: Sequence[Any] | Mapping[str, Any] | None = None) -> SqlCursor: ...
    def cursor(self) -> SqlCursor: ...
    def transaction(self) -> AbstractContextManager[Any]: ...
