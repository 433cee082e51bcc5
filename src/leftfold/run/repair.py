"""What it takes to fill a store again from its past, up to where the checkpoint stands, while the stream waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leftfold.errors import RunError
from leftfold.fold.definition import Definition
from leftfold.fold.durations import text
from leftfold.kafka.admin import Admin
from leftfold.run.broom import CLOCK_SLACK
from leftfold.spark.history import starts_since
from leftfold.spark.query import Job
from leftfold.spark.source import Offsets, Source

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


def history(
    session: SparkSession, view: str, job: Job, source: Source, admin: Admin, *, newest_event: int, begins: Offsets
) -> Offsets:
    """Where history must be read from to compute all that a read still reaches; refused if that is no longer there.

    `begins` is where the build began: a repair gives back what it held, not what was imported or archived before it.
    """
    since = _needed_since(job, newest_event)
    starts, lacking = starts_since(session, source, admin, since, begins)
    if _kept_for_ever(job):
        lacking = []
    if lacking:
        raise RunError(
            "repair-needs-history",
            f"{view} cannot be computed anew: {', '.join(lacking)} no longer hold all that it needs",
            why="the log's oldest records were deleted, and its rows reach "
            + ("all of it" if since is None else f"{text(newest_event - since)} back"),
            state="the store is as it was found; nothing was committed",
            fix=f"leftfold run --fresh {view} starts over with what the log still has; or restore a newer dump",
        )
    return starts


def _needed_since(job: Job, newest_event: int) -> int | None:
    """The log time from which records can lie in a tile that is still read; None: all of the log."""
    definition = job.definition
    if not isinstance(definition, Definition) or definition.lifetime or not newest_event:
        return None
    if any(origin.log_time == "producer" for origin in definition.origins):  # not in the order of its time
        return None
    # A copied record that is believed was first logged at most a minute after this log got it, which the slack covers:
    # what the log got before that moment was first logged before it too.
    reach = max(step * ring for step, ring in definition.rings.items())
    return newest_event - reach - definition.future - CLOCK_SLACK


def _kept_for_ever(job: Job) -> bool:
    """A compacted topic keeps the newest record of each key, whatever its first offset is."""
    return not job.sweeps
