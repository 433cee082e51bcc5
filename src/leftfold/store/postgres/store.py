"""One Postgres as a store: each verb is a short transaction, which locks the row of the view or of the build first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar

import psycopg
from psycopg import sql

from leftfold.errors import StoreError
from leftfold.fold.definition import Definition
from leftfold.store.engine import (
    BuildPlace,
    Builds,
    Calls,
    EndOfScan,
    FramedRow,
    Move,
    Moved,
    MoveMark,
    MoveRedriven,
    StorePosition,
    ViewPlace,
)
from leftfold.store.postgres import rows as writing
from leftfold.store.postgres.connection import Address, Pool, create_tables, lacks_tables
from leftfold.store.postgres.questions import mark_of
from leftfold.store.postgres.tables import build_id
from leftfold.store.row_value import decoded, encoded

T = TypeVar("T")
Cursor = psycopg.Cursor[Any]

# Rows that one transaction removes, and rows that a look for expired ones reads: some milliseconds each.
_REMOVED_AT_ONCE, _LOOKED_AT = 1_000, 2_000
_BUILD: LiteralString = "namespace = %s and view = %s and build = %s"
_VIEW: LiteralString = "namespace = %s and view = %s"
_MARK: LiteralString = "batch, newest, redriven, history, ledger"
_LOCK: LiteralString = f"select {_MARK}, manifest is not null from leftfold_builds where id = %s for no key update"


class PostgresStore:
    def __init__(self, url: str) -> None:
        self._address = Address(url)
        self._pool = Pool(self._address, writes=True)
        self._looked: dict[int, bytes] = {}  # by build: the entity up to which expired rows were looked for

    # The heart ---------------------------------------------------------------------------------------------------

    def announce(self, at: BuildPlace, manifest: str) -> None:
        def announce(cursor: Cursor) -> None:
            active, *_ = _lock_view(cursor, at.of)
            _know(cursor, at)
            cursor.execute("update leftfold_builds set manifest = %s where id = %s", (manifest.encode(), build_id(at)))
            if active is None and not _is_held(cursor, at):
                cursor.execute(f"update leftfold_views set active = %s where {_VIEW}", (at.build, *_of(at.of)))

        self._change(announce)

    def claim(self, at: BuildPlace, batch: int | None) -> StorePosition:
        def claim(cursor: Cursor) -> StorePosition:
            found = cursor.execute(_LOCK, (build_id(at),)).fetchone()
            there = _position(found)
            if batch is None or there.batch in (batch, batch - 1):
                _know(cursor, at)
                cursor.execute("delete from leftfold_calls where build = %s", (build_id(at),))
            return there

        return self._change(claim)

    def rows(
        self, at: BuildPlace, rows: Iterable[FramedRow], ttl_s: int, *, packs: Definition | None, repairs: bool
    ) -> tuple[int, Sequence[Calls]]:
        return writing.write(self._pool, at, rows, ttl_s, packs=packs, repairs=repairs)

    def move(self, at: BuildPlace, to: Move, calls: Sequence[Calls]) -> Moved:
        def move(cursor: Cursor) -> Moved:
            found = cursor.execute(_LOCK, (build_id(at),)).fetchone()
            if found is None and isinstance(to, MoveMark) and to.repaired:
                _know(cursor, at)
                found = cursor.execute(_LOCK, (build_id(at),)).fetchone()
            return _moved(cursor, at, to, calls, found)

        return self._change(move)

    def mark(self, at: BuildPlace) -> dict[bytes, bytes]:
        found = self._select(f"select {_MARK} from leftfold_builds where id = %s", (build_id(at),))
        return mark_of(*found[0]) if found else {}

    def position(self, at: BuildPlace) -> StorePosition:
        found = self._select(f"select {_MARK} from leftfold_builds where id = %s", (build_id(at),))
        return _position(found[0] if found else None)

    # Builds and readers ------------------------------------------------------------------------------------------

    def manifest(self, at: BuildPlace) -> bytes | None:
        found = self._select("select manifest from leftfold_builds where id = %s", (build_id(at),))
        return found[0][0] if found else None

    def builds(self, at: ViewPlace) -> Builds:
        found = self._select(
            "select null, active, staged, previous, previous_until, null, null from leftfold_views "
            f"where {_VIEW} union all "
            f"select build, null, null, null, kept_until, held, known from leftfold_builds where {_VIEW}",
            (*_of(at), *_of(at)),
        )
        active = staged = previous = None
        until = 0
        left: dict[str, int] = {}
        held, known = set[str](), set[str]()
        for build, *rest in found:
            if build is None:
                active, staged, previous, until, *_ = rest
                continue
            *_, kept_until, is_held, is_known = rest
            if kept_until is not None:
                left[build] = kept_until
            held.update([build] if is_held else [])
            known.update([build] if is_known else [])
        return Builds(
            active, staged, None if previous is None else (previous, until), left, frozenset(held), frozenset(known)
        )

    def activate(self, at: BuildPlace, until: int) -> bool:
        def activate(cursor: Cursor) -> bool:
            active, *_ = _lock_view(cursor, at.of)
            if _is_held(cursor, at):
                return False
            if active != at.build:
                if active is not None:
                    _leave(cursor, at.of.build(active), until)
                _follow(cursor, at)
            return True

        return self._change(activate)

    def stage(self, at: BuildPlace, *, anew: bool) -> None:
        def stage(cursor: Cursor) -> None:
            active, *_ = _lock_view(cursor, at.of)
            _know(cursor, at)
            if active == at.build:
                return
            was_held = _is_held(cursor, at)
            _hold(cursor, at)
            if anew or not was_held:
                cursor.execute(f"update leftfold_views set staged = %s where {_VIEW}", (at.build, *_of(at.of)))

        self._change(stage)

    def hold(self, at: BuildPlace) -> None:
        def hold(cursor: Cursor) -> None:
            _lock_view(cursor, at.of)
            _know(cursor, at)
            _hold(cursor, at)

        self._change(hold)

    def promote(self, at: ViewPlace, staged: str, followed: str, until: int) -> bool:
        def promote(cursor: Cursor) -> bool:
            active, waiting, *_ = _lock_view(cursor, at)
            if waiting != staged or (active or "") != followed:
                return False
            cursor.execute(
                f"update leftfold_views set staged = null, previous = null, previous_until = null where {_VIEW}",
                _of(at),
            )
            if followed:
                _leave(cursor, at.build(followed), until)
                _hold(cursor, at.build(followed))
            _follow(cursor, at.build(staged))
            return True

        return self._change(promote)

    def roll_back(self, at: ViewPlace, previous: str, followed: str) -> bool:
        def roll_back(cursor: Cursor) -> bool:
            active, _, before, _ = _lock_view(cursor, at)
            if before != previous or active != followed:
                return False
            _hold(cursor, at.build(followed))
            _follow(cursor, at.build(previous))
            cursor.execute(
                f"update leftfold_views set staged = %s, previous = null, previous_until = null where {_VIEW}",
                (followed, *_of(at)),
            )
            return True

        return self._change(roll_back)

    def beat(self, at: BuildPlace, seconds: int) -> None:
        """Record it, and look at some more rows of the build for expired ones."""

        def beat(cursor: Cursor) -> None:
            cursor.execute(
                "update leftfold_builds set running_until = now() + make_interval(secs => %s) "
                "where id = %s and not retired",
                (seconds, build_id(at)),
            )

        self._change(beat)
        self.remove_expired(at)

    def remove_expired(self, at: BuildPlace) -> int:
        """Remove expired rows among the next ones of a build, and return how many. After the last row it begins anew.

        Readers leave them out anyway, so nobody waits for this.
        """
        build = build_id(at)
        after = self._looked.get(build, b"")

        def remove(cursor: Cursor) -> int:
            looked = cursor.execute(
                "select entity from leftfold_rows where build = %s and entity > %s order by entity limit %s",
                (build, after, _LOOKED_AT),
            ).fetchall()
            self._looked[build] = looked[-1][0] if len(looked) == _LOOKED_AT else b""
            # Rows that a writer has locked are left: they are about to be written.
            return cursor.execute(
                "delete from leftfold_rows where build = %s and entity = any(array(select entity from leftfold_rows "
                "where build = %s and entity = any(%b::bytea[]) and expires <= now() for update skip locked))",
                (build, build, [entity for (entity,) in looked]),
            ).rowcount

        return self._change(remove)

    def rest(self, at: BuildPlace) -> None:
        self._change(
            lambda cursor: cursor.execute(
                "update leftfold_builds set running_until = null where id = %s", (build_id(at),)
            ).close()
        )

    def is_running(self, at: BuildPlace) -> bool:
        found = self._select("select running_until > now() from leftfold_builds where id = %s", (build_id(at),))
        return bool(found and found[0][0])

    def retire(self, at: BuildPlace, now: int) -> str:
        def retire(cursor: Cursor) -> str:
            active, staged, previous, _ = _lock_view(cursor, at.of)
            if at.build in (active, staged):
                return "followed" if at.build == active else "staged"
            found = cursor.execute(
                "select coalesce(running_until > now(), false), coalesce(kept_until, 0) from leftfold_builds "
                "where id = %s for update",
                (build_id(at),),
            ).fetchone()
            if found is not None and (found[0] or found[1] > now):
                return "running" if found[0] else "kept"
            if previous == at.build:
                cursor.execute(
                    f"update leftfold_views set previous = null, previous_until = null where {_VIEW}", _of(at.of)
                )
            cursor.execute(
                "update leftfold_builds set retired = true, manifest = null, batch = null, newest = null, "
                "redriven = null, history = null, ledger = null, kept_until = null, running_until = null where id = %s",
                (build_id(at),),
            )
            cursor.execute("delete from leftfold_calls where build = %s", (build_id(at),))
            return ""

        return self._change(retire)

    def erase(self, at: BuildPlace) -> None:
        build, after = build_id(at), b""

        def erase(cursor: Cursor) -> bytes | None:
            gone = cursor.execute(
                "delete from leftfold_rows where build = %s and entity = any(array(select entity from leftfold_rows "
                "where build = %s and entity >= %s order by entity limit %s)) returning entity",
                (build, build, after, _REMOVED_AT_ONCE),
            ).fetchall()
            return max(entity for (entity,) in gone) if gone else None

        while (last := self._change(erase)) is not None:
            after = last

    def forget(self, at: BuildPlace) -> None:
        self._change(
            lambda cursor: cursor.execute("delete from leftfold_builds where id = %s", (build_id(at),)).close()
        )

    def publish(self, namespace: str, vectors: Mapping[str, str]) -> None:
        def publish(cursor: Cursor) -> None:
            for name, document in sorted(vectors.items()):
                cursor.execute(
                    "insert into leftfold_vectors (namespace, name, document) values (%s, %s, %s) "
                    "on conflict (namespace, name) do update set document = excluded.document",
                    (namespace, name, document.encode()),
                )

        self._change(publish)

    # Leases ------------------------------------------------------------------------------------------------------

    def take(self, namespace: str, what: str, holder: str, seconds: int, *, instead_of: str | None = None) -> bool:
        def take(cursor: Cursor) -> bool:
            if instead_of is not None:
                cursor.execute(
                    "update leftfold_leases set holder = %s, until = now() + make_interval(secs => %s) "
                    "where namespace = %s and what = %s and holder = %s",
                    (holder, seconds, namespace, what, instead_of),
                )
            else:
                cursor.execute(
                    "insert into leftfold_leases (namespace, what, holder, until) "
                    "values (%s, %s, %s, now() + make_interval(secs => %s)) on conflict (namespace, what) do update "
                    "set holder = excluded.holder, until = excluded.until where leftfold_leases.until <= now()",
                    (namespace, what, holder, seconds),
                )
            return bool(cursor.rowcount)

        return self._change(take)

    def holder(self, namespace: str, what: str) -> tuple[str, int]:
        found = self._select(
            "select holder, ceil(extract(epoch from until - now()))::bigint from leftfold_leases "
            "where namespace = %s and what = %s and until > now()",
            (namespace, what),
        )
        return found[0] if found else ("", 0)

    def renew(self, namespace: str, what: str, holder: str, seconds: int) -> bool:
        return self._change(
            lambda cursor: bool(
                cursor.execute(
                    "update leftfold_leases set until = now() + make_interval(secs => %s) "
                    "where namespace = %s and what = %s and holder = %s and until > now()",
                    (seconds, namespace, what, holder),
                ).rowcount
            )
        )

    def release(self, namespace: str, what: str, holder: str) -> None:
        self._change(
            lambda cursor: cursor.execute(
                "delete from leftfold_leases where namespace = %s and what = %s and holder = %s",
                (namespace, what, holder),
            ).close()
        )

    # The server --------------------------------------------------------------------------------------------------

    def memory(self) -> None:
        """Return nothing: rows are on disk, and nothing is evicted."""

    def footprint(self, namespace: str) -> None:
        """Return nothing: rows are on disk."""

    def writing_s(self) -> None:
        """Return nothing: Postgres does not tell without an extension."""

    def remove_namespace(self, namespace: str) -> None:
        assert namespace, "without a namespace this would be everything"
        builds = self._select("select view, build from leftfold_builds where namespace = %s", (namespace,))
        for view, build in builds:
            self.erase(BuildPlace(namespace, view, build))

        def remove(cursor: Cursor) -> None:
            ours = [build_id(BuildPlace(namespace, view, build)) for view, build in builds]
            cursor.execute("delete from leftfold_calls where build = any(%s)", (ours,))
            for table in ("builds", "views", "vectors", "leases"):
                delete = sql.SQL("delete from {} where namespace = %s").format(sql.Identifier(f"leftfold_{table}"))
                cursor.execute(delete, (namespace,))

        self._change(remove)

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _change(self, work: Callable[[Cursor], T]) -> T:
        """Do something in one transaction. If there are no tables yet, they are made first."""
        try:
            return self._pool.transact(work)
        except StoreError as error:
            if not lacks_tables(error.__cause__):
                raise
        create_tables(self._pool, self._address)
        return self._pool.transact(work)

    def _select(self, query: LiteralString, values: Sequence[Any]) -> list[Any]:
        """Ask something. A store without tables is an empty store."""
        try:
            return self._pool.run(lambda connection: connection.execute(query, values, binary=True).fetchall())
        except StoreError as error:
            if not lacks_tables(error.__cause__):
                raise
        self._pool.refuse_hidden()
        return []


def _of(at: ViewPlace) -> tuple[str, str]:
    return at.namespace, at.view


def _lock_view(cursor: Cursor, at: ViewPlace) -> tuple[str | None, str | None, str | None, int | None]:
    """Lock a view's row, and return its active, its staged and its previous build, and until when that is kept."""
    cursor.execute("insert into leftfold_views (namespace, view) values (%s, %s) on conflict do nothing", _of(at))
    found: Any = cursor.execute(
        f"select active, staged, previous, previous_until from leftfold_views where {_VIEW} for update", _of(at)
    ).fetchone()
    active, staged, previous, until = found
    return active, staged, previous, until


