"""The state of a consumer in this process, for the terminal, for metrics and for health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from leftfold.errors import LeftfoldError

State = Literal["starting", "running", "idle", "caught up", "stopped", "failed"]


@dataclass
class ConsumerProgress:
    """Counts of one consumer since its process started, and its lag. One thread writes it, others read it."""

    consumer: str
    state: State = "starting"  # "idle": a member without a partition
    partitions: int = 0
    handled: int = 0
    skipped: int = 0  # late records and those from the future, with late="skip"
    dead: int = 0
    failures: int = 0  # calls that failed
    in_flight: int = 0
    lag: int | None = None  # records that are not settled, up to the end of the log; None: not known yet
    lag_s: float | None = None  # the age of the oldest record that was taken and is not settled
    rebalances: int = 0
    abandoned: int = 0  # calls that took longer than the timeout
    stale: int = 0  # commits that were refused, because another member owns the partition
    rejoined: int = 0  # times that the coordinator had assigned other partitions than were read
    paused: bool = False
    waiting: bool = False  # the breaker is open: what the handler calls seems to be away
    error: LeftfoldError | None = None

    @property
    def is_up(self) -> bool:
        return self.state not in ("failed", "stopped")

    @property
    def shown(self) -> str:
        """The state in a word, for people."""
        if self.state == "running" and (self.paused or self.waiting):
            return "paused" if self.paused else "waiting"
        return self.state

    def as_json(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in self.__dict__.items() if name != "error"},
            "state": self.shown,
            "error": None if self.error is None else self.error.as_json(),
        }
