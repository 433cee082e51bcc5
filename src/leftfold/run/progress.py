"""The progress of a running view, as plain values: for the live table, for JSON lines and for the summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from leftfold import clock
from leftfold.declare.acceptance import OUTCOMES
from leftfold.errors import LeftfoldError
from leftfold.store.layout import LedgerRow

# All states of a view.
STATES = ("starting", "reading history", "running", "repairing", "waiting", "caught up", "stopped", "failed")


@dataclass(frozen=True)
class NewestBatch:
    number: int
    tiles: int
    newest_log: int  # log time of its newest record, µs
    applied_at: int  # when readers could see it, µs

    @property
    def freshness_s(self) -> float:
        """Seconds that the newest record of the batch took from the log into the store."""
        return max(0.0, (self.applied_at - self.newest_log) / 1e6)


@dataclass(frozen=True)
class HistoryProgress:
    """The progress of a rebuild through history, in offsets."""

    done: int
    total: int
    seconds: float  # since the rebuild began

    @property
    def eta_s(self) -> float | None:
        """Seconds that the rest takes at the present pace; None until the first offsets are done."""
        return None if not self.done else self.seconds * (self.total - self.done) / self.done

    def as_json(self) -> dict[str, Any]:
        eta = self.eta_s
        return {"done": self.done, "total": self.total, "eta_s": None if eta is None else round(eta, 1)}


@dataclass(frozen=True)
class Failing:
    """A row of failures of a query that is retried. It ends when a batch is applied, or when there is none to apply."""

    tries: int  # failed tries in a row
    since: float  # time of the first of them, seconds since 1970
    due: float  # time of the next try, by `clock.monotonic`

    @property
    def next_try_s(self) -> float:
        """Seconds until the next try; 0 during a try."""
        return max(0.0, self.due - clock.monotonic())

    def as_json(self) -> dict[str, Any]:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return {"tries": self.tries, "since": since, "next_try_s": round(self.next_try_s, 1)}


@dataclass
class Progress:
    """The counts of one view in this run. `lag` is None until the first batch reports it.

    Two threads write it, never both at once: the thread that looks after the view, and Spark's thread that runs the
    batches. Any other thread may read it at any time.
    """

    view: str
    kind: str = "view"  # or "intake" or "lake", which have no counts
    state: str = "starting"
    build: str | None = None
    batches: int = 0
    tiles: int = 0
    lag: int | None = None
    rate: float = 0.0  # records a second in the last batch
    last: NewestBatch | None = None
    error: LeftfoldError | None = None  # why it waits, or has failed for good
    failing: Failing | None = None
    note: str | None = None  # a message to the user about this start
    restarts: int = 0  # restarts after a failure, in this run
    repairs: int = 0  # repairs of a store that had lost data
    pending: int = 0  # re-driven records whose tiles are still open
    beyond: int = 0  # re-driven records without effect: the rest of their tiles is no longer in the log or archive
    history: HistoryProgress | None = None  # only during a rebuild
    _ledger: dict[str, int] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)

    def resume(self, ledger: Iterable[LedgerRow]) -> None:
        """Start from the ledger of the store: the records that were applied before this run."""
        self._before = {row.name: row.records for row in ledger}
        self._ledger = dict(self._before)

    def applied(self, batch: NewestBatch, ledger: Iterable[LedgerRow]) -> None:
        # Make a new dict instead of changing this one: another thread may be iterating over it.
        self._ledger = self._ledger | {row.name: row.records for row in ledger}
        self.last = batch
        self.batches += 1
        self.tiles += batch.tiles

    def records(self) -> dict[str, int]:
        """The number of records by outcome, in this run."""
        return self._by_outcome(self._before)

    def totals(self) -> dict[str, int]:
        """The number of records by outcome, over the life of the build."""
        return self._by_outcome({})

    def _by_outcome(self, before: Mapping[str, int]) -> dict[str, int]:
        counts = dict.fromkeys(OUTCOMES, 0)
        for name, total in self._ledger.items():
            counts[name.split(":")[1]] += total - before.get(name, 0)
        return counts

    @property
    def lag_s(self) -> float | None:
        """Age of the newest applied record while others wait, in seconds; 0 if none waits, None if not known yet."""
        if self.last is None or self.lag is None:
            return None
        return 0.0 if self.lag == 0 else max(0.0, (clock.now_us() - self.last.newest_log) / 1e6)

    def as_json(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "kind": self.kind,
            "state": self.state,
            "build": self.build,
            "batch": self.last.number if self.last else None,
            "batches": self.batches,
            "tiles": self.tiles,
            "records": self.records(),
            "rate": round(self.rate, 1),
            "lag": self.lag,
            "lag_s": self.lag_s,
            "freshness_s": round(self.last.freshness_s, 3) if self.last else None,
            "note": self.note,
            "restarts": self.restarts,
            "repairs": self.repairs,
            "pending": self.pending,
            "beyond": self.beyond,
            "history": self.history.as_json() if self.history else None,
            "error": self.error.as_json() if self.error else None,
            "failing": self.failing.as_json() if self.failing else None,
        }
