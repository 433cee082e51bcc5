"""Writes a batch to the store: executors write the rows, the driver writes the mark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.vector import VectorDefinition
from leftfold.store.client import connect, framed, reaching, run_scripts
from leftfold.store.layout import (
    REDRIVEN,
    WRITTEN,
    Build,
    LedgerRow,
    Names,
    ledger_in,
    manifest,
    reached,
    vector_name,
)
from leftfold.store.packer import FIELDS_AT_MOST, Packer
from leftfold.store.scripts import (
    ACTIVATE,
    ANNOUNCE,
    BEGIN_BATCH,
    MOVE_MARK,
    MOVE_REDRIVEN,
    STAGE,
    TELL_HISTORY,
    WRITE_ROWS,
)

# Tiles per script call: many enough that the round trip hardly counts, few enough (about a millisecond) that readers,
# who wait while a script runs, do not notice.
TILES_PER_CALL = 500
CALLS_PER_ROUND_TRIP = 16
_ANY_NUMBER = 1 << 31  # of fields of a row that is never packed
# How long a build is kept after readers were moved away from it, unless a user says otherwise: a day to notice a
# problem.
KEPT = 86_400 * SECOND
# How long a build counts as running after its process last said so. The process says so every few seconds.
RUNNING_S = 120
OLDER_CHECKPOINT = (
    "the checkpoint is older than the data already written: it was restored from a backup, or another run continued "
    "with a copy of it. To continue from it would overwrite newer values"
)


def newer_checkpoint(view: str) -> str:
    """Return the fix for a checkpoint that is older than the stores."""
    return (
        f"leftfold run --fresh {view} reads the log again from its start into a new build; or put the newest "
        "checkpoint back, or end the other run, then leftfold run"
    )


@dataclass(frozen=True)
class Calls:
    """The number of calls that one writer has sent.

    If the store has counted fewer calls of this writer, it has lost rows of it.
    """

    writer: str
    count: int


@dataclass(frozen=True)
class FramedRow:
    """A row with its tiles in the form in which they are sent: field, value, field, value, …"""

    key: str
    tiles: int
    frames: bytes | memoryview


def framed_row(key: str, fields: Sequence[str], values: Sequence[str]) -> FramedRow:
    texts = chain.from_iterable(zip(fields, values, strict=True))
    return FramedRow(key, len(fields), b"".join(framed(text.encode()) for text in texts))


def write_rows(
    url: str,
    rows: Iterable[FramedRow],
    ttl_s: int,
    *,
    calls: str,
    packs: Definition | None = None,
    repairs: bool = False,
) -> tuple[int, Calls]:
    """Write rows. Those of the definition `packs` that have many tiles as fields of their own are packed.

    Runs on executors.

    Returns how many tiles took effect, and the calls that the store has counted under the key `calls`. The store's
    answer does not prove that the rows are still there when the batch is over. So the step that moves the mark compares
    the count. A repair `repairs`: its rows have all tiles that a read reaches, and may be of a batch that is older than
    packed ones.
    """
    writer = uuid.uuid4().hex
    with connect(url) as client:
        opening = framed(b"EVALSHA") + framed(client.script_load(WRITE_ROWS).encode())
        counted, named = framed(calls.encode()), framed(writer.encode())
        numbers = (ttl_s, _ANY_NUMBER if packs is None else FIELDS_AT_MOST)
        options = b"".join(framed(b"%d" % number) for number in numbers) + framed(b"repair" if repairs else b"batch")
        written = count = 0
        packer = None if packs is None else Packer(packs, client)
        waiting = _calls_of(rows)
        while round_trip := list(islice(waiting, CALLS_PER_ROUND_TRIP)):
            commands: list[list[bytes | memoryview]] = []
            for some in round_trip:
                count += 1
                tiles = sum(row.tiles for row in some)
                pieces: list[bytes | memoryview] = [
                    b"*%d\r\n" % (9 + 2 * len(some) + 2 * tiles),
                    opening,
                    framed(b"%d" % (1 + len(some))),
                    counted,
                    *(framed(row.key.encode()) for row in some),
                    named,
                    framed(b"%d" % count),
                    options,
                ]
                for row in some:
                    pieces += (framed(b"%d" % row.tiles), row.frames)
                commands.append(pieces)
            for some, (tiles, *full) in zip(round_trip, run_scripts(client, commands), strict=True):
                written += tiles
                if packer is not None:
                    packer.add(some[number].key for number in full)
        if packer is not None:
            packer.finish()
        return written, Calls(writer, count)


def _calls_of(rows: Iterable[FramedRow]) -> Iterator[list[FramedRow]]:
    """Yield the rows of each call."""
    some: list[FramedRow] = []
    tiles = 0
    for row in rows:
        some.append(row)
        tiles += row.tiles
        if tiles >= TILES_PER_CALL:
            yield some
            some, tiles = [], 0
    if some:
        yield some


def publish_vectors(url: str, namespace: str, vectors: Iterable[VectorDefinition]) -> None:
    """Publish the definitions of vectors, so that a reader needs no declarations."""
    with connect(url) as client, reaching(client):
        for vector in vectors:
            client.set(vector_name(namespace, vector.name), json.dumps(vector.as_json()))


class BuildWriter:
    """The driver's access to one build: its manifest, its mark, and which build readers follow."""

    def __init__(self, url: str, namespace: str, build: Build) -> None:
        self._client = connect(url)
        self._names = Names(namespace, build.definition.view)
        self._mark = self._names.mark(build.id)
        self._build = build
        self.row_prefix = self._names.row_prefix(build.id)
        self.calls = self._names.calls(build.id)

    def announce(self) -> None:
        """Publish the manifest.

        A view's first build is followed at once, unless it is held for `promote`. A later build waits for `activate`.
        """
        names, build = self._names, self._build.id
        keys = (names.manifest(build), names.active, names.held, names.builds)
        with reaching(self._client):
            self._client.eval(ANNOUNCE, len(keys), *keys, build, manifest(self._build))

    def activate(self) -> bool:
        """Make readers follow this build, unless it is held for `promote`. Returns whether they follow it.

        A build is held if it was staged, or if readers were moved away from it.
        """
        keys = (self._names.active, self._names.held, self._names.previous, self._names.left)
        with reaching(self._client):
            return bool(self._client.eval(ACTIVATE, len(keys), *keys, self._build.id, clock.now_us() + KEPT))

    def stage(self, *, anew: bool = False) -> None:
        """Make this build wait for `promote`. Another build that waited is no longer staged.

        A build that was staged or held before keeps its present state, unless it is staged `anew`. A build that readers
        follow is never staged.
        """
        names = self._names
        keys = (names.staged, names.held, names.builds, names.active)
        with reaching(self._client):
            self._client.eval(STAGE, len(keys), *keys, self._build.id, int(anew))

    def hold(self) -> None:
        """Mark this build as one that readers were moved away from.

        It does not take readers over again by itself.
        """
        with reaching(self._client):
            self._client.sadd(self._names.held, self._build.id)

    def tell_history(self, calls: Iterable[Calls]) -> None:
        """Record that all rows that the scan of history makes are written."""
        self._moved(0, TELL_HISTORY, WRITTEN, *_counted(calls))

    def beat(self) -> None:
        """Record that a process runs this build. For the next two minutes nobody removes it."""
        with reaching(self._client):
            self._client.set(self._names.running(self._build.id), 1, ex=RUNNING_S)

    def rest(self) -> None:
        """Record that no process runs this build any more."""
        with reaching(self._client):
            self._client.delete(self._names.running(self._build.id))

    def followed(self) -> str | None:
        """Return the build that readers follow; None if there is none."""
        with reaching(self._client):
            active = self._client.get(self._names.active)
        return None if active is None else str(active.decode())

    def ledger(self) -> tuple[int, list[LedgerRow]]:
        """Return this build's last applied batch, and the ledger of every partition and outcome so far."""
        with reaching(self._client):
            return ledger_in(self._client.hgetall(self._mark))

    def applied(self) -> int:
        """Return the last batch that the store holds, -1 if none."""
        return self._position()[0]

    def redriven(self) -> int:
        """Return up to which offset re-driven records have taken effect in this build."""
        return self._position()[1]

    def lacks(self, batch: int, redriven: int) -> bool:
        """Return whether the store has lost some of what it held: it is behind the batch or the re-driven offset."""
        position = self._position()
        return position[0] < batch or position[1] < redriven

    def _position(self) -> tuple[int, int]:
        with reaching(self._client):
            batch, redriven = self._client.hmget(self._mark, "batch", REDRIVEN)
        return int(batch or -1), int(redriven or 0)

    def check(self, batch: int, *, redriven: int = 0) -> None:
        """Check the store before a batch is written.

        It must hold exactly the batches before it, or this batch too, and all that was re-driven.
        """
        with reaching(self._client):
            applied, there = self._client.eval(BEGIN_BATCH, 2, self._mark, self.calls, batch)
        self._compare(batch, int(applied))
        if int(there) < redriven:
            raise self._went_back(batch, "redriven")

    def check_not_beyond(self, batch: int) -> None:
        """Raise if the store is ahead of the checkpoint. Called before a build continues.

        A store that is behind is accepted here, because it is repaired afterwards.
        """
        applied = self.applied()
        if applied > batch:
            self._compare(batch, applied)

    def begin_again(self) -> None:
        """Reset the counted calls before rows are written again outside of a batch.

        The calls that an earlier attempt made are of no use.
        """
        with reaching(self._client):
            self._client.delete(self.calls)

    def mark(
        self,
        batch: int,
        ledger: Iterable[LedgerRow],
        calls: Iterable[Calls] = (),
        *,
        redriven: int = 0,
        history: str | None = None,
    ) -> None:
        """Mark a batch as applied, with its ledger, after all its rows are written.

        Raises if the store has lost any of these rows since, what was re-driven before, or the history that `history`
        names.
        """
        self._move_mark("next", batch, ledger, calls, redriven, history)

    def restore(
        self, batch: int, ledger: Iterable[LedgerRow], calls: Iterable[Calls], *, redriven: int, history: str | None
    ) -> None:
        """Set a mark that was behind to `batch`, after all rows up to that batch were recomputed."""
        self._move_mark("repaired", batch, ledger, calls, redriven, history)

    def move_redriven(self, batch: int, calls: Iterable[Calls], *, since: int, until: int) -> None:
        """Record that records re-driven from `since` to `until` have taken effect, at this batch.

        Called after the rows that these records changed were written.
        """
        self._moved(batch, MOVE_REDRIVEN, batch, since, until, *_counted(calls))

    def _move_mark(
        self,
        how: str,
        batch: int,
        ledger: Iterable[LedgerRow],
        calls: Iterable[Calls],
        redriven: int,
        history: str | None,
    ) -> None:
        rows = list(ledger)
        newest = reached(rows, self._build.definition.origins, clock.now_us())
        entries = [text for row in rows for text in (row.name, row.entry)]
        self._moved(batch, MOVE_MARK, batch, how, redriven, history or "", newest, *_counted(calls), *entries)

    def _moved(self, batch: int, script: str, *arguments: str | int) -> None:
        keys = (self._mark, self.calls, self._names.manifest(self._build.id))
        with reaching(self._client):
            applied, missing = self._client.eval(script, len(keys), *keys, *arguments)
        if missing == b"history":
            raise self._history_lost()
        if missing:
            raise self._went_back(batch, missing.decode())
        self._compare(batch, int(applied))

    def _went_back(self, batch: int, missing: str) -> StoreError:
        view = self._build.definition.view
        what = {
            "rows": f"rows of batch {batch} that it had acknowledged",
            "scanned": "rows of history that it had acknowledged",
            "redriven": "what re-driven records had changed",
            "manifest": "its description for readers",
        }[missing]
        scanned = missing == "scanned"
        return StoreError(
            "store-went-back",
            f"{view}: the store has lost {what}",
            why="it was restarted from a dump, or emptied, or a replica took over that did not have them yet",
            state="readers follow the build that they followed" if scanned else "the batch is written again, all of it",
            fix=f"leftfold rebuild {view} reads history once more"
            if scanned
            else "leftfold run writes it again by itself; a Redis that forgets often needs appendonly yes, and "
            "min-replicas-to-write if it has replicas",
            retriable=True,
        )

    def _history_lost(self) -> StoreError:
        """Return the error for lost rows of history.

        It occurs only before the first receipt: after that, a store that lost data is repaired.
        """
        view = self._build.definition.view
        return StoreError(
            "history-lost",
            f"{view}: the store no longer holds what the rebuild has read from history",
            why="it lost data, or was emptied, before the build's first batch was done",
            state="the batch is not committed; readers follow the build that they followed",
            fix=f"leftfold rebuild {view} --restart reads history once more",
        )

    def _compare(self, batch: int, applied: int) -> None:
        if applied in (batch - 1, batch):
            return
        view = self._build.definition.view
        behind = applied < batch
        raise StoreError(
            "store-behind" if behind else "store-ahead",
            f"{view}: the store has batches up to {applied}, and the checkpoint's next one is {batch}",
            why="the store lost data or was emptied" if behind else OLDER_CHECKPOINT,
            state="the batch was not written; readers see the store as it is",
            fix="leftfold run repairs it at its next start" if behind else newer_checkpoint(view),
            retriable=behind,
        )


def _counted(calls: Iterable[Calls]) -> list[str | int]:
    """Return the arguments of a script: the number of writers, and each writer with its calls.

    A writer without rows has made no calls and is left out.
    """
    counted = [one for one in calls if one.count]
    return [len(counted), *(argument for one in counted for argument in (one.writer, one.count))]
