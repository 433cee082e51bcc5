"""Computes how far back the log must be read for the values of a view, or for the tiles that its store keeps.

Times are in microseconds.
"""

from __future__ import annotations

from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.latest import Latest

# Log times come from the clocks of the partition leaders, which differ and may step back.
CLOCK_SLACK = 60 * SECOND


def value_reach(definition: Definition | Latest) -> int | None:
    """The longest time between a read and the log time of a record that its values need; None: no limit.

    A window can begin up to one step earlier than its length says. An event time may also lie ahead of the log time.
    Lateness adds nothing: a late record was logged after it happened, so its log time is closer to the read.
    """
    if isinstance(definition, Latest) or definition.lifetime:
        return None
    return max(f.window + f.step for f in definition.windowed if f.window is not None) + definition.future


def store_reach(definition: Definition | Latest) -> int | None:
    """The longest time between the newest event and the log time of a record in a tile of the store; None: no limit.

    It is longer than `value_reach`, because the store keeps some tiles that no read needs any more.
    """
    if isinstance(definition, Latest) or definition.lifetime:
        return None
    return max(step * ring for step, ring in definition.rings.items()) + definition.future


def needed_since(definition: Definition | Latest, moment: int, reach: int | None) -> int | None:
    """The log time from which on records can lie within `reach` of a moment; None if all of the log is needed.

    A log whose producers set the log times is not in time order, so all of it is needed. A copied record's first log
    time is believed only if it is at most a minute later than when this log got it, and the slack covers that minute.
    So a record that this log got before that moment was also first logged before it.
    """
    if reach is None or any(origin.log_time == "producer" for origin in definition.origins):
        return None
    return moment - reach - CLOCK_SLACK
