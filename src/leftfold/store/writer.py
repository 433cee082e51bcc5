"""Writes of a batch: rows from executors, the mark from the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.fold.durations import SECOND
from leftfold.fold.vector import VectorDefinition
from leftfold.store.client import connect, reaching
from leftfold.store.layout import (
    ACCEPTED,
    HISTORY,
    PASSED,
    WRITTEN,
    Build,
    LedgerRow,
    Names,
    ledger_in,
    manifest,
    vector_name,
)
from leftfold.store.scripts import ACTIVATE, ANNOUNCE, MOVE_MARK, SET_BACK_MARK, STAGE, WRITE_ROWS

# Tiles per script call: long enough to be rid of the round trip, short enough (about a millisecond) not to be felt by
# readers, who wait while a script runs.
TILES_PER_CALL = 500
CALLS_PER_ROUND_TRIP = 16
# How long a build is kept that readers were moved away from, unless a person says otherwise: a day to notice.
KEPT = 86_400 * SECOND
# How long a build counts as running after its process last said so, which it does every few seconds.
RUNNING_S = 120


def write_rows(url: str, rows: Iterable[tuple[str, Sequence[str], Sequence[str]]], ttl_s: int) -> int:
    """Write (key, fields, values) of each row; returns how many tiles took effect. Runs on executors."""
    with connect(url) as client:
        script = client.script_load(WRITE_ROWS)
        pipeline = client.pipeline(transaction=False)
        written = pending = tiles = 0
        keys: list[str] = []
        arguments: list[str | int] = [ttl_s]
        for key, fields, values in rows:
            keys.append(key)
            arguments.append(len(fields))
            for pair in zip(fields, values, strict=True):
                arguments.extend(pair)
            tiles += len(fields)
            if tiles >= TILES_PER_CALL:
                pipeline.evalsha(script, len(keys), *keys, *arguments)
                keys, arguments, tiles, pending = [], [ttl_s], 0, pending + 1
                if pending == CALLS_PER_ROUND_TRIP:
                    written += sum(pipeline.execute())
                    pending = 0
        if keys:
            pipeline.evalsha(script, len(keys), *keys, *arguments)
        return int(written + sum(pipeline.execute()))


def publish_vectors(url: str, namespace: str, vectors: Iterable[VectorDefinition]) -> None:
    """So that a reader needs no declarations."""
    with connect(url) as client, reaching(client):
        for vector in vectors:
            client.set(vector_name(namespace, vector.name), json.dumps(vector.as_json()))


class BuildWriter:
    """The driver's hand on one build: its manifest, its mark, and which build readers follow."""

    def __init__(self, url: str, namespace: str, build: Build) -> None:
        self._client = connect(url)
        self._names = Names(namespace, build.definition.view)
        self._mark = self._names.mark(build.id)
        self._build = build
        self.row_prefix = self._names.row_prefix(build.id)

    def announce(self) -> None:
        """Publish the manifest. A view's first build is followed at once; a later one waits for `activate`."""
        names, build = self._names, self._build.id
        keys = (names.manifest(build), names.active, names.held, names.builds)
        with reaching(self._client):
            self._client.eval(ANNOUNCE, len(keys), *keys, build, manifest(self._build))

    def activate(self) -> bool:
        """Make readers follow this build, unless `promote` is to do that. Says whether they do."""
        keys = (self._names.active, self._names.held, self._names.previous, self._names.left)
        with reaching(self._client):
            return bool(self._client.eval(ACTIVATE, len(keys), *keys, self._build.id, clock.now_us() + KEPT))

    def stage(self, *, anew: bool = False) -> None:
        """From here on this build waits for `promote`; another one that waited is abandoned.

        A build that was staged before stays what it became since, unless it is staged `anew`.
        """
        names = self._names
        keys = (names.staged, names.held, names.builds, names.active)
        with reaching(self._client):
            self._client.eval(STAGE, len(keys), *keys, self._build.id, int(anew))

    def hold(self) -> None:
        """Readers were moved away from this build: it does not take them back by itself."""
        with reaching(self._client):
            self._client.sadd(self._names.held, self._build.id)

    def tell_history(self, *, passed: bool) -> None:
        """All rows that a scan of history makes are written; and the stream is past it, or not yet."""
        with reaching(self._client):
            self._client.hset(self._mark, HISTORY, PASSED if passed else WRITTEN)

    def has_history(self) -> bool:
        """Whether they are still there: a store that was emptied has lost this with them."""
        with reaching(self._client):
            return bool(self._client.hexists(self._mark, HISTORY))

    def beat(self) -> None:
        """Say that a process runs this build: while it does, nobody removes it."""
        with reaching(self._client):
            self._client.set(self._names.running(self._build.id), 1, ex=RUNNING_S)

    def rest(self) -> None:
        """No process runs it any more."""
        with reaching(self._client):
            self._client.delete(self._names.running(self._build.id))

    def followed(self) -> str | None:
        """The build that readers follow."""
        with reaching(self._client):
            found = self._client.get(self._names.active)
        return None if found is None else str(found.decode())

    def ledger(self) -> tuple[int, list[LedgerRow]]:
        """What this build had become before: its last applied batch, every partition and outcome so far."""
        with reaching(self._client):
            return ledger_in(self._client.hgetall(self._mark))

    def applied(self) -> int:
        """The last batch that the store holds, -1 if none."""
        with reaching(self._client):
            found = self._client.hget(self._mark, "batch")
        return -1 if found is None else int(found)

    def check(self, batch: int) -> None:
        """Before a batch is written: the store must hold exactly the batches before it."""
        self._compare(batch, self.applied())

    def check_not_beyond(self, batch: int) -> None:
        """Before a build goes on: the store may be behind, and is then repaired, but not ahead of its checkpoint."""
        found = self.applied()
        if found > batch:
            self._compare(batch, found)

    def mark(self, batch: int, ledger: Iterable[LedgerRow]) -> None:
        """After all rows of a batch are written: the batch counts as applied, with its ledger."""
        rows = list(ledger)
        newest = max((row.newest_event for row in rows if row.outcome == ACCEPTED), default=0)
        entries = [text for row in rows for text in (row.name, row.entry)]
        with reaching(self._client):
            found = self._client.eval(MOVE_MARK, 1, self._mark, batch, newest, *entries)
        self._compare(batch, int(found))

    def restore(self, batch: int, ledger: Iterable[LedgerRow]) -> None:
        """After all rows up to a batch were computed anew: a mark that was behind stands there now."""
        with reaching(self._client):
            self._client.eval(SET_BACK_MARK, 1, self._mark, batch)
        self.mark(batch, ledger)

    def _compare(self, batch: int, found: int) -> None:
        if found in (batch - 1, batch):
            return
        view = self._build.definition.view
        behind = found < batch
        raise StoreError(
            "store-behind" if behind else "store-ahead",
            f"{view}: the store holds batches up to {found}, the checkpoint continues with {batch}",
            why="the store lost data or was emptied"
            if behind
            else "the checkpoint is older than what was written: it was restored from a backup, or another run goes on",
            state="the batch was not written; readers see the store as it is",
            fix="leftfold run repairs it at its next start"
            if behind
            else f"leftfold run --fresh {view} reads the log again from its start into a new build",
            retriable=behind,
        )