def _know(cursor: Cursor, at: BuildPlace) -> None:
    """Make the row of a build, if there is none, or if the build was removed."""
    cursor.execute(
        "insert into leftfold_builds (id, namespace, view, build, known) values (%s, %s, %s, %s, true) "
        "on conflict (id) do update set known = true, retired = false "
        "where not leftfold_builds.known or leftfold_builds.retired",
        (build_id(at), *_of(at.of), at.build),
    )


def _is_held(cursor: Cursor, at: BuildPlace) -> bool:
    found = cursor.execute("select held from leftfold_builds where id = %s", (build_id(at),)).fetchone()
    return bool(found and found[0])


def _hold(cursor: Cursor, at: BuildPlace) -> None:
    cursor.execute("update leftfold_builds set held = true where id = %s", (build_id(at),))


def _follow(cursor: Cursor, at: BuildPlace) -> None:
    cursor.execute(f"update leftfold_views set active = %s where {_VIEW}", (at.build, *_of(at.of)))
    cursor.execute("update leftfold_builds set held = false, kept_until = null where id = %s", (build_id(at),))


def _leave(cursor: Cursor, at: BuildPlace, until: int) -> None:
    """Keep a build that readers are moved away from."""
    cursor.execute(
        f"update leftfold_views set previous = %s, previous_until = %s where {_VIEW}", (at.build, until, *_of(at.of))
    )
    cursor.execute("update leftfold_builds set kept_until = %s where id = %s", (until, build_id(at)))


