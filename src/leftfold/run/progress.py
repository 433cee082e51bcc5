"""What a running view has done: plain values, for the live table, for JSON lines and for the summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leftfold import clock
from leftfold.errors import LeftfoldError
from leftfold.store.layout import OUTCOMES, LedgerRow

# What a view can be doing.
STATES = ("starting", "reading history", "running", "repairing", "waiting", "caught up", "stopped", "failed")


@dataclass(frozen=True)
class Batch:
    number: int
    tiles: int
    newest_log: int  # log time of its newest record, µs
    applied_at: int  # when readers could see it, µs

    @property
    def freshness_s(self) -> float:
        """How long its newest record took from the log into the store."""
        return max(0.0, (self.applied_at - self.newest_log) / 1e6)


@dataclass(frozen=True)
class History:
    """How far a rebuild has read history, in offsets."""

    done: int
    total: int
    seconds: float  # since it began

    @property
    def eta_s(self) -> float | None:
        """How long the rest takes at this pace; None until there is one."""
        return None if not self.done else self.seconds * (self.total - self.done) / self.done

    def as_json(self) -> dict[str, Any]:
        eta = self.eta_s
        return {"done": self.done, "total": self.total, "eta_s": None if eta is None else round(eta, 1)}


@dataclass
class Progress:
    """Counts of one view in this run. `lag` is None until the first batch tells it.

    Written by the thread that runs the view; others may look at any moment.
    """

    view: str
    kind: str = "view"  # or "intake", or "lake", which have no counts
    state: str = "starting"
    build: str | None = None
    batches: int = 0
    tiles: int = 0
    lag: int | None = None
    rate: float = 0.0  # records a second in the last batch
    last: Batch | None = None
    error: LeftfoldError | None = None
    note: str | None = None  # what a person should know of this start
    restarts: int = 0  # after a failure, in this run
    repairs: int = 0  # of a store that had lost data
    pending: int = 0  # re-driven records whose tiles are still open
    history: History | None = None  # of a rebuild
    _ledger: dict[str, int] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)

    def resume(self, ledger: Iterable[LedgerRow]) -> None:
        """What the store says was applied before this run."""
        self._before = {row.name: row.records for row in ledger}
        self._ledger = dict(self._before)

    def applied(self, batch: Batch, ledger: Iterable[LedgerRow]) -> None:
        # A new dict, not this one changed: somebody may be counting it.
        self._ledger = self._ledger | {row.name: row.records for row in ledger}
        self.last = batch
        self.batches += 1
        self.tiles += batch.tiles

    def records(self) -> dict[str, int]:
        """By outcome, in this run."""
        return self._by_outcome(self._before)

    def totals(self) -> dict[str, int]:
        """By outcome, over the life of the build."""
        return self._by_outcome({})

    def _by_outcome(self, before: Mapping[str, int]) -> dict[str, int]:
        counts = dict.fromkeys(OUTCOMES, 0)
        for name, total in self._ledger.items():
            counts[name.split(":")[1]] += total - before.get(name, 0)
        return counts

    @property
    def lag_s(self) -> float | None:
        """How old the newest applied record is, while there are records that are not applied."""
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
            "history": self.history.as_json() if self.history else None,
            "error": self.error.as_json() if self.error else None,
        }
