"""The rules of time for the moment of a label, and the batches that a store had then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# "event" takes all that happened before a moment, "log" what was logged by then, "served" what readers of the store
# could get.
AsOf = Literal["event", "log", "served"]
MODES: tuple[AsOf, ...] = ("event", "log", "served")
# The batch number for the time before the first batch, when a store holds nothing.
NO_BATCH = -1
# The last known batch where batches do not matter: all are known.
ALL_BATCHES = (1 << 62) - 1


@dataclass(frozen=True)
class AppliedBatch:
    """A batch, the time (µs) at which a store had it, and its end offset in each slot of the view's source."""

    batch: int
    applied: int
    ends: dict[int, int]


@dataclass(frozen=True)
class Unknown:
    """A span of batches for which it is not known when each was applied.

    It is only known that the store had `last` at the moment `until` (µs).
    """

    since: int
    until: int
    first: int
    last: int

    def meets(self, moments: tuple[int, int], batches: tuple[int, int] | None) -> bool:
        """True if one of these moments or batches (first and last, both included) may lie in the span."""
        named = batches is not None and self.first <= batches[1] and self.last >= batches[0]
        return named or (self.since <= moments[1] and self.until >= moments[0])
