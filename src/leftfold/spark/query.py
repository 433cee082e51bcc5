"""Start one view's query: its own session, its own checkpoint, one callback per batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.spark.source import Offsets, Source, read_stream

OnBatch = Callable[[DataFrame, int], None]


class Job(Protocol):
    """How Spark runs one view, of whichever kind."""

    @property
    def definition(self) -> Definition | Latest: ...
    @property
    def sweeps(self) -> bool:
        """Whether there is state that the watermark sweeps."""

    @property
    def cumulative(self) -> bool:
        """Whether ledger rows count from the build's start, or one batch only."""

    @property
    def rows_per_record(self) -> int | None:
        """At most so many rows of a batch come from one record; None if nothing bounds them."""

    def stream(self, records: DataFrame, delay: int, /) -> DataFrame: ...
    def packed(self, batch: DataFrame, number: int, /) -> DataFrame:
        """entity (null for a ledger row), store field, value, digest."""


@dataclass(frozen=True)
class Snapshot:
    """What Spark says of the last finished batch. For display, and for what must never happen; not a ledger."""

    batch: int
    rate: float  # records a second
    behind: int | None  # offsets between the batch and the end of the log, all partitions; None if not told
    swept: int  # rows that the watermark dropped


class Query:
    """A started query, seen through what a supervisor needs."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    @property
    def checkpoint_id(self) -> str:
        """Made with the checkpoint, kept with it: batch numbers mean something only under this id."""
        return str(self._query.id)

    @property
    def active(self) -> bool:
        return self._query.isActive

    def failure(self) -> str | None:
        failure = self._query.exception()
        return None if failure is None else str(failure)

    def wait(self, seconds: float) -> None:
        """Until the query has ended, and at most this long."""
        query: Any = self._query  # its annotation allows whole seconds only
        with suppress(StreamingQueryException):  # `failure` tells it
            query.awaitTermination(seconds)

    def stop_if_idle(self) -> bool:
        """A query that waits for data has no batch to end at: it is stopped where it stands. Says whether it was."""
        if self._query.isActive and not self._query.status["isTriggerActive"]:
            self._query.stop()
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
    """`until_caught_up` ends the query at the offsets that were the newest when it started. A new one begins at
    `starts`, or where the log does."""
    own = session.newSession()  # settings of one view never reach another
    own.conf.set("spark.sql.shuffle.partitions", str(session.conf.get("spark.sql.shuffle.partitions")))
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
    writer = (
        frame.writeStream.queryName(name)
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(on_batch)
    )
    live = writer.trigger(processingTime=f"{every_s} seconds")
    return Query((writer.trigger(availableNow=True) if until_caught_up else live).start())
