"""Start one view's query: its own session, its own checkpoint, one callback per batch."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.offsets import Offsets
from leftfold.places import check_checkpoints
from leftfold.spark import files
from leftfold.spark.source import Source, read_stream

# Settings for a view that ran out of memory: groups that hold objects are sorted, because a sort can spill to disk, and
# fewer rows go to Python at once.
CAREFUL = {
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}
OnBatch = Callable[[DataFrame, int], None]


class Job(Protocol):
    """Everything that Spark needs to run one view, of any kind."""

    @property
    def definition(self) -> Definition | Latest: ...
    @property
    def sweeps(self) -> bool:
        """True if the query has state from which the watermark drops rows."""

    @property
    def cumulative(self) -> bool:
        """True if ledger rows count from the build's start, False if each counts one batch only."""

    @property
    def rows_per_record(self) -> int | None:
        """The most rows of a batch that one record can produce; None if there is no bound."""

    def stream(self, records: DataFrame, delay: int, /) -> DataFrame: ...
    def packed(self, batch: DataFrame, number: int, /) -> DataFrame:
        """The rows to write, with columns entity (null for a ledger row), store field, value, digest."""


@dataclass(frozen=True)
class Snapshot:
    """Spark's report on the last finished batch. It is not a ledger.

    It is for display, and to detect what must never happen.
    """

    batch: int
    rate: float  # records a second
    behind: int | None  # lag: offsets from the batch to the end of the log, all partitions; None if unknown
    swept: int  # rows that the watermark dropped


class _Callback:
    """Hands batches to a function, until it is released.

    PySpark keeps the callback of every query that it ever started. Through the function it would keep the view of each,
    with its connections.
    """

    def __init__(self, on_batch: OnBatch) -> None:
        self._on_batch: OnBatch | None = on_batch

    def __call__(self, batch: DataFrame, number: int) -> None:
        assert self._on_batch is not None, "the query has ended"
        self._on_batch(batch, number)

    def release(self) -> None:
        self._on_batch = None


class Query:
    """A started query, with the operations that a supervisor needs."""

    def __init__(self, query: StreamingQuery, callback: _Callback) -> None:
        self._query = query
        self._callback = callback

    @property
    def checkpoint_id(self) -> str:
        """The id that Spark made with the checkpoint and stores in it. Batch numbers are valid only under this id."""
        return str(self._query.id)

    @property
    def active(self) -> bool:
        return self._query.isActive

    @property
    def in_batch(self) -> bool:
        """True while a batch runs. False while the query asks the brokers for offsets.

        It waits minutes for that answer if the brokers are down.
        """
        status = self._query.status
        return self.active and status["isTriggerActive"] and not status["message"].startswith("Getting offsets")

    @property
    def at_rest(self) -> bool:
        """True if the query has processed all it found and waits for more data. False for one that just started."""
        return self.active and self._query.status["message"].startswith("Waiting for")

    def failure(self) -> str | None:
        """The failure with which the query has ended; None if it ended well, or has not ended."""
        if not self.active:
            self._callback.release()
        failure = self._query.exception()
        return None if failure is None else str(failure)

    def wait(self, seconds: float) -> None:
        """Wait until the query has ended, but at most this long."""
        query: Any = self._query  # its annotation allows whole seconds only
        with suppress(StreamingQueryException):  # `failure` returns it
            query.awaitTermination(seconds)

    def stop_if_idle(self) -> bool:
        """Stop the query if it waits for data, so there is no batch to finish. Return whether it was stopped."""
        if self._query.isActive and not self._query.status["isTriggerActive"]:
            self._query.stop()
            self._callback.release()
            return True
        return False

    def snapshot(self, partitions: int) -> Snapshot | None:
        progress: Any = self._query.lastProgress
        if progress is None or not progress.sources:
            return None
        average = (progress.sources[0].metrics or {}).get("avgOffsetsBehindLatest")
        return Snapshot(
            batch=progress.batchId,
            rate=float(progress.processedRowsPerSecond or 0.0),
            behind=None if average is None else round(float(average) * partitions),
            swept=sum(int(operator.numRowsDroppedByWatermark) for operator in progress.stateOperators),
        )


def start_query(
    session: SparkSession,
    job: Job,
    source: Source,
    *,
    delay: int,
    checkpoint: str,
    on_batch: OnBatch,
    until_caught_up: bool,
    starts: Offsets | None = None,
) -> Query:
    """Start the query of one view, in a session of its own.

    With `until_caught_up` the query ends at the offsets that were the newest when it started. A query with a new
    checkpoint begins at `starts`, or at the start of the log if that is None.
    """
    own = session.newSession()  # settings of one view never reach another
    own.conf.set("spark.sql.shuffle.partitions", str(session.conf.get("spark.sql.shuffle.partitions")))
    if source.careful:
        for name, value in CAREFUL.items():
            own.conf.set(name, value)
    return start_batches(
        job.stream(read_stream(own, source, starts=starts), delay),
        name=job.definition.view,
        checkpoint=checkpoint,
        on_batch=on_batch,
        until_caught_up=until_caught_up,
    )


def start_batches(
    frame: DataFrame, *, name: str, checkpoint: str, on_batch: OnBatch, until_caught_up: bool, every_s: int = 0
) -> Query:
    """Start a streaming query. All queries of Leftfold start here.

    The location of the checkpoint is checked by the file system that Spark resolves it to, because a default file
    system may be set outside of the profile.
    """
    check_checkpoints(checkpoint, files.scheme(frame.sparkSession, checkpoint))
    callback = _Callback(on_batch)
    writer = (
        frame.writeStream.queryName(name)
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(callback)
    )
    live = writer.trigger(processingTime=f"{every_s} seconds")
    return Query((writer.trigger(availableNow=True) if until_caught_up else live).start(), callback)


# Progress of the jobs of this thread, reported while they run.


_LOOK_EVERY_S = 0.5


@contextmanager
def watching(session: SparkSession, watch: Callable[[int, int], None]) -> Iterator[None]:
    """Call `watch` every half second with the number of completed tasks and of all tasks known so far."""
    context, group, over = session.sparkContext, uuid.uuid4().hex, threading.Event()
    context.setJobGroup(group, "leftfold")

    def look() -> None:
        tracker = context.statusTracker()
        while not over.wait(_LOOK_EVERY_S):
            jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
            known = [stage for stage in stages if stage]
            if known:
                watch(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # None removes it
