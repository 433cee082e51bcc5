"""One Redis as a store: each verb is a script, which Redis runs as a whole, or a command or two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, Self

import redis

from leftfold.fold.definition import Definition
from leftfold.store.engine import (
    BuildPlace,
    Builds,
    Calls,
    EndOfScan,
    Footprint,
    FramedRow,
    MemoryInUse,
    Move,
    Moved,
    MoveRedriven,
    StorePosition,
    ViewPlace,
)
from leftfold.store.layout import REDRIVEN
from leftfold.store.redis import figures
from leftfold.store.redis import rows as writing
from leftfold.store.redis.client import connect, reaching
from leftfold.store.redis.names import lease_name, names_of, row_key, vector_name
from leftfold.store.redis.scripts import (
    ACTIVATE,
    ANNOUNCE,
    BEGIN_BATCH,
    FORGET,
    LEASE_RELEASE,
    LEASE_RENEW,
    LEASE_REPLACE,
    MOVE_MARK,
    MOVE_REDRIVEN,
    PROMOTE,
    ROLL_BACK,
    STAGE,
    TELL_HISTORY,
)

# Keys that Redis scans or frees at once: this takes about a millisecond, and readers wait for it.
_SCANNED_AT_ONCE = 1_000


class RedisStore:
    def __init__(self, url: str) -> None:
        self._client = connect(url)

    # The heart ---------------------------------------------------------------------------------------------------

    def announce(self, at: BuildPlace, manifest: str) -> None:
        names = names_of(at)
        self._eval(ANNOUNCE, (names.manifest(at.build), names.active, names.held, names.builds), at.build, manifest)

    def claim(self, at: BuildPlace, batch: int | None) -> StorePosition:
        names = names_of(at)
        keys = (names.mark(at.build), names.calls(at.build))
        found, redriven = self._eval(BEGIN_BATCH, keys, "" if batch is None else batch)
        return StorePosition(int(found), int(redriven))

    def rows(
        self, at: BuildPlace, rows: Iterable[FramedRow], ttl_s: int, *, packs: Definition | None, repairs: bool
    ) -> tuple[int, Calls]:
        with reaching(self._client):
            return writing.write(self._client, at, rows, ttl_s, packs=packs, repairs=repairs)

    def move(self, at: BuildPlace, to: Move, calls: Sequence[Calls]) -> Moved:
        counted = (len(calls), *(argument for one in calls for argument in (one.writer, one.count)))
        if isinstance(to, MoveRedriven):
            return self._moved(at, MOVE_REDRIVEN, to.batch, to.since, to.until, *counted)
        if isinstance(to, EndOfScan):
            return self._moved(at, TELL_HISTORY, to.history, *counted)
        how = "repaired" if to.repaired else "next"
        entries = (text for entry in to.entries.items() for text in entry)
        return self._moved(at, MOVE_MARK, to.batch, how, to.redriven, to.history or "", to.newest, *counted, *entries)

    def _moved(self, at: BuildPlace, script: str, *arguments: str | int) -> Moved:
        names = names_of(at)
        keys = (names.mark(at.build), names.calls(at.build), names.manifest(at.build))
        batch, missing = self._eval(script, keys, *arguments)
        return Moved(int(batch), missing.decode())

    def mark(self, at: BuildPlace) -> dict[bytes, bytes]:
        with self._reached() as client:
            return dict(client.hgetall(names_of(at).mark(at.build)))

    def position(self, at: BuildPlace) -> StorePosition:
        with self._reached() as client:
            batch, redriven = client.hmget(names_of(at).mark(at.build), "batch", REDRIVEN)
        return StorePosition(int(batch or -1), int(redriven or 0))

    # Builds and readers ------------------------------------------------------------------------------------------

    def manifest(self, at: BuildPlace) -> bytes | None:
        with self._reached() as client:
            found: bytes | None = client.get(names_of(at).manifest(at.build))
        return found

    def builds(self, at: ViewPlace) -> Builds:
        names = names_of(at)
        with self._reached() as client:
            pipeline = client.pipeline(transaction=True)  # a transaction: all values are from one moment
            pipeline.get(names.active)
            pipeline.get(names.staged)
            pipeline.hgetall(names.previous)
            pipeline.hgetall(names.left)
            pipeline.smembers(names.held)
            pipeline.smembers(names.builds)
            active, staged, previous, left, held, known = pipeline.execute()
        return Builds(
            active and active.decode(),
            staged and staged.decode(),
            (previous[b"build"].decode(), int(previous[b"until"])) if previous else None,
            {build.decode(): int(until) for build, until in left.items()},
            frozenset(build.decode() for build in held),
            frozenset(build.decode() for build in known),
        )

    def activate(self, at: BuildPlace, until: int) -> bool:
        names = names_of(at)
        return bool(self._eval(ACTIVATE, (names.active, names.held, names.previous, names.left), at.build, until))

    def stage(self, at: BuildPlace, *, anew: bool) -> None:
        names = names_of(at)
        self._eval(STAGE, (names.staged, names.held, names.builds, names.active), at.build, int(anew))

    def hold(self, at: BuildPlace) -> None:
        with self._reached() as client:
            client.sadd(names_of(at).held, at.build)

    def promote(self, at: ViewPlace, staged: str, followed: str, until: int) -> bool:
        return bool(self._eval(PROMOTE, self._moving(at), staged, followed, until))

    def roll_back(self, at: ViewPlace, previous: str, followed: str) -> bool:
        return bool(self._eval(ROLL_BACK, self._moving(at), previous, followed))

    def _moving(self, at: ViewPlace) -> tuple[str, ...]:
        names = names_of(at)
        return names.active, names.staged, names.previous, names.held, names.left

    def beat(self, at: BuildPlace, seconds: int) -> None:
        with self._reached() as client:
            client.set(names_of(at).running(at.build), 1, ex=seconds)

    def rest(self, at: BuildPlace) -> None:
        with self._reached() as client:
            client.delete(names_of(at).running(at.build))

    def is_running(self, at: BuildPlace) -> bool:
        with self._reached() as client:
            return bool(client.exists(names_of(at).running(at.build)))

    def retire(self, at: BuildPlace, now: int) -> str:
        names, build = names_of(at), at.build
        shared = (names.active, names.staged, names.previous, names.left)
        own = (names.running(build), names.manifest(build), names.mark(build), names.calls(build))
        role: bytes = self._eval(FORGET, (*shared, *own), build, now)
        return role.decode()

    def erase(self, at: BuildPlace) -> None:
        self._unlink(_escaped(row_key(at, "")) + "*")

    def forget(self, at: BuildPlace) -> None:
        names = names_of(at)
        with self._reached() as client:
            pipeline = client.pipeline(transaction=True)
            pipeline.srem(names.held, at.build)
            pipeline.srem(names.builds, at.build)
            pipeline.execute()

    def publish(self, namespace: str, vectors: Mapping[str, str]) -> None:
        with self._reached() as client:
            for name, document in vectors.items():
                client.set(vector_name(namespace, name), document)

    # Leases ------------------------------------------------------------------------------------------------------

    def take(self, namespace: str, what: str, holder: str, seconds: int, *, instead_of: str | None = None) -> bool:
        key = lease_name(namespace, what)
        if instead_of is not None:
            return bool(self._eval(LEASE_REPLACE, (key,), instead_of, holder, seconds))
        with self._reached() as client:
            return bool(client.set(key, holder, nx=True, ex=seconds))

    def holder(self, namespace: str, what: str) -> tuple[str, int]:
        key = lease_name(namespace, what)
        with self._reached() as client:
            return (client.get(key) or b"").decode(), int(client.ttl(key))

    def renew(self, namespace: str, what: str, holder: str, seconds: int) -> bool:
        return bool(self._eval(LEASE_RENEW, (lease_name(namespace, what),), holder, seconds))

    def release(self, namespace: str, what: str, holder: str) -> None:
        self._eval(LEASE_RELEASE, (lease_name(namespace, what),), holder)

    # The server --------------------------------------------------------------------------------------------------

    def memory(self) -> MemoryInUse | None:
        """A server may hide its settings, but INFO mostly shows these."""
        with self._reached() as client:
            try:
                info: dict[str, Any] = client.info("memory")
            except redis.ResponseError:  # this user may not run the command
                return None
        if not {"used_memory", "maxmemory", "maxmemory_policy"} <= info.keys():
            return None
        return MemoryInUse(int(info["used_memory"]), int(info["maxmemory"]), str(info["maxmemory_policy"]))

    def footprint(self, namespace: str) -> Footprint:
        with self._reached() as client:
            return figures.measured(client, namespace)

    def writing_s(self) -> float:
        """Return the time of scripts: Redis runs one at a time, and every write of rows is a script."""
        with self._reached() as client:
            stats = client.info("commandstats").get("cmdstat_evalsha", {})
        return float(stats.get("usec", 0)) / 1e6

    def remove_namespace(self, namespace: str) -> None:
        assert namespace, "without a namespace this would be everything"
        self._unlink(_escaped(f"lf:{namespace}:") + "*")

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _eval(self, script: str, keys: Sequence[str], *arguments: str | int) -> Any:
        with reaching(self._client):
            return self._client.eval(script, len(keys), *keys, *arguments)

    @contextmanager
    def _reached(self) -> Iterator[Any]:
        with reaching(self._client):
            yield self._client

    def _unlink(self, pattern: str) -> None:
        with self._reached() as client:
            for chunk in _chunks(client.scan_iter(match=pattern, count=_SCANNED_AT_ONCE)):
                client.unlink(*chunk)


def _chunks(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    waiting = iter(keys)
    while chunk := list(islice(waiting, _SCANNED_AT_ONCE)):
        yield chunk


def _escaped(text: str) -> str:
    """Escape a text so that Redis takes it literally in a pattern."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in text)