def _position(found: Sequence[Any] | None) -> StorePosition:
    batch, _, redriven, *_ = found or (None, None, None)
    return StorePosition(-1 if batch is None else batch, redriven or 0)


def _moved(
    cursor: Cursor,
    at: BuildPlace,
    to: Move,
    calls: Sequence[Calls],
    found: Sequence[Any] | None,
) -> Moved:
    """Move the mark of a build whose row is locked, if it is there, by the rules of `leftfold.store.redis.scripts`."""
    if isinstance(to, EndOfScan):
        moved = Moved(0, "") if found is not None and _all_counted(cursor, at, calls) else Moved(-1, "scanned")
        change: dict[str, Any] = {"history": to.history}
    elif isinstance(to, MoveRedriven):
        moved, change = _redriven(cursor, at, to, calls, _position(found)), {"redriven": to.until}
    else:
        moved, change = _marked(cursor, at, to, calls, found)
    there = to.batch if isinstance(to, MoveMark | MoveRedriven) else 0
    if not moved.missing and moved.batch == there:
        for column, value in change.items():
            update = sql.SQL("update leftfold_builds set {} = %s where id = %s").format(sql.Identifier(column))
            cursor.execute(update, (value, build_id(at)))
        cursor.execute("delete from leftfold_calls where build = %s", (build_id(at),))
    return moved


