"""Spark's watermark is only a broom for state. Here it is decided, before a batch is committed, that it sweeps nothing
that an accepted record still needs.

The watermark follows the newest log time of any partition, less a delay, and never goes back. A partition that is read
far behind the others would find its tiles swept, and Spark tells only after the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leftfold.fold.definition import Origin
from leftfold.fold.durations import SECOND

Place = tuple[str, int]  # a topic and one of its partitions

# How much later than any accepted record could need it state is swept: late eviction costs only state rows.
SLACK = 3_600 * SECOND
# Log times are the leaders' clocks, which differ and may step back.
CLOCK_SLACK = 60 * SECOND
# A copier merges the partitions of its source by log time, so that what it copies steps back by no more than a
# transaction in the source lasts, which hides records until it ends: 15 min at the most where brokers have defaults.
COPIED_SLACK = 20 * 60 * SECOND


def steps_back(origins: Iterable[Origin]) -> int:
    """How much more than clocks differ a record may have been logged before those that were read before it."""
    return COPIED_SLACK if any(origin.log_time == "header" for origin in origins) else 0


def first_delay(lateness: int) -> int:
    return lateness + SLACK


def wider_delay(
    delay: int, *, lateness: int, newest_log: Mapping[Place, int], unread: Iterable[Place], back: int = 0
) -> int | None:
    """The delay that is needed instead of `delay`, or None if the batch may be committed.

    `newest_log` is the log time that each partition has reached; `unread` are the partitions with records to come.
    Those were logged after what was read of their partition (give or take a clock, and `back`), and are accepted if
    their event time is at most `lateness` older: nothing of them lies below the watermark if the spread of log times is
    covered.
    A partition that has unread records and was never read got its first record just now, so it is not behind.
    """
    behind = [newest_log[p] for p in unread if p in newest_log]
    if not behind:
        return None
    spread = max(newest_log.values()) - min(behind)
    if spread <= delay - lateness - CLOCK_SLACK - back:
        return None
    return lateness + CLOCK_SLACK + back + 2 * spread + SLACK
