"""One running view: its batches into its stores, each with a receipt, and what a failure of one means."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.errors import LeftfoldError, LogError, RunError, StoreError
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.kafka import changelog as log_writer
from leftfold.kafka.admin import Admin
from leftfold.kafka.changelog import Changelog, StaleWriterError
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.kafka.registry import SchemaRegistry
from leftfold.kafka.shadow import ShadowGroup
from leftfold.run import broom, reconcile, redrive, refusals, repair
from leftfold.run.progress import Batch
from leftfold.run.receipts import Books, Receipt, counted
from leftfold.run.running import BatchRefusedError, RunningReader
from leftfold.spark.changelog import write_changelog, write_changelog_rows
from leftfold.spark.checkpoint import Standing, batch_offsets, drop_foreign_snapshots, past_in, standing
from leftfold.spark.free import FreeJob
from leftfold.spark.history import over_history, read_history
from leftfold.spark.jobs import job_of
from leftfold.spark.past import Frozen, Past
from leftfold.spark.query import Job, Query, Snapshot, start_query
from leftfold.spark.recompute import lifetime_from, recomputed, recomputing
from leftfold.spark.sink import (
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
from leftfold.spark.tiles import TilesJob
from leftfold.spec.catalog import DeclaredView
from leftfold.spec.free import View
from leftfold.store.layout import DIGESTS, OUTCOMES, Build, LedgerRow, row_ttl_s
from leftfold.store.writer import BuildWriter

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

# How often an idle view looks whether its store still has what it wrote, and whether records were re-driven.
_LOOK_AFTER_S = 5.0
# The moments of a batch that a test can stop at, in their order.
STEPS = ("begun", "online rows", "online mark", "changelog", "receipt")


@dataclass(frozen=True)
class Place:
    """Where a view's effects go."""

    online_url: str
    namespace: str
    checkpoints: str
    log_file: str
    receipts: ReceiptLog
    changelog: str | None  # the topic, as the cluster names it, if the view has one
    redrive: str | None  # where records of its topic are re-driven; None for a view that reads several or a table
    publish: Callable[[], None]  # whatever else the store holds for readers
    staged: bool = False  # the build waits for `promote`


