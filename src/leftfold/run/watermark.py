"""Keeps Spark's watermark from sweeping state that an accepted record still needs, before a batch is committed.

The watermark only decides which state Spark removes ("sweeps"). It is the newest log time of any partition, minus a
delay, and never goes back. If a partition is read far behind the others, its tiles may be swept too early, and Spark
reports that only after the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leftfold.fold.definition import Origin
from leftfold.fold.durations import SECOND

Place = tuple[str, int]  # a topic and one of its partitions

# State is swept this much later than any accepted record could need it. Late eviction costs only state rows.
SLACK = 3_600 * SECOND
# Log times come from the clocks of the partition leaders, which differ and may step back.
CLOCK_SLACK = 60 * SECOND
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
