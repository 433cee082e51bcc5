"""One running view: starts its query, applies its batches, and decides what a failure means."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.errors import LeftfoldError, LogError, RunError
from leftfold.fold.definition import Definition
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run import broom
from leftfold.run.progress import Batch, Progress
from leftfold.spark.checkpoint import end_offsets
from leftfold.spark.query import Query, Snapshot, start_query
from leftfold.spark.sink import write_batch
from leftfold.spark.source import Source, unknown_schema_id
from leftfold.store.layout import Build, LedgerRow
from leftfold.store.writer import BuildWriter

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession


class _BatchRefusedError(Exception):
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

    _query: Query
    _writer: BuildWriter

    def __init__(
        self, definition: Definition, source: Source, place: Place, *, admin: Admin, registry: SchemaRegistry
    ) -> None:
        self.definition = definition
        self.progress = Progress(definition.view)
        self._source = source
        self._place = place
        self._admin = admin
        self._registry = registry
        self._delay = broom.first_delay(definition.lateness)
        self._newest_log: dict[int, int] = {}  # by partition: the log time that has been read
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._refusal: LeftfoldError | None = None
        self._wider: int | None = None  # the delay that the refused batch needs
        self._followed = False  # readers have been moved to this build

    def start(self, session: SparkSession, *, until_caught_up: bool) -> None:
        self._session = session
        self._until_caught_up = until_caught_up
        self._started.clear()
        self._query = start_query(
            session,
            self.definition,
            self._source,
            delay=self._delay,
            checkpoint=self._place.checkpoint,
            on_batch=self._on_batch,
            until_caught_up=until_caught_up,
        )
        build = Build(self.definition, self._query.checkpoint_id)
        self._writer = BuildWriter(self._place.online_url, self._place.namespace, build)
        self.progress.build = build.id
        self.progress.state = "running"
        self._started.set()  # only now may a batch be written: the build's name holds the checkpoint's id

    @property
    def running(self) -> bool:
        return self.progress.state == "running"

    def wait(self) -> None:
        """Until the view has ended: for callers without a loop of their own."""
        while self.running:
            self._query.wait(1.0)
            self.poll()

    def stop(self) -> None:
        """Ask for an end at the next batch boundary."""
        self._stopping.set()
        self._query.stop_if_idle()

    def poll(self) -> None:
        """Notice progress, the end, or a failure. One view's trouble is kept with it."""
        if not self.running:
            return
        try:
            self._look()
        except LeftfoldError as error:
            if error.retriable and self._query.active:
                return  # the store is away for a moment; the next batch decides whether it is for good
            self.progress.error = error
            self.stop()
            self.progress.state = "failed"

    def _look(self) -> None:
        self._notice_progress()
        if self._query.active:
            return
        failure = self._query.failure()
        if self._stopping.is_set():
            self.progress.state = "failed" if self.progress.error else "stopped"
        elif failure is None:
            self.progress.lag = 0
            self._writer.announce()  # a topic without records has had no batch to do it
            self._follow()
            self.progress.state = "caught up"
        elif self._wider is not None:
            self._delay, self._wider = self._wider, None
            self.start(self._session, until_caught_up=self._until_caught_up)
        elif not self._learn_schema(failure):
            self.progress.error = self._refusal or self._explain(failure)
            self.progress.state = "failed"

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        """On Spark's thread. Returning commits the batch; raising leaves it to be run again with the same records."""
        self._started.wait()
        if self._stopping.is_set():
            raise _BatchRefusedError("stopping before this batch; it runs again at the next start")
        try:
            if (seen := self._query.snapshot(self._source.partitions)) is not None:
                self._refuse_swept(seen)
            if self.progress.last is None:
                before = self._writer.ledger()
                self.progress.resume(before)
                self._reach(before)
                self._writer.announce()
            self._writer.check(number)
            url, prefix = self._place.online_url, self._writer.row_prefix
            written = write_batch(batch, self.definition, number, url=url, row_prefix=prefix)
            self._reach(written.ledger)
            self._guard(number)
            self._writer.mark(number, written.ledger)
        except LeftfoldError as refusal:
            self._refusal = refusal
            raise _BatchRefusedError(refusal.code) from refusal
        newest = max((row.newest_log for row in written.ledger), default=0)
        self.progress.applied(Batch(number, written.tiles, newest, clock.now_us()), written.ledger)

    def _reach(self, ledger: Iterable[LedgerRow]) -> None:
        for row in ledger:
            self._newest_log[row.partition] = max(row.newest_log, self._newest_log.get(row.partition, 0))

    def _guard(self, number: int) -> None:
        """Refuse the batch if its commit would let the watermark overtake records that are still to be read."""
        ends = end_offsets(self._session, self._place.checkpoint, number)
        try:
            latest = self._admin.end_offsets(self._source.topic, self._source.partitions)
            unread = [p for p, end in latest.items() if end > ends.get(p, 0)]
        except LogError:  # a leader is being elected: assume that every partition has records to come
            unread = list(self._newest_log)
        self._wider = broom.wider_delay(
            self._delay, lateness=self.definition.lateness, newest_log=self._newest_log, unread=unread
        )
        if self._wider is not None:
            raise _BatchRefusedError("a partition is read far behind the others; the batch runs again, swept later")

    def _notice_progress(self) -> None:
        seen = self._query.snapshot(self._source.partitions)
        if seen is None:
            return
        self.progress.rate = seen.rate
        if seen.behind is not None:
            self.progress.lag = seen.behind
            if seen.behind == 0 and self.progress.last is not None and not self._followed:
                self._follow()
        self._refuse_swept(seen)

    def _refuse_swept(self, seen: Snapshot) -> None:
        """What must never happen. Looked at before every batch and at the end, so that no batch goes unseen."""
        if seen.swept:
            raise RunError(
                "accepted-records-swept",
                f"{self.definition.view}: Spark's watermark dropped {seen.swept} rows of accepted records",
                why="a partition was read far behind another, and the check before the commit did not see it",
                state=f"batch {seen.batch} is committed without them: this build is no longer true to the log",
                fix=f"leftfold run --fresh {self.definition.view}",
            )

    def _follow(self) -> None:
        """Caught up: readers move to this build."""
        self._writer.activate()
        self._followed = True

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

    def _explain(self, failure: str) -> RunError:
        lines = [line.strip() for line in failure.splitlines() if line.strip()]
        cause = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[0])
        return RunError(
            "view-failed",
            f"{self.definition.view} stopped",
            why=cause[:300],
            state="its last batch is not committed; it runs again, with the same records, at the next start",
            fix=f"see {self._place.log_file}; then leftfold run",
            retriable=True,
        )