class RunningView(RunningReader):
    _writer: BuildWriter
    _job: Job
    _books: Books

    def __init__(
        self, declared: DeclaredView, source: Source, place: Place, *, admin: Admin, registry: SchemaRegistry
    ) -> None:
        super().__init__(declared.name, source, registry, place.log_file)
        self.at_step: Callable[[str, int], None] = lambda step, batch: None
        self._declared = declared
        self._place = place
        self._admin = admin
        self._lateness = max(origin.lateness for origin in declared.reading.origins)
        self._back = broom.steps_back(declared.reading.origins)
        self._delay = broom.first_delay(self._lateness)
        self._newest_log: dict[tuple[str, int], int] = {}  # by topic and partition: the log time that has been read
        self._ends: tuple[int, Offsets] | None = None  # the last batch written, and where it ends
        self._ledger: dict[str, LedgerRow] = {}  # as the store has it, at batch _applied
        self._applied = -1
        self._past: Past | None = None  # what of the build was made by a scan of history
        self._passed = False  # the stream is past what that has read
        self._receipt: Receipt | None = None  # of the last batch before the one at hand
        self._redriven = 0
        self._begins: Offsets = {}  # where the build began
        self._redrive_due = 0.0  # no look at re-driven records before then
        self._changelog: Changelog | None = None
        self._scope = ".".join(part for part in ("leftfold", place.namespace, self.name) if part)
        self._shadow = ShadowGroup(source.kafka, self._scope)
        self._stores: dict[str, str] = {}
        self._started = threading.Event()
        self._by_executors = False  # rows turned out too wide for the driver
        self._followed = False  # readers have been moved to this build
        self._seen: str | None = None  # the build that readers followed when this was last looked at ...
        self._was_followed = False  # ... and whether that has ever been this one
        self._looked = clock.monotonic()

    def prepare(self, session: SparkSession) -> None:
        self._job = job_of(self._declared, session, self._source, self._delay)

    @property
    def definition(self) -> Definition | Latest:
        return self._job.definition

    @property
    def known_fingerprint(self) -> str | None:
        """Before it is compiled; None of a function, whose plan only Spark knows."""
        return None if isinstance(self._declared.definition, View) else self._declared.fingerprint

    @property
    def tiles(self) -> TilesJob:
        """The job of a view of windowed features, whole."""
        assert isinstance(self._job, TilesJob), f"{self.name} has no tiles"
        return replace(self._job, only=None)

    @property
    def admin(self) -> Admin:
        return self._admin

    @property
    def redrive_topic(self) -> str | None:
        return self._place.redrive

    @property
    def checkpoint(self) -> str:  # type: ignore[override] # known only once the view is compiled
        """One per definition: a changed definition never continues another's state."""
        return f"{self._place.checkpoints}/{self.name}/{self.definition.fingerprint}"

    def close(self) -> None:
        self._shadow.close()
        if self.progress.build is not None:
            with suppress(StoreError):  # it then counts as running for a minute more
                self._writer.rest()

    # Starting --------------------------------------------------------------------------------------------------

    def _begin(self) -> Query:
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
        self._target = Target(place.online_url, self._writer.row_prefix, row_ttl_s(self.definition))
        self._books = Books(place.receipts, f"{self.name}/{build.id}")
        self._receipt, self._redriven = None, 0
        self._applied, self._ledger, self._ends = -1, {}, None
        if place.changelog is not None:
            partitions = self._admin.partitions([place.changelog])[place.changelog]
            writers = min(log_writer.WRITERS, partitions)
            self._changelog = Changelog(
                self._source.kafka, place.changelog, f"{self._scope}.{build.id}", build.id, writers
            )
            # Compaction moves no first offset: if one has moved, somebody deleted records.
            firsts = sum(self._admin.start_offsets(place.changelog, partitions).values())
            self._stores = {"changelog": f"{self._admin.topic_ids([place.changelog])[place.changelog]}@{firsts}"}
        # A store that was emptied has forgotten this; a process that has seen it has not.
        if place.staged and self._seen != build.id:
            self._writer.stage()
        elif self._was_followed and self._seen != build.id:
            self._writer.hold()
        self._writer.beat()
        self.progress.build = build.id

    def _take_over_from(self, found: Standing) -> None:
        """Where a scan made the closed tiles, the stream makes only the others; see `spark.past`."""
        self._past = past_in(self._session, self.checkpoint)
        if self._past is None or not isinstance(self._job, TilesJob):
            return
        frozen = self._past.frozen
        self._job = replace(self._job, only=frozen.open(self._source.topics))
        self._passed = found.committed >= 0 and frozen.passed_by(self._offsets(found.committed))
        if not self._passed:
            # What it reads again was logged since the oldest cut: no partition is further behind another than that.
            spread = clock.now_us() - min(frozen.cuts.values()) + self._job.definition.future + broom.CLOCK_SLACK
            self._delay = max(self._delay, broom.first_delay(self._lateness) + spread)

    def _tell_of_change(self) -> None:
        """A build without a checkpoint beside one that readers follow: the definition changed, or it starts afresh."""
        followed = self._writer.followed()
        if followed is not None and followed != self.progress.build:
            self.progress.note = (
                f"a new build, {self.progress.build}, reads the log from its start; "
                f"readers follow {followed} until it has caught up"
            )

    def _go_on(self, found: Standing) -> None:
        """Compare what checkpoint, receipts and stores say, and repair a store that is behind."""
        if found.planned < 0:
            return  # it died before its first batch had begun
        receipts = self._books.read()
        newest = receipts[-1] if receipts else None
        planned = newest is not None and newest.last <= found.planned
        offsets = self._declared_offsets(self._reached(newest.last)) if newest and planned else None
        reconcile.check_receipts(self.name, found, receipts, offsets)
        reconcile.check_topics(self.name, newest, self._topic_ids)
        self._check_history(found.committed)
        self._receipt = next((r for r in receipts if r.last == found.committed), None)
        self._begins = self._first_offsets(receipts)
        self._redriven = self._receipt.redriven if self._receipt else 0
        mark = self._check_ahead(found)
        if self._receipt is not None:
            online, changelog = self._writer.applied() < found.committed, self._receipt.stores != self._stores
            if online or changelog:
                self._repair(self._receipt, mark, online=online, changelog=changelog)
        self._applied, before = self._writer.ledger()
        self._ledger = {row.name: row for row in before}
        if self.progress.last is None:  # else it is counted already: this run started its query again
            self.progress.resume(before)
        self._reach(before)
        if self._receipt is not None:
            self._writer.announce()
            if found.planned == found.committed:  # else the changelog may hold the batch that is to run again
                self._redrive(self._receipt)

    def _check_ahead(self, found: Standing) -> int:
        """Another run of this build, or a restored checkpoint, which the receipts would tell too if they were there.

        Returns the newest batch of the changelog: the committed one, or already the one that is to run again.
        """
        self._writer.check_not_beyond(found.planned)
        if self._changelog is None:
            return -1
        mark = max(log_writer.marks(self._changelog).values())
        if mark > found.planned:
            raise refusals.stale(self.name, StaleWriterError(mark, found.planned))
        return mark

    def _repair(self, receipt: Receipt, mark: int, *, online: bool, changelog: bool) -> None:
        """Compute everything a read reaches anew, up to the last committed batch, into the stores that lack it."""
        self.progress.state = "repairing"
        newest = max((row.newest_event for row in receipt.ledger), default=0)
        job = self.tiles if isinstance(self._job, TilesJob) else self._job
        starts = repair.history(
            self._session, self.name, job, self._source, self._admin, newest_event=newest, begins=self._begins
        )

        def filled() -> None:
            records = read_history(self._session, self._source, starts, self._reached(receipt.last))
            packed = recomputed(records, job, receipt.last, newest_event=newest)
            if receipt.redriven and self._place.redrive is not None:
                every = redrive.in_place(records, self._session, self._source, self._place.redrive, receipt.redriven)
                packed = lifetime_from(packed, recomputed(every, job, receipt.last, newest_event=newest))
            # The changelog may hold the batch that is to run again, which is as new as this.
            self._rewrite(packed, max(receipt.last, mark), online=online, changelog=changelog)

        with recomputing(self.name):
            over_history(filled)
        if online:
            self._writer.restore(receipt.last, receipt.ledger)
            if self._past is not None:
                self._writer.tell_history(passed=self._passed)
            self._place.publish()
        if changelog:
            self._receipt = replace(receipt, stores={**receipt.stores, **self._stores})
            self._books.write(self._receipt)
        self.progress.repairs += 1

    def _redrive(self, receipt: Receipt) -> None:
        """Let re-driven records take effect in tiles that no record in the log can change any more."""
        if self._place.redrive is None or not isinstance(self._job, TilesJob):
            return
        ends = self._offsets(receipt.last)
        if self._past is not None and not self._passed:
            return  # what the stream reads again would take the place of a corrected tile
        closed = self._frontier(ends) - self._lateness - broom.CLOCK_SLACK
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
                write=self._rewrite,
            )
        self.progress.pending = done.pending
        wait_s = 0.0 if done.closes is None else (done.closes - closed) / 1e6
        self._redrive_due = clock.monotonic() + max(_LOOK_AFTER_S, wait_s)
        if done.until > self._redriven:
            self._redriven = done.until
            self._receipt = replace(receipt, redriven=done.until)
            self._books.write(self._receipt)

    def reserve(self, checkpoint_id: str) -> None:
        """Stage a build whose checkpoint is still to be made, under this id."""
        self._open(checkpoint_id)
        self._writer.stage(anew=True)

    def write_history(self, frozen: Frozen, rows: DataFrame) -> Past:
        """What a scan of history made, as if batch 0 had written it. Doing it again changes nothing."""
        self.reserve(frozen.id)
        written = self._rewrite(rows, 0)
        assert written is not None
        self._writer.tell_history(passed=False)
        return Past(frozen, written.ledger, written.tiles, written.digest)

    def beat(self) -> None:
        """Say that its build is being made."""
        if self.progress.build is not None:
            self._writer.beat()

    def _rewrite(
        self, packed: DataFrame, number: int, *, online: bool = True, changelog: bool = True
    ) -> Written | None:
        """Rows that were computed anew, into stores that have had this batch of the changelog."""
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
        """No record that is still to be read was logged before this moment, give or take a clock."""
        behind = [place for place in self._unread(ends) if place in self._newest_log]
        by_broker = all(origin.log_time == "broker" for origin in self._declared.reading.origins)
        if by_broker and not behind:
            return clock.now_us()
        return min((self._newest_log[place] for place in behind or self._newest_log), default=0) - self._back

    # Batches ---------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        """On Spark's thread. Returning commits the batch; raising leaves it to be run again with the same records."""
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
            self._again = refusal.code == "store-behind"  # at its start the view repairs it
            raise BatchRefusedError(refusal.code) from refusal
        self._went_well()

    def _apply(self, batch: DataFrame, number: int) -> None:
        if (seen := self.query.snapshot(self._partitions)) is not None:
            self._refuse_swept(seen)
        if number == 0:
            self._writer.announce()
        self._writer.check(number)
        self.at_step("begun", number)
        ends = self._offsets(number)
        known = self._ends is not None and self._ends[0] == number - 1
        starts = self._ends[1] if self._ends and known else self._offsets(number - 1)
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
        scanned = self._past if number == 0 else None  # what history made goes with the first batch
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
        )
        self._books.write(receipt)
        self.at_step("receipt", number)
        self._receipt, self._ends = receipt, (number, ends)
        if not self._place.staged or self._seen == self.progress.build:  # the group is the followed build's
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
        self._writer.mark(number, written.ledger)
        if self._past is not None and not self._passed:
            if number == 0 and not self._writer.has_history():
                raise refusals.history_lost(self.name)
            self._passed = self._past.frozen.passed_by(ends)
            self._writer.tell_history(passed=self._passed)
        self.at_step("online mark", number)
        self._applied = number
        self._ledger |= {row.name: row for row in written.ledger}
        return written

    def _output(self, packed: DataFrame, starts: Offsets, ends: Offsets) -> Output:
        """On the driver if the batch is surely small; else in Spark, kept there if there are several stores."""
        if self._small(starts, ends):
            try:
                return collected(packed)
            except TooWideError:
                self._by_executors = self._again = True
                raise BatchRefusedError("rows are wide; the batch runs again, written by the executors") from None
        return Output(packed) if self._changelog is None else kept(packed)

    def _log(self, output: Output, changelog: Changelog, number: int) -> None:
        # After a scan of history the mark of batch 0 is there already, and the batch's own rows are not.
        again = number == 0 and self._past is not None
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
        if self._applied == number:  # marked before a crash, and run again: it is counted already
            return tuple(self._ledger.values())
        return tuple(row.after(self._ledger.get(row.name)) for row in ledger)

    def _reach(self, ledger: Iterable[LedgerRow]) -> None:
        for row in ledger:
            place = (row.topic, row.partition)
            self._newest_log[place] = max(row.newest_log, self._newest_log.get(place, 0))

    def _guard(self, ends: Offsets) -> None:
        """Refuse the batch if its commit would let the watermark overtake records that are still to be read."""
        unread = self._unread(ends)
        wider = broom.wider_delay(
            self._delay, lateness=self._lateness, newest_log=self._newest_log, unread=unread, back=self._back
        )
        if wider is not None:
            self._delay, self._again = wider, True
            raise BatchRefusedError("a partition is read far behind the others; the batch runs again, swept later")

    def _unread(self, ends: Offsets) -> list[tuple[str, int]]:
        """Topics, as declared, and partitions with records after these."""
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
        """As declared, as the cluster names them, and how many partitions they have."""
        declared = [origin.topic for origin in self._declared.reading.origins]
        return list(zip(declared, self._source.topics, self._source.partitions, strict=True))

    def _offsets(self, batch: int) -> Offsets:
        return batch_offsets(self._session, self.checkpoint, batch)

    def _reached(self, batch: int) -> Offsets:
        """Where a batch ends, of what the build has had: history counts, however far the stream is."""
        offsets = self._offsets(batch)
        return self._past.frozen.reached(offsets) if self._past else offsets

    def _told(self, number: int, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """The offsets that a receipt is about: history's are the first batch's, whatever the stream reads again."""
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
        """Where the build began in each partition, by the cluster's names."""
        begins: Offsets = {topic: {} for _, topic, _ in self._topics}
        for declared, topic, _ in self._topics:
            for receipt in receipts:  # a partition may have been added on the way
                for p, (start, _) in receipt.ranges.get(declared, {}).items():
                    begins[topic].setdefault(p, start)
        return begins

    def _check_history(self, committed: int) -> None:
        firsts = {topic: self._admin.start_offsets(topic, partitions) for _, topic, partitions in self._topics}
        if self._job.sweeps:  # of a compacted topic, whose head may go, the newest of each key stays
            position = self._declared_offsets(self._offsets(committed))
            reconcile.check_history(self.name, position, self._declared_offsets(firsts))

    # Looking after it ------------------------------------------------------------------------------------------

    def _noticed(self, seen: Snapshot) -> None:
        super()._noticed(seen)
        if seen.behind == 0 and self.progress.last is not None and not self._followed:
            self._follow()
        self._refuse_swept(seen)

    def _look_after(self) -> None:
        """A store that lost its data, or a re-drive, while no batch comes that would notice it."""
        if clock.monotonic() - self._looked < _LOOK_AFTER_S or self._query is None or self._stopping.is_set():
            return
        self._looked = clock.monotonic()
        self._writer.beat()
        self._seen = self._writer.followed() or self._seen
        self._was_followed = self._was_followed or self._seen == self.progress.build
        lost = self._writer.applied() < self._applied
        if (lost or self._redrive_waits()) and self._query.stop_if_idle():
            self._start()

    def _redrive_waits(self) -> bool:
        topic = self._place.redrive
        if topic is None or not isinstance(self._job, TilesJob) or clock.monotonic() < self._redrive_due:
            return False
        return self._admin.end_offsets(topic, 1)[0] > self._redriven

    def _caught_up(self) -> None:
        super()._caught_up()
        self._writer.announce()  # a topic without records has had no batch to do it
        self._follow()

    def _follow(self) -> None:
        """Caught up: readers move to this build, unless it waits for `promote`."""
        self._writer.activate()
        self._followed = True

    def _refuse_swept(self, seen: Snapshot) -> None:
        """What must never happen. Looked at before every batch and at the end, so that no batch goes unseen."""
        if seen.swept:
            raise refusals.swept(self.name, seen.swept, seen.batch)

    def _explain(self, failure: str) -> RunError:
        found = refusals.explained(self.name, failure, staged=self._place.staged, source=self._declared.source)
        if found is not None:
            return found
        if "DATA_LOSS" in failure or "OffsetOutOfRange" in failure:  # Spark says that data was lost; this says which
            try:
                self._check_history(self._applied)
            except RunError as overtaken:
                return overtaken
        return super()._explain(failure)
