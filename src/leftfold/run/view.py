"""One running view: starts its query, applies its batches, and decides what a failure means."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.errors import LeftfoldError, LogError, RunError
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run import broom
from leftfold.run.progress import Batch, Progress
from leftfold.spark.checkpoint import batch_offsets
from leftfold.spark.free import NOT_UNIQUE, FreeJob
from leftfold.spark.jobs import job_of
from leftfold.spark.query import Job, Query, Snapshot, start_query
from leftfold.spark.sink import DRIVER_ROWS, Target, TooWideError, Written, counted_rows, write_large, write_small
from leftfold.spark.source import Offsets, Source, unknown_schema_id
from leftfold.spec.catalog import DeclaredView
from leftfold.store.layout import OUTCOMES, Build, LedgerRow, row_ttl_s
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
    checkpoints: str
    log_file: str


class RunningView:
    """Driven by the supervisor's loop (`poll`) and by Spark's thread (`_on_batch`)."""

    _query: Query
    _writer: BuildWriter
    _job: Job

    def __init__(
        self, declared: DeclaredView, source: Source, place: Place, *, admin: Admin, registry: SchemaRegistry
    ) -> None:
        self.name = declared.name
        self.progress = Progress(declared.name)
        self._declared = declared
        self._source = source
        self._place = place
        self._admin = admin
        self._registry = registry
        self._lateness = max(origin.lateness for origin in declared.reading.origins)
        self._delay = broom.first_delay(self._lateness)
        self._newest_log: dict[tuple[str, int], int] = {}  # by topic and partition: the log time that has been read
        self._ends: tuple[int, Offsets] | None = None  # the last batch written, and where it ends
        self._ledger: dict[str, LedgerRow] = {}  # as the store has it, at batch _applied
        self._applied = -1
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._refusal: LeftfoldError | None = None
        self._again = False  # the refused batch is to run again, in another way
        self._by_executors = False  # rows turned out too wide for the driver
        self._followed = False  # readers have been moved to this build

    def prepare(self, session: SparkSession) -> None:
        """Compile the view, or refuse it by name; nothing is started."""
        self._job = job_of(self._declared, session, self._source, self._delay)

    @property
    def definition(self) -> Definition | Latest:
        return self._job.definition

    @property
    def checkpoint(self) -> str:
        """One per definition: a changed definition never continues another's state."""
        return f"{self._place.checkpoints}/{self.name}/{self.definition.fingerprint}"

    def start(self, session: SparkSession, *, until_caught_up: bool) -> None:
        self._session = session
        self._until_caught_up = until_caught_up
        self._started.clear()
        self.prepare(session)
        self._query = start_query(
            session,
            self._job,
            self._source,
            delay=self._delay,
            checkpoint=self.checkpoint,
            on_batch=self._on_batch,
            until_caught_up=until_caught_up,
        )
        build = Build(self.definition, self._query.checkpoint_id)
        self._writer = BuildWriter(self._place.online_url, self._place.namespace, build)
        self._target = Target(self._place.online_url, self._writer.row_prefix, row_ttl_s(self.definition))
        self.progress.build = build.id
        self.progress.state = "running"
        self._started.set()  # only now may a batch be written: the build's name holds the checkpoint's id

    @property
    def running(self) -> bool:
        return self.progress.state == "running"

    def wait(self) -> None:
        """Until the view has ended: for callers without a loop of their own."""
        while self.running:
            self._query.wait(0.2)
            self.poll()

    def stop(self) -> None:
        """Ask for an end at the next batch boundary; `poll` sees to it."""
        self._stopping.set()

    def poll(self) -> None:
        """Notice progress, the end, or a failure. One view's trouble is kept with it."""
        if not self.running:
            return
        if self._stopping.is_set():
            self._query.stop_if_idle()
        try:
            self._look()
        except LeftfoldError as error:
            if error.retriable and self._query.active:
                return  # the store is away for a moment; the next batch decides whether it is for good
            self.progress.error = error
            self.stop()
            self._query.stop_if_idle()
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
        elif self._again:
            self._again = False
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
            if (seen := self._query.snapshot(sum(self._source.partitions))) is not None:
                self._refuse_swept(seen)
            if self.progress.last is None:
                self._resume()
            self._writer.check(number)
            ends = batch_offsets(self._session, self.checkpoint, number)
            written = self._write(batch, number, ends)
            ledger = self._cumulative(number, written.ledger)
            self._reach(ledger)
            if self._job.sweeps:
                self._guard(ends)
            self._writer.mark(number, ledger)
        except LeftfoldError as refusal:
            self._refusal = refusal
            raise _BatchRefusedError(refusal.code) from refusal
        self._applied, self._ends = number, (number, ends)
        self._ledger |= {row.name: row for row in ledger}
        newest = max((row.newest_log for row in ledger), default=0)
        self.progress.applied(Batch(number, written.tiles, newest, clock.now_us()), ledger)

    def _resume(self) -> None:
        """Before the first batch of this run: what the store says was applied by earlier ones."""
        self._applied, before = self._writer.ledger()
        self._ledger = {row.name: row for row in before}
        self.progress.resume(before)
        self._reach(before)
        self._writer.announce()

    def _write(self, batch: DataFrame, number: int, ends: Offsets) -> Written:
        """Into the store: by the driver if the batch is surely small, else by the executors."""
        known = self._ends is not None and self._ends[0] == number - 1
        starts = self._ends[1] if self._ends and known else batch_offsets(self._session, self.checkpoint, number - 1)
        packed = self._job.packed(batch, number)
        if self._small(starts, ends):
            try:
                written = write_small(packed, self._target)
            except TooWideError:
                self._by_executors = self._again = True
                raise _BatchRefusedError("rows are wide; the batch runs again, written by the executors") from None
        else:
            written = write_large(packed, self._target)
        if isinstance(self._job, FreeJob):
            counts = self._job.counted(self._session, self._source, starts, ends)
            return replace(written, ledger=counted_rows(counts))
        return written

    def _small(self, starts: Offsets, ends: Offsets) -> bool:
        per_record = self._job.rows_per_record
        if per_record is None or self._by_executors:
            return False
        records = sum(
            end - starts.get(topic, {}).get(p, 0) for topic, parts in ends.items() for p, end in parts.items()
        )
        return records * per_record + len(OUTCOMES) * sum(self._source.partitions) <= DRIVER_ROWS

    def _cumulative(self, number: int, ledger: tuple[LedgerRow, ...]) -> tuple[LedgerRow, ...]:
        if self._job.cumulative:
            return ledger
        if self._applied == number:  # marked before a crash, and run again: it is counted already
            return tuple(self._ledger.values())
        return tuple(row.after(self._ledger.get(row.name)) for row in ledger)

    def _reach(self, ledger: Iterable[LedgerRow]) -> None:
        for row in ledger:
            place = (row.topic, row.partition)
            self._newest_log[place] = max(row.newest_log, self._newest_log.get(place, 0))

    def _guard(self, ends: Offsets) -> None:
        """Refuse the batch if its commit would let the watermark overtake records that are still to be read."""
        unread: list[tuple[str, int]] = []
        for declared, topic, partitions in self._topics:
            try:
                latest = self._admin.end_offsets(topic, partitions)
                unread += [(declared, p) for p, end in latest.items() if end > ends.get(topic, {}).get(p, 0)]
            except LogError:  # a leader is being elected: assume that every partition has records to come
                unread += [place for place in self._newest_log if place[0] == declared]
        wider = broom.wider_delay(self._delay, lateness=self._lateness, newest_log=self._newest_log, unread=unread)
        if wider is not None:
            self._delay, self._again = wider, True
            raise _BatchRefusedError("a partition is read far behind the others; the batch runs again, swept later")

    @cached_property
    def _topics(self) -> list[tuple[str, str, int]]:
        """As declared, as the cluster names them, and how many partitions they have."""
        declared = [origin.topic for origin in self._declared.reading.origins]
        return list(zip(declared, self._source.topics, self._source.partitions, strict=True))

    def _notice_progress(self) -> None:
        seen = self._query.snapshot(sum(self._source.partitions))
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
                f"{self.name}: Spark's watermark dropped {seen.swept} rows of accepted records",
                why="a partition was read far behind another, and the check before the commit did not see it",
                state=f"batch {seen.batch} is committed without them: this build is no longer true to the log",
                fix=f"leftfold run --fresh {self.name}",
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
        if NOT_UNIQUE in failure:
            key = failure.split(NOT_UNIQUE, 1)[1].split("\n", 1)[0].split(" SQLSTATE", maxsplit=1)[0]
            return RunError(
                "view-rows-not-unique",
                f"{self.name} gave several rows for the key {key!r} in one batch",
                why="a key has one row, and nothing says which of these it is",
                state="the batch is not committed; readers see the rows before it",
                fix='name the column that decides: @lf.view(..., latest="window_end")',
                source=self._declared.source,
            )
        lines = [line.strip() for line in failure.splitlines() if line.strip()]
        cause = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[0])
        return RunError(
            "view-failed",
            f"{self.name} stopped",
            why=cause[:300],
            state="its last batch is not committed; it runs again, with the same records, at the next start",
            fix=f"see {self._place.log_file}; then leftfold run",
            retriable=True,
        )
