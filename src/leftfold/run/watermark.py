"""Keeps Spark's watermark from sweeping state that an accepted record still needs, before a batch is committed.

The watermark only decides which state Spark removes ("sweeps"). It is the newest log time of any partition, minus a
delay, and never goes back. If a partition is read far behind the others, its tiles may be swept too early, and Spark
reports that only after the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from leftfold.fold import reach
from leftfold.fold.definition import Origin
from leftfold.fold.durations import SECOND
from leftfold.store.layout import LedgerRow

Place = tuple[str, int]  # a topic and one of its partitions

# State is swept this much later than any accepted record could need it. Late eviction costs only state rows.
SLACK = 3_600 * SECOND
CLOCK_SLACK = reach.CLOCK_SLACK
# A copier merges the partitions of its source by log time. A transaction in the source hides its records until it ends,
# so log times in the copy step back by at most the duration of a transaction: 15 min with the brokers' defaults.
COPIED_SLACK = 20 * 60 * SECOND


def steps_back(origins: Iterable[Origin]) -> int:
    """The time by which log times may step back from one record to the next, in addition to clock differences."""
    return COPIED_SLACK if any(origin.log_time == "header" for origin in origins) else 0


def first_delay(lateness: int) -> int:
    return lateness + SLACK


def wider_delay(
    delay: int, *, lateness: int, newest_log: Mapping[Place, int], unread: Iterable[Place], back: int = 0
) -> int | None:
    """The delay that is needed instead of `delay`, or None if the batch may be committed.

    `newest_log` is the log time that each partition has reached; `unread` are the partitions with unread records.
    An unread record was logged after the records that were read of its partition, apart from clock differences and
    `back`. It is accepted if its event time is at most `lateness` older than its log time. So no unread record lies
    below the watermark if the delay covers the spread of log times.
    A partition with unread records that was never read got its first record just now, so it is not behind.
    """
    behind = [newest_log[p] for p in unread if p in newest_log]
    if not behind:
        return None
    spread = max(newest_log.values()) - min(behind)
    if spread <= delay - lateness - CLOCK_SLACK - back:
        return None
    return lateness + CLOCK_SLACK + back + 2 * spread + SLACK


class Watermark:
    """The log time that a view has reached in each partition, and the delay of its watermark.

    It outlives restarts of the query: a delay that was once needed may be needed again.
    """

    def __init__(self, origins: Collection[Origin]) -> None:
        self.lateness = max(origin.lateness for origin in origins)
        self.delay = first_delay(self.lateness)
        self.newest_log: dict[Place, int] = {}
        self._back = steps_back(origins)

    def reach(self, ledger: Iterable[LedgerRow]) -> None:
        """Take in the newest log time of each partition."""
        for row in ledger:
            place = (row.topic, row.partition)
            self.newest_log[place] = max(row.newest_log, self.newest_log.get(place, 0))

    def widen(self, unread: Iterable[Place]) -> bool:
        """Widen the delay if a commit would let the watermark overtake unread records. Return whether it would."""
        wider = wider_delay(
            self.delay, lateness=self.lateness, newest_log=self.newest_log, unread=unread, back=self._back
        )
        if wider is not None:
            self.delay = wider
        return wider is not None

    def cover(self, spread: int) -> None:
        """Widen the delay so that partitions may lie this far apart."""
        self.delay = max(self.delay, first_delay(self.lateness) + spread)

    def frontier(self, unread: Iterable[Place], now: int | None) -> int:
        """The moment before which no unread record was logged, apart from differences of the brokers' clocks.

        `now` is the brokers' time, if they set the log times. It was asked for before `unread` was looked up.
        """
        behind = [place for place in unread if place in self.newest_log]
        if now is not None and not behind:
            return now
        return min((self.newest_log[place] for place in behind or self.newest_log), default=0) - self._back
