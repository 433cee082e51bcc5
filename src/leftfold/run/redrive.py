"""Applies re-driven records: each takes the place of its original, in tiles that no other record can change any more.

A tile is closed once every record that could still arrive for it would be late. It is then recomputed from the log and
the re-driven records, and written under the last committed batch. The write is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.reach import CLOCK_SLACK
from leftfold.kafka.admin import Admin
from leftfold.offsets import Offsets
from leftfold.spark.history.records import over_history, read_history, starts_since
from leftfold.spark.history.redriven import corrected, from_offsets, out_of_reach, redriven, touched, with_redriven
from leftfold.spark.source import Source
from leftfold.spark.views.tiles import TilesJob

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

_DAY = 86_400 * SECOND


@dataclass(frozen=True)
class Done:
    until: int  # all records re-driven before this offset have taken effect
    pending: int = 0  # records with a tile that is still open
    closes: int | None = None  # when the first of these tiles ends, µs
    beyond: int = 0  # records with a closed tile that stays as it is: log and archive no longer have all of it


def in_place(records: DataFrame, session: SparkSession, source: Source, topic: str, until: int) -> DataFrame:
    """The log's records, with each record re-driven before offset `until` in the place of its original."""
    return with_redriven(records, redriven(session, source, topic, {0: until}), at_most=until)


def everything(
    session: SparkSession, source: Source, admin: Admin, topic: str | None, *, since: Offsets
) -> DataFrame | None:
    """All records re-driven so far whose original lies at `since` or later; None if nothing was re-driven."""
    end = 0 if topic is None else admin.end_offsets(topic, 1)[0]
    if topic is None or end <= admin.start_offsets(topic, 1)[0]:
        return None
    ((_, firsts),) = since.items()  # a view of several topics has no re-drive topic
    return from_offsets(redriven(session, source, topic, {0: end}), firsts)


def apply(
    session: SparkSession,
    source: Source,
    job: TilesJob,
    admin: Admin,
    *,
    topic: str,
    since: int,
    begins: Offsets,
    ends: Offsets,
    number: int,
    closed: int,
    write: Callable[[DataFrame, int], object],
) -> Done:
    """Recompute the closed tiles that records re-driven since offset `since` touch, and write them with `write`.

    `ends` and `number` belong to the last committed batch. Tiles that end by `closed` are closed. `begins` is where the
    build began.
    A tile that may have been thinned in the store is recomputed together with all older ones of its entity, because a
    correction may take away what they were thinned for. If log and archive no longer have every record of a tile, or of
    those beside it, the tile is left as it is: a recomputed one would be wrong. The records that would have changed it
    are counted as `beyond`.
    """
    end = admin.end_offsets(topic, 1)[0]
    if end <= since:
        return Done(since)
    since = max(since, admin.start_offsets(topic, 1)[0])  # a user may have deleted records that are no longer needed
    if end <= since:
        return Done(since)
    fresh = redriven(session, source, topic, {0: end}, starts={0: since})
    affected = touched(fresh, job, closed)
    reachable: int | None = None
    thinned, kept_since = _thinned(job.definition, closed)
    for oldest in affected.days:
        needed = min(oldest, kept_since) if oldest < thinned else oldest
        reached = needed - job.definition.future - CLOCK_SLACK
        starts, lacking = starts_since(session, source, admin, reached, begins)
        if not lacking:

            def written(starts: Offsets = starts, oldest: int = oldest, needed: int = needed) -> None:
                records = in_place(read_history(session, source, starts, ends), session, source, topic, end)
                made = corrected(
                    records, fresh, job, number, since=oldest, closed=closed, thinned=thinned, kept_since=needed
                )
                write(made, number)

            over_history(written)
            reachable = oldest
            break
    if affected.open:
        return Done(since, affected.open, affected.closes)
    missed = any(reachable is None or day < reachable for day in affected.days)
    return Done(end, beyond=out_of_reach(fresh, job, closed, since=reachable) if missed else 0)


def _thinned(definition: Definition, closed: int) -> tuple[int, int]:
    """Return up to which end the store may have thinned tiles, and from which start on a read may need them.

    Every event that a row has was logged at most lateness and slack after `closed`, or soon after that. Tiles are
    thinned 25 hours before an entity's newest event, so an hour is left for that. None are where producers stamp a log.
    """
    newest = closed + definition.lateness
    kept_since = newest - _DAY - max(step * ring for step, ring in definition.rings.items())
    return 0 if any(o.log_time == "producer" for o in definition.origins) else newest - _DAY, kept_since
