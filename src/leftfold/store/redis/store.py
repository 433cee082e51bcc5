"""One Redis as a store: each verb is a script, which Redis runs as a whole, or a command or two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from leftfold.store.redis.client import connect
from leftfold.store.redis.link import Link, Single, command, evaluated
from leftfold.store.redis.names import Names, lease_name, names_of, row_key, vector_name
from leftfold.store.redis.scripts import (
    ACTIVATE,
    ANNOUNCE,
    BEGIN_BATCH,
    BUILDS,
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
SCANNED_AT_ONCE = 1_000
SAFE_POLICY = "noeviction"  # at the limit a write is refused; any other policy loses rows


class RedisStore:
    """A store behind a link. All that is here lies in one place, so a script can use any of it together."""

    def __init__(self, url: str) -> None:
        self._link: Link = Single(connect(url))

    # The heart ---------------------------------------------------------------------------------------------------

    def announce(self, at: BuildPlace, manifest: str) -> None:
        names = self._names(at)
        self._eval(ANNOUNCE, (names.manifest(at.build), names.active, names.held, names.builds), at.build, manifest)

    def claim(self, at: BuildPlace, batch: int | None) -> StorePosition:
        found, redriven = self._eval(BEGIN_BATCH, self._marked(at), "" if batch is None else batch)
        return StorePosition(int(found), int(redriven))

    def rows(
        self, at: BuildPlace, rows: Iterable[FramedRow], ttl_s: int, *, packs: Definition | None, repairs: bool
    ) -> tuple[int, Sequence[Calls]]:
        return writing.write(self._link, at, rows, ttl_s, packs=packs, repairs=repairs)

    def move(self, at: BuildPlace, to: Move, calls: Sequence[Calls]) -> Moved:
        script, arguments = moving(to, calls, entries=True)
        batch, missing = self._eval(script, (*self._marked(at), self._names(at).manifest(at.build)), *arguments)
        return Moved(int(batch), missing.decode())

    def mark(self, at: BuildPlace) -> dict[bytes, bytes]:
        return self._hash(self._names(at).mark(at.build))

    def position(self, at: BuildPlace) -> StorePosition:
        batch, redriven = self._ask("HMGET", self._names(at).mark(at.build), "batch", REDRIVEN)
        return StorePosition(int(batch or -1), int(redriven or 0))

    # Builds and readers ------------------------------------------------------------------------------------------

    def manifest(self, at: BuildPlace) -> bytes | None:
        found: bytes | None = self._ask("GET", self._names(at).manifest(at.build))
        return found

    def builds(self, at: ViewPlace) -> Builds:
        names = self._names(at)
        keys = (names.active, names.staged, names.previous, names.left, names.held, names.builds)
        active, staged, previous, left, held, known = self._eval(BUILDS, keys)
        last = _map(previous)
        return Builds(
            active and active.decode(),
            staged and staged.decode(),
            (last[b"build"].decode(), int(last[b"until"])) if last else None,
            {build.decode(): int(until) for build, until in _map(left).items()},
            frozenset(build.decode() for build in held),
            frozenset(build.decode() for build in known),
        )

    def activate(self, at: BuildPlace, until: int) -> bool:
        names = self._names(at)
        return bool(self._eval(ACTIVATE, (names.active, names.held, names.previous, names.left), at.build, until))

    def stage(self, at: BuildPlace, *, anew: bool) -> None:
        names = self._names(at)
        self._eval(STAGE, (names.staged, names.held, names.builds, names.active), at.build, int(anew))

    def hold(self, at: BuildPlace) -> None:
        self._ask("SADD", self._names(at).held, at.build)

    def promote(self, at: ViewPlace, staged: str, followed: str, until: int) -> bool:
        return bool(self._eval(PROMOTE, self._moving(at), staged, followed, until))

    def roll_back(self, at: ViewPlace, previous: str, followed: str) -> bool:
        return bool(self._eval(ROLL_BACK, self._moving(at), previous, followed))

    def _moving(self, at: ViewPlace) -> tuple[str, ...]:
        names = self._names(at)
        return names.active, names.staged, names.previous, names.held, names.left

    def beat(self, at: BuildPlace, seconds: int) -> None:
        self._ask("SET", self._names(at).running(at.build), 1, "EX", seconds)

    def rest(self, at: BuildPlace) -> None:
        self._ask("DEL", self._names(at).running(at.build))

    def is_running(self, at: BuildPlace) -> bool:
        return bool(self._ask("EXISTS", self._names(at).running(at.build)))

    def retire(self, at: BuildPlace, now: int) -> str:
        names, build = self._names(at), at.build
        shared = (names.active, names.staged, names.previous, names.left)
        own = (names.running(build), names.manifest(build), names.mark(build), names.calls(build))
        role: bytes = self._eval(FORGET, (*shared, *own), build, now)
        return role.decode()

    def erase(self, at: BuildPlace) -> None:
        self._unlink(row_key(at, ""))

    def forget(self, at: BuildPlace) -> None:
        names = self._names(at)
        # The list of builds comes last: as long as the build is in it, a plan continues to remove it.
        self._link.run([command("SREM", names.held, at.build), command("SREM", names.builds, at.build)])

    def publish(self, namespace: str, vectors: Mapping[str, str]) -> None:
        tag = self._tag(namespace)
        for name, document in vectors.items():
            self._ask("SET", vector_name(namespace, name, tag), document)

    # Leases ------------------------------------------------------------------------------------------------------

    def take(self, namespace: str, what: str, holder: str, seconds: int, *, instead_of: str | None = None) -> bool:
        key = self._lease(namespace, what)
        if instead_of is not None:
            return bool(self._eval(LEASE_REPLACE, (key,), instead_of, holder, seconds))
        return bool(self._ask("SET", key, holder, "NX", "EX", seconds))

    def holder(self, namespace: str, what: str) -> tuple[str, int]:
        key = self._lease(namespace, what)
        return (self._ask("GET", key) or b"").decode(), int(self._ask("TTL", key))

    def renew(self, namespace: str, what: str, holder: str, seconds: int) -> bool:
        return bool(self._eval(LEASE_RENEW, (self._lease(namespace, what),), holder, seconds))

    def release(self, namespace: str, what: str, holder: str) -> None:
        self._eval(LEASE_RELEASE, (self._lease(namespace, what),), holder)

    def _lease(self, namespace: str, what: str) -> str:
        return lease_name(namespace, what, self._tag(namespace))

    # The server --------------------------------------------------------------------------------------------------

    def memory(self) -> MemoryInUse | None:
        """A server may hide its settings, but INFO mostly shows these."""
        with self._link.reaching():
            try:
                told: list[dict[str, Any]] = [server.info("memory") for server in self._link.servers()]
            except redis.ResponseError:  # this user may not run the command
                return None
        if not all({"used_memory", "maxmemory", "maxmemory_policy"} <= info.keys() for info in told):
            return None
        limits = [int(info["maxmemory"]) for info in told]
        policies = sorted({str(info["maxmemory_policy"]) for info in told} - {SAFE_POLICY})
        used = sum(int(info["used_memory"]) for info in told)
        # A server without a limit has that of its machine, so then their sum is not known.
        return MemoryInUse(used, sum(limits) if all(limits) else 0, policies[0] if policies else SAFE_POLICY)

    def footprint(self, namespace: str) -> Footprint:
        with self._link.reaching():
            return figures.measured(self._link, namespace)

    def writing_s(self) -> float:
        """Return the time of scripts: Redis runs one at a time, and every write of rows is a script."""
        with self._link.reaching():
            told = [server.info("commandstats").get("cmdstat_evalsha", {}) for server in self._link.servers()]
        return sum(float(stats.get("usec", 0)) for stats in told) / 1e6

    def remove_namespace(self, namespace: str) -> None:
        assert namespace, "without a namespace this would be everything"
        self._unlink(f"lf:{namespace}:")

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tag(self, namespace: str) -> str:
        """Return the hash tag of all keys of a namespace except rows; empty without a cluster."""
        return ""

    def _names(self, at: ViewPlace | BuildPlace) -> Names:
        return names_of(at, self._tag(at.namespace))

    def _marked(self, at: BuildPlace) -> tuple[str, str]:
        names = self._names(at)
        return names.mark(at.build), names.calls(at.build)

    def _eval(self, script: str, keys: Sequence[str], *arguments: str | int) -> Any:
        (answer,) = self._link.run([evaluated(script, keys, *arguments)])
        return answer

    def _ask(self, verb: str, key: str, *arguments: str | int) -> Any:
        (answer,) = self._link.run([command(verb, key, *arguments)])
        return answer

    def _hash(self, key: str) -> dict[bytes, bytes]:
        return _map(self._ask("HGETALL", key))

    def _unlink(self, beginning: str) -> None:
        """Remove all keys that begin so."""
        with self._link.reaching():
            for server in self._link.servers():
                for chunk in chunks(server.scan_iter(match=escaped(beginning) + "*", count=SCANNED_AT_ONCE)):
                    server.unlink(*chunk)


def moving(to: Move, calls: Sequence[Calls], *, entries: bool) -> tuple[str, list[str | int]]:
    """Return the script that moves a mark, and its arguments; of a mark without a ledger without `entries`."""
    counted = [len(calls), *(argument for one in calls for argument in (one.writer, one.count))]
    if isinstance(to, MoveRedriven):
        return MOVE_REDRIVEN, [to.batch, to.since, to.until, *counted]
    if isinstance(to, EndOfScan):
        return TELL_HISTORY, [to.history, *counted]
    how = "repaired" if to.repaired else "next"
    ledger = [text for entry in to.entries.items() for text in entry] if entries else []
    return MOVE_MARK, [to.batch, how, to.redriven, to.history or "", to.newest, *counted, *ledger]


def _map(pairs: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(pairs[0::2], pairs[1::2], strict=True))


def chunks(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    waiting = iter(keys)
    while chunk := list(islice(waiting, SCANNED_AT_ONCE)):
        yield chunk


def escaped(text: str) -> str:
    """Escape a text so that Redis takes it literally in a pattern."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in text)
