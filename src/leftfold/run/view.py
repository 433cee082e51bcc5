"""One running view: it starts its query, has each batch applied, looks after its stores, and explains failures.

The steps of a batch are in `run.batch`; what a start compares and repairs is in `run.restart`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.declare.catalog import DeclaredView
from leftfold.declare.free import View
from leftfold.errors import LeftfoldError, RunError, StoreError
from leftfold.fold.build_id import BuildId
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.kafka.admin import Admin
from leftfold.kafka.changelog import StaleWriterError
from leftfold.kafka.lag_group import LagGroup
from leftfold.kafka.registry import SchemaRegistry
from leftfold.offsets import Offsets
from leftfold.run import batch as batches
from leftfold.run import refusals, restart
from leftfold.run.batch import Hooks
from leftfold.run.build import Destination, RunningBuild, ViewContext
from leftfold.run.positions import Positions
from leftfold.run.receipt_store import ReceiptStore
from leftfold.run.restart import Start
from leftfold.run.running import BatchRefusedError, RunAgainError, RunningReader
from leftfold.run.turns import StoppedError
from leftfold.run.watermark import Watermark
from leftfold.settings import group_id
from leftfold.spark.checkpoint import drop_foreign_snapshots, past_in, standing
from leftfold.spark.cutover import FrozenHistory, Past
from leftfold.spark.query import Job, Query, Snapshot, start_query
from leftfold.spark.sinks.online import TooWideError
from leftfold.spark.source import Source
from leftfold.spark.threads import CancelledError, Jobs
from leftfold.spark.views.job import job_of
from leftfold.spark.views.tiles import TilesJob

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

# How often an idle view checks whether its store still has what it wrote, and whether records were re-driven.
_LOOK_AFTER_S = 5.0


class RunningView(RunningReader):
    """A declared view that runs. Its build is known once its query has a checkpoint."""

    _job: Job
    _build: RunningBuild | None = None

    def __init__(
        self, declared: DeclaredView, source: Source, place: Destination, *, admin: Admin, registry: SchemaRegistry
    ) -> None:
        super().__init__(declared.name, source, registry, place.log_file)
        self.at_step: Callable[[str, int], None] = lambda step, batch: None
        self.watermark = Watermark(declared.reading.origins)
        self._declared = declared
        self._place = place
        self._staged = place.staged  # the build waits for `promote`
        self._admin = admin
        self._context = ViewContext(declared, place, admin, self.watermark, self.progress)
        self._lag_group = LagGroup(source.kafka, group_id(place.namespace, self.name))
        self._started = threading.Event()
        self._by_executors = False  # executors write: rows were too wide for the driver
        self._followed = False  # readers have been moved to this build
        self._seen: str | None = None  # the build that readers followed at the last check
        self._was_followed = False  # readers have followed this build at some time
        self._looked = clock.monotonic()
        self._redrive_due = 0.0  # no check for re-driven records before then
        self._jobs: Jobs | None = None  # the Spark jobs of the start under way
        self._closed = False

    def prepare(self, session: SparkSession) -> None:
        self._session = session
        self._job = job_of(self._declared, session, self._source, self.watermark.delay)

    @property
    def definition(self) -> Definition | Latest:
        return self._job.definition

    @property
    def known_fingerprint(self) -> str | None:
        """The fingerprint, if it is known before compilation; None for a function, whose plan only Spark knows."""
        return None if isinstance(self._declared.definition, View) else self._declared.fingerprint

    @property
    def tiles(self) -> TilesJob:
        """The job of a view of windowed features, for all tiles: also those that a scan of history made."""
        assert isinstance(self._job, TilesJob), f"{self.name} has no tiles"
        return replace(self._job, only=None)

    @property
    def admin(self) -> Admin:
        return self._admin

    @property
    def build(self) -> RunningBuild:
        assert self._build is not None, f"{self.name} was not started"
        return self._build

    @property
    def receipts(self) -> ReceiptStore | None:
        """The receipts of the build that it runs; None before the first start."""
        return self._build.receipts if self._build is not None else None

    @property
    def redrive_topic(self) -> str | None:
        return self._place.redrive

    @property
    def checkpoint(self) -> str:  # type: ignore[override] # known only once the view is compiled
        """The checkpoint's directory. Each definition has its own: a changed one never continues another's state."""
        return f"{self._place.checkpoints}/{self.name}/{self.definition.fingerprint}"

    def stop(self) -> None:
        """Ask for an end. A start is abandoned at the next safe line, and its Spark jobs are cancelled."""
        super().stop()
        jobs = self._jobs
        if jobs is not None:
            jobs.cancel()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._lag_group.close()
        if self._build is not None:
            with suppress(StoreError):  # the build then counts as running for up to two minutes more
                self._build.writer.rest()

    def beat(self) -> None:
        """Mark the build in the store as running. Any thread may call this.

        If another thread closes the view at the same moment, the build may count as running for two minutes more.
        """
        build = self._build
        if build is not None and self.running and not self._closed:
            build.writer.beat()

    # Starting --------------------------------------------------------------------------------------------------

    def _begin(self) -> Query:
        self._jobs = Jobs(self._session)
        try:
            with self._jobs.running():
                return self._compared()
        except CancelledError as cancelled:
            raise StoppedError from cancelled
        finally:
            self._jobs = None

    def _compared(self) -> Query:
        """Start the query once checkpoint, receipts and stores agree. The next start redoes anything left half done."""
        self._started.clear()
        self._followed = False
        self.prepare(self._session)
        positions = self._positions()
        topic_ids, past = positions.topic_ids(), None
        standing_at = standing(self._session, self.checkpoint)
        if standing_at is not None:
            build = self._open(standing_at.id, positions, topic_ids)
            build.past = past = past_in(self._session, self.checkpoint)
            restart.take_over(build, standing_at)
            self._job = build.job
            wait_s = restart.go_on(build, standing_at, Start(self._turns, self._turn, self._stopping))
            self._redrive_due = clock.monotonic() + max(_LOOK_AFTER_S, wait_s)
            drop_foreign_snapshots(self._session, self.checkpoint, standing_at.committed)
        self._unless_stopping()
        query = start_query(
            self._session,
            self._job,
            self._source,
            delay=self.watermark.delay,
            checkpoint=self.checkpoint,
            on_batch=self._on_batch,
            until_caught_up=self._until_caught_up,
            starts=past.frozen.starts if past else None,
        )
        if standing_at is None:
            self._note_change(self._open(query.checkpoint_id, positions, topic_ids))
        self._query = query
        self._started.set()  # only now may a batch be written: the build's name holds the checkpoint's id
        return query

    def _positions(self) -> Positions:
        return Positions(self._declared.reading.origins, self._source, self._admin, self._session, self.checkpoint)

    def _open(self, checkpoint_id: str, positions: Positions, topic_ids: dict[str, str]) -> RunningBuild:
        self._build = build = RunningBuild(
            self._context,
            self._source,
            self._job,
            positions,
            session=self._session,
            checkpoint=self.checkpoint,
            checkpoint_id=checkpoint_id,
            topic_ids=topic_ids,
        )
        self._staged = self._staged or (not self._place.take_over and self._is_changed(build))
        # A store that was emptied has forgotten this state; this process still knows it.
        if self._staged and self._seen != build.id:
            build.writer.stage()
        elif self._was_followed and self._seen != build.id:
            build.writer.hold()
        build.writer.beat()
        self.progress.build = build.id
        return build

    def _is_changed(self, build: RunningBuild) -> bool:
        """Return whether readers follow a build of another definition."""
        followed = build.writer.followed()
        return followed is not None and BuildId.parse(followed).fingerprint != self.definition.fingerprint

    def _note_change(self, build: RunningBuild) -> None:
        """Note for the user that a new build starts while readers follow another one.

        The build had no checkpoint: its definition changed, or it was started with `--fresh`.
        """
        followed = build.writer.followed()
        if followed is not None and followed != build.id:
            until = (
                f"{followed}, which is not updated meanwhile, until leftfold promote {self.name}"
                if self._staged
                else f"{followed} until it has caught up"
            )
            self.progress.note = f"a new build, {build.id}, reads the log from its start; readers follow {until}"

    def reserve(self, checkpoint_id: str) -> RunningBuild:
        """Stage a build whose checkpoint does not exist yet; it will have this id."""
        positions = self._positions()
        build = self._open(checkpoint_id, positions, positions.topic_ids())
        build.writer.stage(anew=True)
        return build

    def write_history(self, frozen: FrozenHistory, rows: DataFrame) -> Past:
        """Write the rows that a scan of history made, as if batch 0 had written them. The write is idempotent."""
        build = self.reserve(frozen.id)
        build.writer.begin_again()
        written = build.rewrite(rows, 0)
        assert written is not None
        build.writer.tell_history(written.calls)
        return Past(frozen, written.ledger, written.tiles, written.digest)

    # Batches ---------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        """Apply a batch, on Spark's thread. If this returns, the batch is committed.

        If it raises, the batch runs again with the same records.
        """
        self._started.wait()
        if self._stopping.is_set():
            raise BatchRefusedError("stopping before this batch; it runs again at the next start")
        try:
            if (seen := self.query.snapshot(self._partitions)) is not None:
                self._refuse_swept(seen)
            hooks = Hooks(self._look_at_batch, self.at_step, self._show_lag)
            batches.apply(batch, number, self.build, hooks, by_executors=self._by_executors)
        except TooWideError:
            self._by_executors = self._again = True
            raise BatchRefusedError("rows are wide; the batch runs again, written by the executors") from None
        except RunAgainError:
            self._again = True
            raise
        except StaleWriterError as stale:
            self._refusal = refusals.stale(self.name, stale)
            raise BatchRefusedError("store-ahead") from stale
        except LeftfoldError as refusal:
            self._refusal = refusal
            self._again = refusal.code == "store-behind"  # the view repairs the store at its next start
            raise BatchRefusedError(refusal.code) from refusal
        self._went_well()

    def _show_lag(self, ends: Offsets) -> None:
        """Show where the view is, in a consumer group. The group shows the build that readers follow."""
        if not self._staged or self._seen == self.progress.build:
            self._lag_group.publish(ends)

    # Looking after it ------------------------------------------------------------------------------------------

    def _noticed(self, seen: Snapshot) -> None:
        super()._noticed(seen)
        if seen.behind == 0 and self.progress.last is not None and not self._followed:
            self._follow()
        self._refuse_swept(seen)

    def _look_after(self) -> None:
        """Restart an idle query if its store has lost data or records were re-driven.

        Without this check, only the next batch would notice a loss.
        """
        if clock.monotonic() - self._looked < _LOOK_AFTER_S or self._query is None or self._stopping.is_set():
            return
        self._looked = clock.monotonic()
        build = self.build
        self._seen = build.writer.followed() or self._seen
        self._was_followed = self._was_followed or self._seen == build.id
        lost = build.writer.lacks(build.applied, build.redriven)
        redriven = clock.monotonic() >= self._redrive_due and restart.redrive_waits(build)
        if (lost or redriven) and self._query.stop_if_idle():
            self._start()

    def _caught_up(self) -> None:
        super()._caught_up()
        self.build.announce()  # a topic without records has no batch that would do it
        self._follow()

    def _follow(self) -> None:
        """Move readers to this build, which has caught up, unless it waits for `promote`."""
        self._place.publish()  # again: the store may have been emptied before the first batch
        self.build.writer.activate()
        self._followed = True

    def _refuse_swept(self, seen: Snapshot) -> None:
        """Raise an error if the watermark dropped rows of accepted records, which must never happen.

        It is checked before every batch and at the end, so that no batch is missed.
        """
        if seen.swept:
            raise refusals.swept(self.name, seen.swept, seen.batch)

    def _explain(self, failure: str) -> LeftfoldError:
        meaning = refusals.explained(self.name, failure, staged=self._place.staged, source=self._declared.source)
        if meaning is not None:
            return meaning
        if "DATA_LOSS" in failure or "OffsetOutOfRange" in failure:  # Spark says that data was lost; find out which
            try:
                restart.check_history(self.build, self.build.applied)
            except RunError as overtaken:
                return overtaken
        return super()._explain(failure)
