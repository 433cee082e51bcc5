"""One running view: starts its query, applies its batches, and decides what a failure means."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leftfold import clock
from leftfold.errors import LeftfoldError, RunError
from leftfold.fold.definition import Definition
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run.progress import Batch, Progress
from leftfold.spark.query import start_query
from leftfold.spark.sink import write_batch
from leftfold.spark.source import Source, unknown_schema_id
from leftfold.store.layout import Build
from leftfold.store.writer import BuildWriter


class _Refused(Exception):
    """Raised inside a batch so that Spark does not commit it; the reason is kept beside it."""


@dataclass(frozen=True)
class Place:
    """Where a view's effects go."""

    online_url: str
    namespace: str
    checkpoint: str
    log_file: str


class RunningView:
    """Driven by the supervisor's loop (`poll`) and by Spark's thread (`_on_batch`)."""

    def __init__(self, definition: Definition, source: Source, place: Place, registry: SchemaRegistry) -> None:
        self.definition = definition
        self.progress = Progress(definition.view)
        self._source = source
        self._place = place
        self._registry = registry
        self._query: StreamingQuery | None = None
        self._writer: BuildWriter | None = None
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._refusal: LeftfoldError | None = None

    def start(self, session: SparkSession, *, until_caught_up: bool) -> None:
        self._session = session
        self._until_caught_up = until_caught_up
        self._started.clear()
        self._query = start_query(
            session,
            self.definition,
            self._source,
            checkpoint=self._place.checkpoint,
            on_batch=self._on_batch,
            until_caught_up=until_caught_up,
        )
        build = Build(self.definition, str(self._query.id))
        self._writer = BuildWriter(self._place.online_url, self._place.namespace, build)
        self.progress.build = build.id
        self.progress.state = "running"
        self._started.set()  # only now may a batch be written: the build's name holds the checkpoint's id

    @property
    def running(self) -> bool:
        return self.progress.state == "running"

    def poll(self) -> None:
        """Notice progress, the end, or a failure."""
        query, writer = self._query, self._writer
        if query is None or writer is None or not self.running:
            return
        self._notice_progress(query, writer)
        if query.isActive:
            return
        failure = query.exception()
        if failure is None or self._stopping.is_set():
            if self._until_caught_up and not self._stopping.is_set():
                self.progress.lag = 0
                writer.announce()
                writer.activate()
            self.progress.state = "stopped" if self._stopping.is_set() else "caught up"
        elif not self._learn_schema(str(failure)):
            self.progress.error = self._refusal or self._explain(failure)
            self.progress.state = "failed"

    def stop(self) -> None:
        """Ask for an end at the next batch boundary."""
        self._stopping.set()

    def end_if_idle(self) -> None:
        """A query that waits for data has no batch to end at: it is stopped where it stands."""
        if self._query is not None and self._query.isActive and not self._query.status["isTriggerActive"]:
            self._query.stop()

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        self._started.wait()
        if self._stopping.is_set():
            raise _Refused("stopping before this batch; it runs again at the next start")
        writer = self._writer
        assert writer is not None  # set before _started
        try:
            if self.progress.last is None:
                self.progress.resume(writer.ledger())
                writer.announce()
            writer.check(number)
            url, prefix = self._place.online_url, writer.row_prefix
            written = write_batch(batch, self.definition, number, url=url, row_prefix=prefix)
            writer.mark(number, written.ledger)
        except LeftfoldError as refusal:
            self._refusal = refusal
            raise _Refused(refusal.code) from refusal
        newest = max((row.newest_log for row in written.ledger), default=0)
        self.progress.applied(Batch(number, written.tiles, newest, clock.now_us()), written.ledger)

    def _notice_progress(self, query: StreamingQuery, writer: BuildWriter) -> None:
        latest: Any = query.lastProgress
        if latest is None or not latest.sources:
            return
        self.progress.rate = float(latest.processedRowsPerSecond or 0.0)
        behind = (latest.sources[0].metrics or {}).get("maxOffsetsBehindLatest")
        if behind is not None:
            average = float(latest.sources[0].metrics["avgOffsetsBehindLatest"])
            self.progress.lag = round(average * self._source.partitions)
            if int(behind) == 0 and latest.batchId == (self.progress.last and self.progress.last.number):
                writer.activate()
        dropped = sum(int(operator.numRowsDroppedByWatermark) for operator in latest.stateOperators)
        if dropped and self._refusal is None:
            self._refusal = RunError(
                "accepted-records-swept",
                f"{self.definition.view}: Spark's watermark dropped {dropped} rows of accepted records",
                why="one partition was read more than an hour of log time behind another",
                state=f"batch {latest.batchId} is committed without them: this build is no longer true to the log",
                fix=f"leftfold run --fresh {self.definition.view}",
            )
            self.stop()
            self.progress.error = self._refusal

    def _learn_schema(self, failure: str) -> bool:
        """A schema version that appeared after the start: read it in, and run the same batch again."""
        schema_id = unknown_schema_id(failure)
        if schema_id is None or schema_id in self._source.writer_schemas or schema_id in self._source.rejected_ids:
            return False
        schema = self._registry.schema(schema_id)
        if schema is None:
            self._source = replace(self._source, rejected_ids=self._source.rejected_ids | {schema_id})
        else:
            known = {**self._source.writer_schemas, schema_id: schema}
            self._source = replace(self._source, writer_schemas=known)
        self.start(self._session, until_caught_up=self._until_caught_up)
        return True

    def _explain(self, failure: StreamingQueryException) -> RunError:
        lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
        cause = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[0])
        return RunError(
            "view-failed",
            f"{self.definition.view} stopped",
            why=cause[:300],
            state="its last batch is not committed; it runs again, with the same records, at the next start",
            fix=f"see {self._place.log_file}; then leftfold run",
            retriable=True,
        )