def _redriven(cursor: Cursor, at: BuildPlace, to: MoveRedriven, calls: Sequence[Calls], there: StorePosition) -> Moved:
    if there.batch < to.batch or (there.batch == to.batch and there.redriven < to.since):
        return Moved(there.batch, "redriven")
    is_short = there.batch == to.batch and not _all_counted(cursor, at, calls)
    return Moved(there.batch, "rows" if is_short else "")


def _marked(
    cursor: Cursor, at: BuildPlace, to: MoveMark, calls: Sequence[Calls], found: Sequence[Any] | None
) -> tuple[Moved, dict[str, Any]]:
    """Return where the mark is after a move, and the columns that the move changes."""
    there = _position(found)
    if there.batch > to.batch or (there.batch < to.batch - 1 and not to.repaired):
        return Moved(there.batch, ""), {}
    _, newest, _, history, ledger, is_announced = found or (None, None, None, None, None, False)
    missing = ""
    if there.batch < to.batch and not _all_counted(cursor, at, calls):
        missing = "rows"
    elif to.repaired:
        newest, history, ledger = 0, None, None
    elif there.redriven < to.redriven:
        missing = "redriven"
    elif to.history and history is None:
        missing = "history"
    elif not is_announced:
        missing = "manifest"
    if missing:
        return Moved(there.batch, missing), {}
    entries = {name.encode(): entry.encode() for name, entry in to.entries.items()}
    return Moved(to.batch, ""), {
        "batch": to.batch,
        "newest": max(newest or 0, to.newest),
        "redriven": to.redriven if to.repaired else there.redriven,
        "history": to.history or history,
        "ledger": encoded((decoded(ledger) if ledger is not None else {}) | entries),
    }


def _all_counted(cursor: Cursor, at: BuildPlace, calls: Sequence[Calls]) -> bool:
    """Return whether every call of these writers is counted.

    Postgres goes back in time as a whole, to what some commit left. So if the last call of a writer is counted, all its
    rows are there.
    """
    counted = dict(
        cursor.execute(
            "select writer, calls from leftfold_calls where build = %s and writer = any(%s)",
            (build_id(at), [one.writer for one in calls]),
        ).fetchall()
    )
    return all(counted.get(one.writer) == one.count for one in calls)
