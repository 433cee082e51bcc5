"""What it takes to fill a store again from the log, up to where the checkpoint stands, while the stream waits."""

from __future__ import annotations

from leftfold.errors import RunError
from leftfold.fold.definition import Definition
from leftfold.fold.durations import text
from leftfold.kafka.admin import Admin
from leftfold.run.broom import CLOCK_SLACK
from leftfold.spark.query import Job
from leftfold.spark.source import Offsets, Source


def history(view: str, job: Job, source: Source, admin: Admin, *, newest_event: int) -> Offsets:
    """Where the log must be read from to compute all that a read still reaches; refused if it no longer has that."""
    since = _needed_since(job, newest_event)
    starts, lacking = starts_since(admin, source, since)
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


def starts_since(admin: Admin, source: Source, since: int | None) -> tuple[Offsets, list[str]]:
    """From where to read what was logged since a moment (None: ever), and the partitions whose head may be gone."""
    starts: Offsets = {}
    lacking: list[str] = []
    for topic, partitions in zip(source.topics, source.partitions, strict=True):
        first = admin.start_offsets(topic, partitions)
        if since is None:
            starts[topic] = first
        else:
            found, ends = admin.offsets_at(topic, partitions, since), admin.end_offsets(topic, partitions)
            starts[topic] = {p: ends[p] if at is None else max(at, first[p]) for p, at in found.items()}
        lacking += [f"{topic}/{p}" for p, at in starts[topic].items() if 0 < first[p] == at]
    return starts, lacking


def _needed_since(job: Job, newest_event: int) -> int | None:
    """The log time from which records can lie in a tile that is still read; None: all of the log."""
    definition = job.definition
    if not isinstance(definition, Definition) or definition.lifetime or not newest_event:
        return None
    if any(origin.log_time == "producer" for origin in definition.origins):  # not in the order of its time
        return None
    reach = max(step * ring for step, ring in definition.rings.items())
    return newest_event - reach - definition.future - CLOCK_SLACK


def _kept_for_ever(job: Job) -> bool:
    """A compacted topic keeps the newest record of each key, whatever its first offset is."""
    return not job.sweeps
