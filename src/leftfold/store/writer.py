"""Writes a batch to the store: executors write the rows, the driver writes the mark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.vector import VectorDefinition
from leftfold.store.engine import BuildPlace, Calls, EndOfScan, FramedRow, Move, MoveMark, MoveRedriven, StorePosition
from leftfold.store.layout import WRITTEN, Build, LedgerRow, ledger_in, manifest, reached
from leftfold.store.opening import open_store

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


def write_rows(
    url: str,
    at: BuildPlace,
    rows: Iterable[FramedRow],
    ttl_s: int,
    *,
    packs: Definition | None = None,
    repairs: bool = False,
) -> tuple[int, Sequence[Calls]]:
    """Write rows of a build. Those of the definition `packs` that have many tiles as fields of their own are packed.

    Runs on executors.

    Returns how many tiles took effect, and the calls that each bucket has counted. The store's answer does not prove
    that the rows are still there when the batch is over. So the step that moves the mark compares the count. A repair
    `repairs`: its rows have all tiles that a read reaches, and may be of a batch that is older than packed ones.
    """
    with open_store(url) as store:
        return store.rows(at, rows, ttl_s, packs=packs, repairs=repairs)


def publish_vectors(url: str, namespace: str, vectors: Iterable[VectorDefinition]) -> None:
    """Publish the definitions of vectors, so that a reader needs no declarations."""
    with open_store(url) as store:
        store.publish(namespace, {vector.name: json.dumps(vector.as_json()) for vector in vectors})


class BuildWriter:
    """The driver's access to one build: its manifest, its mark, and which build readers follow."""

    def __init__(self, url: str, namespace: str, build: Build) -> None:
        self._store = open_store(url)
        self._build = build
        self.at = BuildPlace(namespace, build.definition.view, build.id)

    def announce(self) -> None:
        """Publish the manifest.

        A view's first build is followed at once, unless it is held for `promote`. A later build waits for `activate`.
        """
        self._store.announce(self.at, manifest(self._build))

    def activate(self) -> bool:
        """Make readers follow this build, unless it is held for `promote`. Returns whether they follow it.

        A build is held if it was staged, or if readers were moved away from it.
        """
        return self._store.activate(self.at, clock.now_us() + KEPT)

    def stage(self, *, anew: bool = False) -> None:
        """Make this build wait for `promote`. Another build that waited is no longer staged.

        A build that was staged or held before keeps its present state, unless it is staged `anew`. A build that readers
        follow is never staged.
        """
        self._store.stage(self.at, anew=anew)

    def hold(self) -> None:
        """Mark this build as one that readers were moved away from.

        It does not take readers over again by itself.
        """
        self._store.hold(self.at)

    def tell_history(self, calls: Iterable[Calls]) -> None:
        """Record that all rows that the scan of history makes are written."""
        self._move(0, EndOfScan(WRITTEN), calls)

    def beat(self) -> None:
        """Record that a process runs this build. For the next two minutes nobody removes it."""
        self._store.beat(self.at, RUNNING_S)

    def rest(self) -> None:
        """Record that no process runs this build any more."""
        self._store.rest(self.at)

    def followed(self) -> str | None:
        """Return the build that readers follow; None if there is none."""
        return self._store.builds(self.at.of).active

    def ledger(self) -> tuple[int, list[LedgerRow]]:
        """Return this build's last applied batch, and the ledger of every partition and outcome so far."""
        return ledger_in(self._store.mark(self.at))

    def applied(self) -> int:
        """Return the last batch that all of the store holds, -1 if none."""
        return self._position().batch

    def behind(self, batch: int) -> frozenset[int]:
        """Return the buckets that lack a batch."""
        return self._position().behind(batch)

    def redriven(self) -> int:
        """Return up to which offset re-driven records have taken effect in this build."""
        return self._position().redriven

    def lacks(self, batch: int, redriven: int) -> bool:
        """Return whether the store has lost some of what it held: it is behind the batch or the re-driven offset."""
        position = self._position()
        return position.batch < batch or position.redriven < redriven

    def _position(self) -> StorePosition:
        return self._store.position(self.at)

    def check(self, batch: int, *, redriven: int = 0) -> None:
        """Check the store before a batch is written.

        It must hold exactly the batches before it, or this batch too, and all that was re-driven.
        """
        there = self._store.claim(self.at, batch)
        self._compare(batch, max(there.furthest, batch))
        self._compare(batch, there.batch)
        if there.redriven < redriven:
            raise self._went_back(batch, "redriven")

    def check_not_beyond(self, batch: int) -> None:
        """Raise if the store is ahead of the checkpoint. Called before a build continues.

        A store that is behind is accepted here, because it is repaired afterwards.
        """
        applied = self._position().furthest
        if applied > batch:
            self._compare(batch, applied)

    def begin_again(self) -> None:
        """Reset the counted calls before rows are written again outside of a batch.

        The calls that an earlier attempt made are of no use.
        """
        self._store.claim(self.at, None)

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
        self._move_mark(batch, ledger, calls, redriven, history)

    def restore(
        self,
        batch: int,
        ledger: Iterable[LedgerRow],
        calls: Iterable[Calls],
        *,
        buckets: frozenset[int],
        redriven: int,
        history: str | None,
    ) -> None:
        """Set marks that were behind to `batch`, after all rows of these buckets up to that batch were recomputed."""
        self._move_mark(batch, ledger, calls, redriven, history, repaired=buckets)

    def move_redriven(self, batch: int, calls: Iterable[Calls], *, since: int, until: int) -> None:
        """Record that records re-driven from `since` to `until` have taken effect, at this batch.

        Called after the rows that these records changed were written.
        """
        self._move(batch, MoveRedriven(batch, since, until), calls)

    def _move_mark(
        self,
        batch: int,
        ledger: Iterable[LedgerRow],
        calls: Iterable[Calls],
        redriven: int,
        history: str | None,
        *,
        repaired: frozenset[int] | None = None,
    ) -> None:
        rows = list(ledger)
        newest = reached(rows, self._build.definition.origins, clock.now_us())
        entries = {row.name: row.entry for row in rows}
        self._move(batch, MoveMark(batch, repaired is not None, redriven, history, newest, entries, repaired), calls)

    def _move(self, batch: int, to: Move, calls: Iterable[Calls]) -> None:
        # A writer without rows has made no calls, so the store does not know it.
        moved = self._store.move(self.at, to, [one for one in calls if one.count])
        if moved.missing == "history":
            raise self._history_lost()
        if moved.missing:
            raise self._went_back(batch, moved.missing)
        self._compare(batch, moved.batch)

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
            "min-replicas-to-write if it has replicas, and a Postgres needs synchronous_standby_names",
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
