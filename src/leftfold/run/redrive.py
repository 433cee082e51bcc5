"""Re-driven records take effect: each stands in the place of its original, in tiles that no record can change any more.

A tile is closed once every record that could still come for it would be late. It is then computed anew from the log and
the re-driven records, and written under the last committed batch: doing it twice does nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leftfold.kafka.admin import Admin
from leftfold.run.broom import CLOCK_SLACK
from leftfold.spark.corrections import corrected, touched
from leftfold.spark.history import over_history, read_history, starts_since
from leftfold.spark.redriven import from_offsets, redriven, with_redriven
from leftfold.spark.source import Offsets, Source
from leftfold.spark.tiles import TilesJob

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession


@dataclass(frozen=True)
class Done:
    until: int  # all that was re-driven before this offset has taken effect
    pending: int = 0  # records with a tile that is still open
    closes: int | None = None  # when the first of these tiles ends, µs


def in_place(records: DataFrame, session: SparkSession, source: Source, topic: str, until: int) -> DataFrame:
    """The log with what has been re-driven, each record in the place of its original."""
    return with_redriven(records, redriven(session, source, topic, {0: until}), at_most=until)


def everything(
    session: SparkSession, source: Source, admin: Admin, topic: str | None, *, since: Offsets
) -> DataFrame | None:
    """All that has been re-driven so far of what lies from `since` on; None if nothing was."""
    end = 0 if topic is None else admin.end_offsets(topic, 1)[0]
    if topic is None or end <= admin.start_offsets(topic, 1)[0]:
        return None
    ((_, firsts),) = since.items()  # what several topics make has no such topic
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
    """`ends` and `number` are of the last committed batch; tiles that end by `closed` are closed.

    `begins` is where the build began.
    A tile of which neither log nor archive has every record is left as it is: it could only be made wrong.
    """
    end = admin.end_offsets(topic, 1)[0]
    if end <= since:
        return Done(since)
    since = max(since, admin.start_offsets(topic, 1)[0])  # a person may have deleted what nothing needs any more
    if end <= since:
        return Done(since)
    fresh = redriven(session, source, topic, {0: end}, starts={0: since})
    found = touched(fresh, job, closed)
    for oldest in found.days:
        reached = oldest - job.definition.future - CLOCK_SLACK
        starts, lacking = starts_since(session, source, admin, reached, begins)
        if not lacking:

            def written(starts: Offsets = starts, oldest: int = oldest) -> None:
                records = in_place(read_history(session, source, starts, ends), session, source, topic, end)
                write(corrected(records, fresh, job, number, since=oldest, closed=closed), number)

            over_history(written)
            break
    return Done(since, found.open, found.closes) if found.open else Done(end)
