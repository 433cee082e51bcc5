"""One running view: it writes batches into its stores, each with a receipt, and explains failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.declare.catalog import DeclaredView
from leftfold.declare.free import View
from leftfold.declare.sinks import Lake
from leftfold.errors import LeftfoldError, LogError, RunError, StoreError
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.kafka import changelog as log_writer
from leftfold.kafka.admin import Admin
from leftfold.kafka.changelog import ChangelogTopic, StaleWriterError
from leftfold.kafka.lag_group import LagGroup
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.kafka.record_hash import hashes_at
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run import reconcile, redrive, refusals, watermark
from leftfold.run.progress import Batch
from leftfold.run.receipt_store import DETAILS_KEPT, ReceiptStore
from leftfold.run.receipts import Receipt, counted
from leftfold.run.running import BatchRefusedError, RunningReader
from leftfold.run.turns import StoppedError
from leftfold.settings import group_id
from leftfold.spark.checkpoint import (
    CheckpointState,
    ReceiptsBookmark,
    batch_offsets,
    drop_foreign_snapshots,
    past_in,
    standing,
)
from leftfold.spark.cutover import FrozenHistory, Past
from leftfold.spark.history.recompute import lifetime_from, recomputed, recomputing
from leftfold.spark.history.records import over_history, read_history, session_for
from leftfold.spark.query import Job, Query, Snapshot, start_query
from leftfold.spark.sinks.changelog import write_changelog, write_changelog_rows
from leftfold.spark.sinks.online import (
    DRIVER_ROWS,
    Output,
    Target,
    TooWideError,
    Written,
    collected,
    counted_rows,
    kept,
    write_online,
)
from leftfold.spark.source import Offsets, Source
from leftfold.spark.threads import CancelledError, Jobs
from leftfold.spark.views.free import FreeJob
from leftfold.spark.views.job import job_of
from leftfold.spark.views.tiles import TilesJob
from leftfold.store.layout import DIGESTS, OUTCOMES, PASSED, WRITTEN, Build, LedgerRow, reached, row_ttl_s
from leftfold.store.writer import BuildWriter, Calls

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

# How often an idle view checks whether its store still has what it wrote, and whether records were re-driven.
_LOOK_AFTER_S = 5.0
# The points of a batch at which a test can stop it, in their order.
STEPS = ("begun", "online rows", "online mark", "changelog", "receipt")


@dataclass(frozen=True)
class Destination:
    """The places to which a view writes."""

    online_url: str
    namespace: str
    checkpoints: str
    log_file: str
    receipts: ReceiptLog
    changelog: str | None  # the topic, as the cluster names it, if the view has one
    redrive: str | None  # the topic of re-driven records; None for a view of several topics or a compacted one
    publish: Callable[[], None]  # writes what else the store holds for readers
    staged: bool = False  # the build waits for `promote`


class RunningView(RunningReader):
    _writer: BuildWriter
    _job: Job
    _books: ReceiptStore

    def __init__(
        self, declared: DeclaredView, source: Source, place: Destination, *, admin: Admin, registry: SchemaRegistry
    ) -> None:
        super().__init__(declared.name, source, registry, place.log_file)
        self.at_step: Callable[[str, int], None] = lambda step, batch: None
        self._declared = declared
        self._place = place
        self._admin = admin
        self._lateness = max(origin.lateness for origin in declared.reading.origins)
        self._back = watermark.steps_back(declared.reading.origins)
        self._delay = watermark.first_delay(self._lateness)
        self._newest_log: dict[tuple[str, int], int] = {}  # by topic and partition: the newest log time read so far
        self._ends: tuple[int, Offsets] | None = None  # the last written batch, and where it ends
        self._ledger: dict[str, LedgerRow] = {}  # the store's ledger at batch _applied
        self._applied = -1
        self._past: Past | None = None  # the part of the build that a scan of history made
        self._passed = False  # the stream has read past the end of that scan
        self._receipt: Receipt | None = None  # the receipt of the batch before the current one
        self._redriven = self._beyond = 0
        self._begins: Offsets = {}  # where the build began
        self._redrive_due = 0.0  # no check for re-driven records before then
        self._changelog: ChangelogTopic | None = None
        self._log_again = -1  # a batch to write to the changelog even if its mark is there
        self._scope = group_id(place.namespace, self.name)
        self._shadow = LagGroup(source.kafka, self._scope)
        self._stores: dict[str, str] = {}
        self._started = threading.Event()
        self._by_executors = False  # executors write: rows were too wide for the driver
        self._followed = False  # readers have been moved to this build
        self._seen: str | None = None  # the build that readers followed at the last check
        self._was_followed = False  # readers have followed this build at some time
        self._looked = clock.monotonic()
        self._jobs: Jobs | None = None  # the Spark jobs of the start under way
        self._closed = False

    def prepare(self, session: SparkSession) -> None:
        self._session = session
        self._job = job_of(self._declared, session, self._source, self._delay)

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
    def books(self) -> ReceiptStore | None:
        """The receipts of the build that it runs; None before the first start."""
        return self._books if self.progress.build is not None else None

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
        self._shadow.close()
        if self.progress.build is not None:
            with suppress(StoreError):  # the build then counts as running for up to two minutes more
                self._writer.rest()

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
        self._topic_ids = self._ids()
        self._past = None
        found = standing(self._session, self.checkpoint)
        if found is not None:
            self._open(found.id)
            self._take_over_from(found)
            self._go_on(found)
            drop_foreign_snapshots(self._session, self.checkpoint, found.committed)
        self._unless_stopping()
        query = start_query(
            self._session,
            self._job,
            self._source,
            delay=self._delay,
            checkpoint=self.checkpoint,
            on_batch=self._on_batch,
            until_caught_up=self._until_caught_up,
            starts=self._past.frozen.starts if self._past else None,
        )
        if found is None:
            self._open(query.checkpoint_id)
            self._tell_of_change()
        self._query = query
        self._started.set()  # only now may a batch be written: the build's name holds the checkpoint's id
        return query

    def _open(self, checkpoint_id: str) -> None:
        place, build = self._place, Build(self.definition, checkpoint_id)
        self._writer = BuildWriter(place.online_url, place.namespace, build)
        self._target = Target(place.online_url, self._writer.row_prefix, row_ttl_s(self.definition), self._writer.calls)
        self._books = ReceiptStore(
            place.receipts,
            f"{self.name}/{build.id}",
            bookmark=ReceiptsBookmark(self._session, self.checkpoint),
            kept=None if any(isinstance(sink, Lake) for sink in self._declared.sinks) else DETAILS_KEPT,
        )
        self._receipt, self._redriven, self._beyond = None, 0, 0
        self._applied, self._ledger, self._ends, self._log_again = -1, {}, None, -1
        if place.changelog is not None:
            partitions = self._admin.partitions_of(place.changelog)
            writers = min(log_writer.WRITERS, partitions)
            self._changelog = ChangelogTopic(
                self._source.kafka, place.changelog, f"{self._scope}.{build.id}", build.id, writers
            )
            # Compaction does not move a first offset. If one has moved, somebody deleted records.
            firsts = sum(self._admin.start_offsets(place.changelog, partitions).values())
            self._stores = {"changelog": f"{self._admin.topic_ids([place.changelog])[place.changelog]}@{firsts}"}
        # A store that was emptied has forgotten this state; this process still knows it.
        if place.staged and self._seen != build.id:
            self._writer.stage()
        elif self._was_followed and self._seen != build.id:
            self._writer.hold()
        self._writer.beat()
        self.progress.build = build.id

    def _take_over_from(self, found: CheckpointState) -> None:
        """Limit the stream to the tiles that a scan of history has not made; see `spark.cutover`."""
        self._past = past_in(self._session, self.checkpoint)
        if self._past is None or not isinstance(self._job, TilesJob):
            return
        frozen = self._past.frozen
        self._job = replace(self._job, only=frozen.open(self._source.topics))
        self._passed = found.committed >= 0 and frozen.passed_by(self._offsets(found.committed))
        if not self._passed:
            # Everything the stream reads again was logged after the oldest cut: so no partition is further behind
            # another than the time since then.
            spread = clock.now_us() - min(frozen.cuts.values()) + self._job.definition.future + watermark.CLOCK_SLACK
            self._delay = max(self._delay, watermark.first_delay(self._lateness) + spread)

    def _tell_of_change(self) -> None:
        """Note for the user that a new build starts while readers follow another one.

        The build had no checkpoint: its definition changed, or it was started with `--fresh`.
        """
        followed = self._writer.followed()
        if followed is not None and followed != self.progress.build:
            self.progress.note = (
                f"a new build, {self.progress.build}, reads the log from its start; "
                f"readers follow {followed} until it has caught up"
            )

    def _go_on(self, found: CheckpointState) -> None:
        """Compare checkpoint, receipts and stores, and repair a store that is behind."""
        if found.planned < 0:
            return  # the run died before its first batch had begun
        receipts = self._books.read(found.committed)
        newest = receipts[-1] if receipts else None
        planned = newest is not None and newest.last <= found.planned
        offsets = self._declared_offsets(self._reached(newest.last)) if newest and planned else None
        reconcile.check_receipts(self.name, found, receipts, offsets)
        reconcile.check_topics(self.name, newest, self._topic_ids)
        self._check_history(found.committed)
        self._check_log(newest)
        self._receipt = next((r for r in receipts if r.last == found.committed), None)
        self._begins = self._first_offsets(receipts)
        self._redriven = self._receipt.redriven if self._receipt else 0
        self._beyond = self.progress.beyond = self._receipt.beyond if self._receipt else 0
        mark = self._check_ahead(found)
        if self._receipt is not None:
            online, changelog = self._writer.applied() < found.committed, self._receipt.stores != self._stores
            if online or changelog:
                self._repair(self._receipt, found, mark, online=online, changelog=changelog)
        # A store may have lost only the changes of re-driven records: then all of them are applied again.
        if self._writer.redriven() < self._redriven:
            self._redriven = self._beyond = 0
        self._applied, before = self._writer.ledger()
        self._ledger = {row.name: row for row in before}
        if self.progress.last is None:  # else this run restarted its query, and has counted it already
            self.progress.resume(before)
        self._reach(before)
        if self._receipt is not None:
            self._writer.announce()
            if found.planned == found.committed:  # else the changelog may hold the batch that will run again
                self._redrive(self._receipt)

    def _check_ahead(self, found: CheckpointState) -> int:
        """Refuse to continue if a store is ahead of the checkpoint; return the newest batch of the changelog.

        A store is ahead if another run of this build is active, or if the checkpoint was restored from a backup. The
        receipts would show that too, unless they were lost. The newest batch is the committed one, or already the one
        that will run again; -1 without a changelog.
        """
        self._writer.check_not_beyond(found.planned)
        if self._changelog is None:
            return -1
        mark = max(log_writer.marks(self._changelog).values())
        if mark > found.planned:
            raise refusals.stale(self.name, StaleWriterError(mark, found.planned))
        return mark

    def _repair(self, receipt: Receipt, found: CheckpointState, mark: int, *, online: bool, changelog: bool) -> None:
        """Recompute everything that a read can reach, up to the last committed batch, for the stores that lack it."""
        self.progress.state = "repairing"
        newest = reached(receipt.ledger, self._declared.reading.origins, clock.now_us())
        job = self.tiles if isinstance(self._job, TilesJob) else self._job
        starts = reconcile.history(
            self._session, self.name, job, self._source, self._admin, newest_event=newest, begins=self._begins
        )
        self._writer.begin_again()
        written: Written | None = None

        ends = self._reached(receipt.last)
        own = session_for(self._session, starts, ends)

        def filled() -> None:
            nonlocal written
            records = read_history(own, self._source, starts, ends)
            packed = recomputed(records, job, receipt.last, newest_event=newest)
            if receipt.redriven and self._place.redrive is not None:
                every = redrive.in_place(records, own, self._source, self._place.redrive, receipt.redriven)
                packed = lifetime_from(packed, recomputed(every, job, receipt.last, newest_event=newest))
            # The changelog may already hold the batch that will run again. These rows must not be older than that.
            written = self._rewrite(packed, max(receipt.last, mark), online=online, changelog=changelog)

        self._turn.end()
        with self._turns.repair(self._stopping), recomputing(self.name):
            over_history(filled)
        if written is not None:
            self._writer.restore(
                receipt.last,
                receipt.ledger,
                written.calls,
                redriven=receipt.redriven,
                history=None if self._past is None else PASSED if self._passed else WRITTEN,
            )
            self._place.publish()
        if changelog and found.planned == found.committed:
            self._receipt = replace(receipt, stores={**receipt.stores, **self._stores})
            self._books.write(self._receipt)
        elif changelog:
            # In the changelog, older rows now follow those of the batch that will run again. So that batch is written
            # once more, and only its own receipt says that the changelog is complete. If the process dies before that,
            # the next start repairs the changelog again.
            self._log_again = found.planned
        self.progress.repairs += 1

    def _redrive(self, receipt: Receipt) -> None:
        """Apply re-driven records to tiles that no record in the log can change any more."""
        if self._place.redrive is None or not isinstance(self._job, TilesJob):
            return
        if self._admin.end_offsets(self._place.redrive, 1)[0] <= self._redriven:
            self.progress.pending = 0
            return
        ends = self._offsets(receipt.last)
        if self._past is not None and not self._passed:
            return  # the stream still reads records again, and would overwrite a corrected tile
        closed = self._frontier(ends) - self._lateness - watermark.CLOCK_SLACK
        self._turn.end()
        self._unless_stopping()
        self._writer.begin_again()
        calls: list[Calls] = []

        def write(rows: DataFrame, number: int) -> None:
            written = self._rewrite(rows, number)
            calls.extend(written.calls if written else ())

        with recomputing(self.name):
            done = redrive.apply(
                self._session,
                self._source,
                self._job,
                self._admin,
                topic=self._place.redrive,
                since=self._redriven,
                begins=self._begins,
                ends=ends,
                number=receipt.last,
                closed=closed,
                write=write,
            )
        self.progress.pending = done.pending
        wait_s = 0.0 if done.closes is None else (done.closes - closed) / 1e6
        self._redrive_due = clock.monotonic() + max(_LOOK_AFTER_S, wait_s)
        if done.until > self._redriven:
            self._writer.move_redriven(receipt.last, calls, since=self._redriven, until=done.until)
            self._redriven = done.until
            self._beyond += done.beyond
            self.progress.beyond = self._beyond
            self._receipt = replace(receipt, redriven=self._redriven, beyond=self._beyond)
            self._books.write(self._receipt)

    def reserve(self, checkpoint_id: str) -> None:
        """Stage a build whose checkpoint does not exist yet; it will have this id."""
        self._open(checkpoint_id)
        self._writer.stage(anew=True)

    def write_history(self, frozen: FrozenHistory, rows: DataFrame) -> Past:
        """Write the rows that a scan of history made, as if batch 0 had written them. The write is idempotent."""
        self.reserve(frozen.id)
        self._writer.begin_again()
        written = self._rewrite(rows, 0)
        assert written is not None
        self._writer.tell_history(written.calls)
        return Past(frozen, written.ledger, written.tiles, written.digest)

    def beat(self) -> None:
        """Mark the build in the store as running. Any thread may call this.

        If another thread closes the view at the same moment, the build may count as running for two minutes more.
        """
        if self.progress.build is not None and self.running and not self._closed:
            self._writer.beat()

    def _rewrite(
        self, packed: DataFrame, number: int, *, online: bool = True, changelog: bool = True
    ) -> Written | None:
        """Write recomputed rows under batch `number`, even if the changelog has this batch already.

        Return None if the online store is left out.
        """
        both = online and changelog and self._changelog is not None
        output = kept(packed) if both else Output(packed)
        written = None
        try:
            if online:
                written = write_online(output, self._target)
            if changelog and self._changelog is not None:
                write_changelog(output.packed, self._changelog, number, repair=True)
        finally:
            output.release()
        return written

    def _frontier(self, ends: Offsets) -> int:
        """The moment before which no unread record was logged, apart from differences of the brokers' clocks."""
        by_broker = all(origin.log_time == "broker" for origin in self._declared.reading.origins)
        # Ask for the time before the look at the log's ends: a record logged after that look is logged after this
        # moment. Never use this machine's clock, which may be ahead: a tile would be closed too early, and a later
        # record of that tile would undo a correction.
        now = self._place.receipts.broker_time(self._books.scope) if by_broker else None
        behind = [place for place in self._unread(ends) if place in self._newest_log]
        if now is not None and not behind:
            return now
        return min((self._newest_log[place] for place in behind or self._newest_log), default=0) - self._back

    # Batches ---------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        """Apply a batch, on Spark's thread. If this returns, the batch is committed.

        If it raises, the batch runs again with the same records.
        """
        self._started.wait()
        if self._stopping.is_set():
            raise BatchRefusedError("stopping before this batch; it runs again at the next start")
        try:
            self._apply(batch, number)
        except StaleWriterError as stale:
            self._refusal = refusals.stale(self.name, stale)
            raise BatchRefusedError("store-ahead") from stale
        except LeftfoldError as refusal:
            self._refusal = refusal
            self._again = refusal.code == "store-behind"  # the view repairs the store at its next start
            raise BatchRefusedError(refusal.code) from refusal
        self._went_well()

    def _apply(self, batch: DataFrame, number: int) -> None:
        if (seen := self.query.snapshot(self._partitions)) is not None:
            self._refuse_swept(seen)
        if number == 0:
            self._writer.announce()
        self._writer.check(number, redriven=self._redriven)
        self.at_step("begun", number)
        ends = self._offsets(number)
        known = self._ends is not None and self._ends[0] == number - 1
        starts = self._ends[1] if self._ends and known else self._offsets(number - 1)
        self._look_at_batch(starts, ends)
        output = self._output(self._job.packed(batch, number), starts, ends)
        try:
            written = self._online(output, number, starts, ends)
            applied = {"online": clock.now_us()}
            if self._changelog is not None:
                self._log(output, self._changelog, number)
                applied["changelog"] = clock.now_us()
                self.at_step("changelog", number)
        finally:
            output.release()
        before = self._receipt.ledger if self._receipt else ()
        scanned = self._past if number == 0 else None  # the first receipt includes what the scan made
        receipt = Receipt(
            first=number,
            last=number,
            topics=self._topic_ids,
            ranges=self._ranges(*self._told(number, starts, ends)),
            records=counted(self._ledger.values(), before),
            rows=written.tiles + (scanned.rows if scanned else 0),
            digest=(written.digest + (scanned.digest if scanned else 0)) % DIGESTS,
            ledger=tuple(self._ledger.values()),
            applied=applied,
            stores=self._stores,
            redriven=self._redriven,
            beyond=self._beyond,
        )
        self._books.write(receipt)
        self.at_step("receipt", number)
        self._receipt, self._ends = receipt, (number, ends)
        if not self._place.staged or self._seen == self.progress.build:  # the group shows the build that readers follow
            self._shadow.publish(ends)
        newest = max((row.newest_log for row in written.ledger), default=0)
        self.progress.applied(Batch(number, written.tiles, newest, applied["online"]), written.ledger)

    def _online(self, output: Output, number: int, starts: Offsets, ends: Offsets) -> Written:
        written = write_online(output, self._target)
        self.at_step("online rows", number)
        if isinstance(self._job, FreeJob):
            counts = self._job.counted(self._session, self._source, starts, ends)
            written = replace(written, ledger=counted_rows(counts))
        written = replace(written, ledger=self._cumulative(number, written.ledger))
        self._reach(written.ledger)
        if self._job.sweeps:
            self._guard(ends)
        history, passed = None, self._passed
        if self._past is not None and not passed:
            passed = self._past.frozen.passed_by(ends)
            history = PASSED if passed else WRITTEN
        self._writer.mark(number, written.ledger, written.calls, redriven=self._redriven, history=history)
        self._passed = passed
        self.at_step("online mark", number)
        self._applied = number
        self._ledger |= {row.name: row for row in written.ledger}
        return written

    def _output(self, packed: DataFrame, starts: Offsets, ends: Offsets) -> Output:
        """Take the output to the driver if the batch is surely small.

        Else leave it in Spark, and cache it there if there is a changelog in addition to the online store.
        """
        if self._small(starts, ends):
            try:
                return collected(packed)
            except TooWideError:
                self._by_executors = self._again = True
                raise BatchRefusedError("rows are wide; the batch runs again, written by the executors") from None
        return Output(packed) if self._changelog is None else kept(packed)

    def _log(self, output: Output, changelog: ChangelogTopic, number: int) -> None:
        # After a scan of history, the changelog has the mark of batch 0 already, but not the batch's own rows.
        again = (number == 0 and self._past is not None) or number == self._log_again
        if output.rows is None:
            write_changelog(output.packed, changelog, number, repair=again)
        else:
            write_changelog_rows(output.rows, changelog, number, repair=again)

    def _small(self, starts: Offsets, ends: Offsets) -> bool:
        per_record = self._job.rows_per_record
        if per_record is None or self._by_executors:
            return False
        records = sum(
            end - starts.get(topic, {}).get(p, 0) for topic, parts in ends.items() for p, end in parts.items()
        )
        return records * per_record + len(OUTCOMES) * sum(self._source.partitions) <= DRIVER_ROWS

    def _cumulative(self, number: int, ledger: tuple[LedgerRow, ...]) -> tuple[LedgerRow, ...]:
        if self._past is not None:
            return self._past.total(ledger, self._ledger)
        if self._job.cumulative:
            return ledger
        if self._applied == number:  # marked before a crash, and now run again: it is counted already
            return tuple(self._ledger.values())
        return tuple(row.after(self._ledger.get(row.name)) for row in ledger)

    def _reach(self, ledger: Iterable[LedgerRow]) -> None:
        for row in ledger:
            place = (row.topic, row.partition)
            self._newest_log[place] = max(row.newest_log, self._newest_log.get(place, 0))

    def _guard(self, ends: Offsets) -> None:
        """Refuse the batch if its commit would let the watermark overtake unread records."""
        unread = self._unread(ends)
        wider = watermark.wider_delay(
            self._delay, lateness=self._lateness, newest_log=self._newest_log, unread=unread, back=self._back
        )
        if wider is not None:
            self._delay, self._again = wider, True
            raise BatchRefusedError("a partition is read far behind the others; the batch runs again, swept later")

    def _unread(self, ends: Offsets) -> list[tuple[str, int]]:
        """The partitions that have records after these offsets, each with its declared topic."""
        unread: list[tuple[str, int]] = []
        for declared, topic, partitions in self._topics:
            try:
                latest = self._admin.end_offsets(topic, partitions)
                unread += [(declared, p) for p, end in latest.items() if end > ends.get(topic, {}).get(p, 0)]
            except LogError:  # a leader is being elected: assume that every partition has records to come
                unread += [place for place in self._newest_log if place[0] == declared]
        return unread

    @cached_property
    def _topics(self) -> list[tuple[str, str, int]]:
        """The topics: the declared name, the name in the cluster, and the number of partitions."""
        declared = [origin.topic for origin in self._declared.reading.origins]
        return list(zip(declared, self._source.topics, self._source.partitions, strict=True))

    def _offsets(self, batch: int) -> Offsets:
        return batch_offsets(self._session, self.checkpoint, batch)

    def _reached(self, batch: int) -> Offsets:
        """The offsets that the build has reached at the end of a batch.

        The end of a scan of history counts, even if the stream is not that far yet.
        """
        offsets = self._offsets(batch)
        return self._past.frozen.reached(offsets) if self._past else offsets

    def _told(self, number: int, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """The start and end offsets for the receipt of a batch.

        The receipt of batch 0 includes the offsets of a scan of history. The stream's second reading does not count.
        """
        if self._past is None:
            return starts, ends
        frozen = self._past.frozen
        return frozen.firsts if number == 0 else frozen.reached(starts), frozen.reached(ends)

    def _declared_offsets(self, offsets: Offsets) -> Offsets:
        return {declared: offsets.get(topic, {}) for declared, topic, _ in self._topics}

    def _ranges(self, starts: Offsets, ends: Offsets) -> dict[str, dict[int, tuple[int, int]]]:
        first, last = self._declared_offsets(starts), self._declared_offsets(ends)
        return {t: {p: (first[t].get(p, 0), end) for p, end in parts.items()} for t, parts in last.items()}

    def _ids(self) -> dict[str, str]:
        ids = self._admin.topic_ids(self._source.topics)
        return {declared: ids[topic] for declared, topic, _ in self._topics if topic in ids}

    def _first_offsets(self, receipts: Sequence[Receipt]) -> Offsets:
        """The offsets at which the build began, by the topic's name in the cluster and partition."""
        begins: Offsets = {topic: {} for _, topic, _ in self._topics}
        for declared, topic, _ in self._topics:
            for receipt in receipts:  # a partition may have been added in between
                for p, (start, _) in receipt.ranges.get(declared, {}).items():
                    begins[topic].setdefault(p, start)
        return begins

    def _check_history(self, committed: int) -> None:
        firsts = {topic: self._admin.start_offsets(topic, partitions) for _, topic, partitions in self._topics}
        if self._job.sweeps:  # not a compacted topic: its head may go, and it still keeps the newest of each key
            position = self._declared_offsets(self._offsets(committed))
            reconcile.check_history(self.name, position, self._declared_offsets(firsts))

    def _check_log(self, newest: Receipt | None) -> None:
        """Check that the log still has, at the end of the part that was read, the record that was read there."""
        read = reconcile.anchors(newest.ledger if newest else ())
        for declared, topic, partitions in self._topics:
            mine = {p: anchor for (t, p), anchor in read.items() if t == declared}
            firsts, ends = self._admin.start_offsets(topic, partitions), self._admin.end_offsets(topic, partitions)
            kept = {p: offset for p, (offset, _) in mine.items() if firsts[p] <= offset < ends[p]}
            reconcile.check_log(self.name, declared, mine, ends, hashes_at(self._source.kafka, topic, kept))

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
        self._seen = self._writer.followed() or self._seen
        self._was_followed = self._was_followed or self._seen == self.progress.build
        lost = self._writer.lacks(self._applied, self._redriven)
        if (lost or self._redrive_waits()) and self._query.stop_if_idle():
            self._start()

    def _redrive_waits(self) -> bool:
        topic = self._place.redrive
        if topic is None or not isinstance(self._job, TilesJob) or clock.monotonic() < self._redrive_due:
            return False
        return self._admin.end_offsets(topic, 1)[0] > self._redriven

    def _caught_up(self) -> None:
        super()._caught_up()
        self._writer.announce()  # a topic without records has no batch that would do it
        self._follow()

    def _follow(self) -> None:
        """Move readers to this build, which has caught up, unless it waits for `promote`."""
        self._place.publish()  # again: the store may have been emptied before the first batch
        self._writer.activate()
        self._followed = True

    def _refuse_swept(self, seen: Snapshot) -> None:
        """Raise an error if the watermark dropped rows of accepted records, which must never happen.

        It is checked before every batch and at the end, so that no batch is missed.
        """
        if seen.swept:
            raise refusals.swept(self.name, seen.swept, seen.batch)

    def _explain(self, failure: str) -> LeftfoldError:
        found = refusals.explained(self.name, failure, staged=self._place.staged, source=self._declared.source)
        if found is not None:
            return found
        if "DATA_LOSS" in failure or "OffsetOutOfRange" in failure:  # Spark says that data was lost; find out which
            try:
                self._check_history(self._applied)
            except RunError as overtaken:
                return overtaken
        return super()._explain(failure)
