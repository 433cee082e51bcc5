"""Where history ends: frozen offsets, and the cut between tiles that are closed and tiles that a record may yet change.

With ends E of the partitions, no record past them was logged before log(E), less the slack of clocks; and none is
accepted that is older than its lateness. So a tile that ends by min log(E) - slack - lateness is closed.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.errors import RunError
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.fold.tiles import floor
from leftfold.kafka.admin import Admin
from leftfold.run import broom
from leftfold.spark.history import starts_since
from leftfold.spark.past import Frozen, later
from leftfold.spark.source import Offsets, Source

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

_MS = 1_000


def can_be_cut(definition: Definition | Latest) -> bool:
    """Tiles close only by a broker's clock; a table, a free view and everything that ever happened have none."""
    if not isinstance(definition, Definition) or definition.lifetime:
        return False
    return all(origin.log_time == "broker" for origin in definition.origins)


def cuts(definition: Definition, closed: int) -> dict[int, int]:
    """By step: tiles that start before are closed at that moment."""
    return {step: floor(closed, step) for step in definition.steps}


def oldest(definition: Definition, newest: int) -> dict[int, int]:
    """By step: tiles that start before are reached by no read, once there was an event at `newest`."""
    return {step: floor(newest - step * ring, step) for step, ring in definition.rings.items()}


def freeze(
    session: SparkSession, admin: Admin, source: Source, definition: Definition, since: int | None = None
) -> Frozen | None:
    """What archive and log have now, or was logged `since`; None if that is nothing."""
    firsts, _ = starts_since(session, source, admin, since)
    ends: Offsets = {}
    reached: list[int] = []  # by partition: nothing past its end was logged before
    newest = 0
    for topic, partitions in zip(source.topics, source.partitions, strict=True):
        now, written = clock.now_us(), admin.end_offsets(topic, partitions)
        ends[topic] = admin.stable_offsets(topic, partitions)
        reached += [
            now if end >= written[p] else _logged_at(admin, topic, partitions, p, end, now)
            for p, end in ends[topic].items()
        ]
        newest = max((newest, *admin.newest_times(topic, partitions).values()))
    if not any(end > firsts[t].get(p, 0) for t, parts in ends.items() for p, end in parts.items()):
        return None
    cut = cuts(definition, min(reached) - broom.CLOCK_SLACK - definition.lateness)
    # An event may be stamped ahead of its log time.
    early = min(cut.values()) - definition.future - broom.CLOCK_SLACK
    logged = {topic: admin.start_offsets(topic, len(parts)) for topic, parts in ends.items()}
    wanted, _ = starts_since(session, source, admin, early)
    check_stream(wanted, logged)
    least = later(firsts, logged)
    starts = {topic: _starts(wanted[topic], least[topic], parts) for topic, parts in ends.items()}
    reach = oldest(definition, newest - definition.lateness)
    return Frozen(str(uuid.uuid4()), firsts, starts, ends, cut, reach, since)


def still_there(session: SparkSession, admin: Admin, source: Source, frozen: Frozen) -> bool:
    """Whether archive and log still have what was frozen, and the log what the stream reads of it.

    A topic that was made again since has less.
    """
    ends = {t: admin.end_offsets(t, n) for t, n in zip(source.topics, source.partitions, strict=True)}
    if any(ends[t].get(p, 0) < end for t, parts in frozen.ends.items() for p, end in parts.items()):
        return False
    firsts, _ = starts_since(session, source, admin, None)
    logged = {t: admin.start_offsets(t, n) for t, n in zip(source.topics, source.partitions, strict=True)}
    return all(
        first <= wanted[topic].get(p, first)
        for wanted, found in ((frozen.firsts, firsts), (frozen.starts, logged))
        for topic in wanted
        for p, first in found[topic].items()
    )


def _starts(found: dict[int, int], firsts: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
    """At least one offset is read again where there is one: the stream's first batch is what completes the build."""
    return {p: max(firsts.get(p, 0), min(found[p], end - 1)) for p, end in ends.items()}


def check_stream(wanted: Offsets, logged: Offsets) -> None:
    """A stream reads the log alone, and its tiles need every record from their start on."""
    for topic, parts in wanted.items():
        lacking = {p: at for p, at in parts.items() if at < logged[topic][p]}
        if lacking:
            p, at = min(lacking.items())
            raise RunError(
                "rebuild-needs-log",
                f"{topic}/{p} has offsets {at:,} to {logged[topic][p] - 1:,} in its archive only",
                why="the newest tiles are made by a stream, which reads the log, and these records lie in them: the "
                "topic keeps less than its lateness",
                state="nothing was built",
                fix="give the topic a longer retention, and rebuild once it has kept that long",
            )


def _logged_at(admin: Admin, topic: str, partitions: int, partition: int, offset: int, now: int) -> int:
    """The log time from `offset` on, which lies in a transaction that is still open."""
    low, high = 0, now // _MS  # what was logged at or after `low` begins by then
    while low + 1 < high:
        middle = (low + high) // 2
        at = admin.offsets_at(topic, partitions, middle * _MS)[partition]
        low, high = (middle, high) if at is not None and at <= offset else (low, middle)
    return low * _MS
