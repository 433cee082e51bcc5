"""The end of history: frozen offsets, and the cut between closed tiles and tiles that a record may still change.

Let E be the end offset of a partition, and log(E) the log time that the partition has reached there. No record past E
was logged before log(E), except for the slack of the clocks. No record is accepted whose event is older than its log
time minus the lateness. So a tile is closed if it ends at or before min log(E) - slack - lateness, where the minimum is
over all partitions.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from leftfold.errors import RunError
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.fold.tiles import floor
from leftfold.kafka.admin import Admin
from leftfold.offsets import Offsets, later
from leftfold.run import watermark
from leftfold.run.frontier import ends_reached
from leftfold.spark.cutover import FrozenHistory
from leftfold.spark.history.records import starts_since
from leftfold.spark.source import Source

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


def uncut(definition: Definition | Latest) -> str | None:
    """Return why history cannot be cut for a definition; None if it can.

    Tiles close only by a broker's clock. A table and a free view have no tiles, and a feature over everything that ever
    happened has none that close.
    """
    if not isinstance(definition, Definition):
        return "it keeps the newest row of each key, and no windows"
    if definition.lifetime:
        return "it has a feature without a window"
    others = [f'topic {o.topic} has log_time="{o.log_time}"' for o in definition.origins if o.log_time != "broker"]
    return f"{others[0]}, and only a broker's log times show when a window is complete" if others else None


def cuts(definition: Definition, closed: int) -> dict[int, int]:
    """Return a moment (µs) for each step: tiles that start before it are closed at the moment `closed`."""
    return {step: floor(closed, step) for step in definition.steps}


def oldest(definition: Definition, newest: int) -> dict[int, int]:
    """Return a moment (µs) for each step: after an event at `newest`, no read reaches tiles that start before it."""
    return {step: floor(newest - step * ring, step) for step, ring in definition.rings.items()}


def freeze(
    session: SparkSession, admin: Admin, source: Source, definition: Definition, since: int | None = None
) -> FrozenHistory | None:
    """Freeze what archive and log hold now, or only what was logged since `since` (µs). None if that is nothing."""
    firsts, _ = starts_since(session, source, admin, since)
    ends: Offsets = {}
    reached: list[int] = []  # for each partition: no record past its end was logged before this moment
    newest = 0
    for topic, partitions in zip(source.topics, source.partitions, strict=True):
        ends[topic], moments = ends_reached(admin, topic, partitions)
        reached += moments
        newest = max((newest, *admin.newest_times(topic, partitions).values()))
    if not any(end > firsts[t].get(p, 0) for t, parts in ends.items() for p, end in parts.items()):
        return None
    cut = cuts(definition, min(reached) - watermark.CLOCK_SLACK - definition.lateness)
    # An event may be stamped ahead of its log time, so the stream starts earlier than the cut.
    early = min(cut.values()) - definition.future - watermark.CLOCK_SLACK
    logged = {topic: admin.start_offsets(topic, len(parts)) for topic, parts in ends.items()}
    wanted, _ = starts_since(session, source, admin, early)
    check_stream(wanted, logged)
    least = later(firsts, logged)
    starts = {topic: _starts(wanted[topic], least[topic], parts) for topic, parts in ends.items()}
    reach = oldest(definition, newest - definition.lateness)
    return FrozenHistory(str(uuid.uuid4()), firsts, starts, ends, cut, reach, since)


def still_there(session: SparkSession, admin: Admin, source: Source, frozen: FrozenHistory) -> bool:
    """Return whether everything that was frozen can still be read.

    Archive and log together must hold the history, and the log alone what the stream reads. A topic that was deleted
    and created again since then holds less.
    """
    ends = {t: admin.end_offsets(t, n) for t, n in zip(source.topics, source.partitions, strict=True)}
    if any(ends[t].get(p, 0) < end for t, parts in frozen.ends.items() for p, end in parts.items()):
        return False
    firsts, _ = starts_since(session, source, admin, None)
    logged = {t: admin.start_offsets(t, n) for t, n in zip(source.topics, source.partitions, strict=True)}
    return all(
        first <= wanted[topic].get(p, first)
        for wanted, available in ((frozen.firsts, firsts), (frozen.starts, logged))
        for topic in wanted
        for p, first in available[topic].items()
    )


def _starts(wanted: dict[int, int], firsts: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
    """Return the offsets at which the stream starts.

    The stream reads at least one offset of each partition that has one: its first batch completes the build.
    """
    return {p: max(firsts.get(p, 0), min(wanted[p], end - 1)) for p, end in ends.items()}


def check_stream(wanted: Offsets, logged: Offsets) -> None:
    """Raise if the stream would need records that only the archive holds.

    A stream reads the log alone, and its tiles need every record from their start on.
    """
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
