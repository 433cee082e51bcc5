"""The questions of a reader, and clients that ask many of them in one statement.

A statement has a branch for each kind of question. So it is one round trip, and all its answers are of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, LiteralString

import psycopg

from leftfold.errors import StoreError
from leftfold.store.engine import BuildPlace, ViewPlace
from leftfold.store.postgres.connection import HIDDEN, Address, AsyncPool, Pool, hidden, is_away, lacks_tables
from leftfold.store.postgres.tables import build_id, entity_key
from leftfold.store.row_value import decoded, fields_in

Kind = Literal["active", "manifest", "vector", "mark", "row"]
_COLUMNS = ("batch", "newest", "redriven", "history")  # fields of a mark that have a column of their own

# Of each kind: which value is asked for, and where it is. %b: one array for each part of the key.
_NO_MARK: LiteralString = "null::bigint, null::bigint, null::bigint, null::text"
_MARK: LiteralString = "t.batch, t.newest, t.redriven, t.history"
_OF_BUILD: LiteralString = (
    "from unnest(%b::bigint[]) with ordinality as q (id, i) join leftfold_builds t on t.id = q.id"
)
_BRANCHES: dict[tuple[Kind, bool], LiteralString] = {
    ("active", False): f"select 0, q.i, convert_to(t.active, 'UTF8'), {_NO_MARK} "
    "from unnest(%b::text[], %b::text[]) with ordinality as q (namespace, view, i) "
    "join leftfold_views t on t.namespace = q.namespace and t.view = q.view",
    ("manifest", False): f"select 1, q.i, t.manifest, {_NO_MARK} {_OF_BUILD}",
    ("vector", False): f"select 2, q.i, t.document, {_NO_MARK} "
    "from unnest(%b::text[], %b::text[]) with ordinality as q (namespace, name, i) "
    "join leftfold_vectors t on t.namespace = q.namespace and t.name = q.name",
    ("mark", False): f"select 3, q.i, null::bytea, {_MARK} {_OF_BUILD}",
    ("mark", True): f"select 3, q.i, t.ledger, {_MARK} {_OF_BUILD}",
    ("row", False): f"select 4, q.i, t.value, {_NO_MARK} "
    "from unnest(%b::bigint[], %b::bytea[]) with ordinality as q (build, entity, i) "
    "join leftfold_rows t on t.build = q.build and t.entity = q.entity and (t.expires is null or t.expires > now())",
}
_KINDS: tuple[Kind, ...] = ("active", "manifest", "vector", "mark", "row")


@dataclass(frozen=True)
class PostgresQuestion:
    """A question: what is asked for, and under which key."""

    kind: Kind
    key: tuple[Any, ...]
    fields: tuple[str, ...] | None = None  # of a mark; None asks for all of it

    @property
    def needs_ledger(self) -> bool:
        return self.kind == "mark" and (self.fields is None or any(name not in _COLUMNS for name in self.fields))

    @property
    def unanswered(self) -> Any:
        """The answer if nothing is found."""
        if self.kind == "mark" and self.fields is not None:
            return [None] * len(self.fields)
        return [] if self.kind in ("mark", "row") else None


class PostgresQuestions:
    def followed(self, at: ViewPlace) -> PostgresQuestion:
        return PostgresQuestion("active", (at.namespace, at.view))

    def manifest(self, at: BuildPlace) -> PostgresQuestion:
        return PostgresQuestion("manifest", (build_id(at),))

    def vector(self, namespace: str, name: str) -> PostgresQuestion:
        return PostgresQuestion("vector", (namespace, name))

    def mark(self, at: BuildPlace, fields: Sequence[str]) -> PostgresQuestion:
        return PostgresQuestion("mark", (build_id(at),), tuple(fields))

    def whole_mark(self, at: BuildPlace) -> PostgresQuestion:
        return PostgresQuestion("mark", (build_id(at),))

    def row(self, at: BuildPlace) -> Callable[[str], PostgresQuestion]:
        build = build_id(at)
        return lambda entity: PostgresQuestion("row", (build, entity_key(entity)))


class PostgresClient:
    """Asks many questions in one round trip, from a thread."""

    def __init__(self, url: str) -> None:
        self._pool = Pool(Address(url), writes=False)

    def execute(self, questions: Sequence[PostgresQuestion]) -> list[Any]:
        statement, values, places = _statement(questions)

        def ask(connection: psycopg.Connection[Any]) -> list[Any]:
            return connection.execute(statement, values, prepare=True, binary=True).fetchall()

        try:
            return _answers(questions, places, self._pool.run(ask))
        except StoreError as error:
            if not lacks_tables(error.__cause__):
                raise
        self._pool.refuse_hidden()
        return [one.unanswered for one in questions]


class AsyncPostgresClient:
    """Does the same from an event loop."""

    def __init__(self, url: str) -> None:
        self._address = Address(url)
        self._pool = AsyncPool(self._address)

    async def execute(self, questions: Sequence[PostgresQuestion]) -> list[Any]:
        statement, values, places = _statement(questions)
        may_be_old = self._pool.may_be_old
        with self._address.reaching():
            try:
                found = await self._once(statement, values, anew=False)
            except psycopg.OperationalError as error:
                if not (may_be_old and is_away(error)):
                    raise
                found = await self._once(statement, values, anew=True)
            except psycopg.Error as error:
                if not lacks_tables(error):
                    raise
                if await self._once(HIDDEN, [self._address.schema], anew=False):
                    raise hidden(self._address) from error
                return [one.unanswered for one in questions]
        return _answers(questions, places, found)

    async def _once(self, statement: LiteralString, values: Sequence[Any], *, anew: bool) -> list[Any]:
        async with self._pool.borrowed(anew=anew) as connection:
            cursor = await connection.execute(statement, values, prepare=True, binary=True)
            return await cursor.fetchall()


def mark_of(
    batch: int | None, newest: int | None, redriven: int | None, history: str | None, ledger: bytes | None
) -> dict[bytes, bytes]:
    """Return a mark from the columns of its build."""
    numbers = {b"batch": batch, b"newest": newest, b"redriven": redriven}
    mark = {name: b"%d" % number for name, number in numbers.items() if number is not None}
    if history is not None:
        mark[b"history"] = history.encode()
    return mark | ({} if ledger is None else decoded(ledger))


Places = dict[tuple[int, int], list[int]]  # by branch and number of an answer: the questions that it is for


def _statement(questions: Sequence[PostgresQuestion]) -> tuple[LiteralString, list[list[Any]], Places]:
    """Return a statement, its values, and the places of its answers."""
    keys: dict[Kind, dict[tuple[Any, ...], list[int]]] = {}
    for place, one in enumerate(questions):
        keys.setdefault(one.kind, {}).setdefault(one.key, []).append(place)
    kinds = tuple(kind for kind in _KINDS if kind in keys)
    ledger = any(one.needs_ledger for one in questions)
    values = [list(part) for kind in kinds for part in zip(*keys[kind], strict=True)]
    places = {
        (_KINDS.index(kind), number): mine for kind in kinds for number, mine in enumerate(keys[kind].values(), start=1)
    }
    return _text(kinds, ledger=ledger), values, places


@cache
def _text(kinds: tuple[Kind, ...], *, ledger: bool) -> LiteralString:
    return " union all ".join(_BRANCHES[kind, ledger and kind == "mark"] for kind in kinds)


def _answers(questions: Sequence[PostgresQuestion], places: Places, found: Sequence[Sequence[Any]]) -> list[Any]:
    answers = [one.unanswered for one in questions]
    for branch, number, value, *columns in found:
        for place in places[branch, number]:
            answers[place] = _answer(questions[place], value, columns)
    return answers


def _answer(asked: PostgresQuestion, value: Any, columns: Sequence[Any]) -> Any:
    if asked.kind == "row":
        return fields_in(value)
    if asked.kind != "mark":
        return value
    batch, newest, redriven, history = columns
    mark = mark_of(batch, newest, redriven, history, value)
    if asked.fields is None:
        return [part for entry in mark.items() for part in entry]
    return [mark.get(name.encode()) for name in asked.fields]
