"""Continues a build where it stopped: compares checkpoint, receipts, stores and log, and repairs what is behind.

A start that dies in the middle is done again by the next one, from its beginning.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.kafka import changelog as log_writer
from leftfold.kafka.changelog import StaleWriterError
from leftfold.kafka.record_hash import hashes_at
from leftfold.offsets import Offsets
from leftfold.run import reconcile, redrive, refusals, watermark
from leftfold.run.build import RunningBuild
from leftfold.run.receipts import Receipt
from leftfold.run.turns import StoppedError, Turn, Turns
from leftfold.spark.checkpoint import CheckpointState
from leftfold.spark.history.recompute import lifetime_from, recomputed, recomputing
from leftfold.spark.history.records import over_history, read_history, session_for
from leftfold.spark.sinks.online import Written
from leftfold.spark.views.tiles import TilesJob
from leftfold.store.buckets import bucket_sql
from leftfold.store.engine import Calls
from leftfold.store.layout import reached

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame


@dataclass(frozen=True)
class Start:
    """The start under way: its turn among other starts, and the request to stop."""

    turns: Turns
    turn: Turn
    stopping: threading.Event

    def unless_stopping(self) -> None:
        """Abandon the start here if a stop was requested."""
        if self.stopping.is_set():
            raise StoppedError


def take_over(build: RunningBuild, checkpoint: CheckpointState) -> None:
    """Limit the stream to the tiles that a scan of history has not made; see `spark.cutover`."""
    if build.past is None or not isinstance(build.job, TilesJob):
        return
    frozen = build.past.frozen
    build.job = replace(build.job, only=frozen.open(build.source.topics))
    build.passed = checkpoint.committed >= 0 and frozen.passed_by(build.positions.after(checkpoint.committed))
    if not build.passed:
        # Everything the stream reads again was logged after the oldest cut: so no partition is further behind another
        # than the time since then.
        build.watermark.cover(
            clock.now_us() - min(frozen.cuts.values()) + build.job.definition.future + watermark.CLOCK_SLACK
        )


def go_on(build: RunningBuild, checkpoint: CheckpointState, start: Start) -> float:
    """Compare all that is known of the build, and repair a store that is behind.

    Return the number of seconds until re-driven records are worth another look.
    """
    if checkpoint.planned < 0:
        return 0.0  # the run died before its first batch had begun
    receipts = build.receipts.read(checkpoint.committed)
    newest = receipts[-1] if receipts else None
    planned = newest is not None and newest.last <= checkpoint.planned
    offsets = build.positions.declared(build.reached(newest.last)) if newest and planned else None
    reconcile.check_receipts(build.name, checkpoint, receipts, offsets)
    reconcile.check_topics(build.name, newest, build.topic_ids)
    check_history(build, checkpoint.committed)
    _check_log(build, newest)
    build.receipt = receipt = next((r for r in receipts if r.last == checkpoint.committed), None)
    build.begins = build.positions.begins(receipts)
    build.redriven = receipt.redriven if receipt else 0
    build.beyond = build.progress.beyond = receipt.beyond if receipt else 0
    mark = _check_not_ahead(build, checkpoint)
    if receipt is not None:
        online, changelog = build.writer.applied() < checkpoint.committed, receipt.stores != build.stores
        if online or changelog:
            _repair(build, receipt, checkpoint, start, mark, online=online, changelog=changelog)
    # A store may have lost only the changes of re-driven records: then all of them are applied again.
    if build.writer.redriven() < build.redriven:
        build.redriven = build.beyond = 0
    build.applied, before = build.writer.ledger()
    build.ledger = {row.name: row for row in before}
    if build.progress.last is None:  # else this run restarted its query, and has counted it already
        build.progress.resume(before)
    build.watermark.reach(before)
    if build.receipt is None:
        return 0.0
    build.announce()
    if checkpoint.planned != checkpoint.committed:  # the changelog may hold the batch that will run again
        return 0.0
    return _redrive(build, build.receipt, start)


def check_history(build: RunningBuild, committed: int) -> None:
    """Refuse to continue if the log has lost records that the build has not read."""
    if build.job.sweeps:  # not a compacted topic: its head may go, and it still keeps the newest of each key
        position = build.positions.declared(build.positions.after(committed))
        reconcile.check_history(build.name, position, build.positions.declared(build.positions.firsts()))


def redrive_waits(build: RunningBuild) -> bool:
    """Return whether records were re-driven since those that have taken effect."""
    topic = build.place.redrive
    return (
        topic is not None and isinstance(build.job, TilesJob) and build.admin.end_offsets(topic, 1)[0] > build.redriven
    )


def _check_log(build: RunningBuild, newest: Receipt | None) -> None:
    """Check that the log still has, at the end of the part that was read, the record that was read there."""
    read = reconcile.anchors(newest.ledger if newest else ())
    for declared, topic, partitions in build.positions.topics:
        mine = {p: anchor for (t, p), anchor in read.items() if t == declared}
        firsts, ends = build.admin.start_offsets(topic, partitions), build.admin.end_offsets(topic, partitions)
        there = {p: offset for p, (offset, _) in mine.items() if firsts[p] <= offset < ends[p]}
        reconcile.check_log(build.name, declared, mine, ends, hashes_at(build.source.kafka, topic, there))


def _check_not_ahead(build: RunningBuild, checkpoint: CheckpointState) -> int:
    """Refuse to continue if a store is ahead of the checkpoint; return the newest batch of the changelog.

    A store is ahead if another run of this build is active, or if the checkpoint was restored from a backup. The
    receipts would show that too, unless they were lost. The newest batch is the committed one, or already the one that
    will run again; -1 without a changelog.
    """
    build.writer.check_not_beyond(checkpoint.planned)
    if build.changelog is None:
        return -1
    mark = max(log_writer.marks(build.changelog).values())
    if mark > checkpoint.planned:
        raise refusals.stale(build.name, StaleWriterError(mark, checkpoint.planned))
    return mark


def _repair(
    build: RunningBuild,
    receipt: Receipt,
    checkpoint: CheckpointState,
    start: Start,
    mark: int,
    *,
    online: bool,
    changelog: bool,
) -> None:
    """Recompute everything that a read can reach, up to the last committed batch, for the stores that lack it.

    If only some buckets of the online store lack it, the entities of the others are left out.
    """
    behind = build.writer.behind(receipt.last) if online else frozenset[int]()
    if online and not behind and not changelog:  # only the mark of the build, which has no rows
        _restore(build, receipt, (), behind)
        build.progress.repairs += 1
        return
    build.progress.state = "repairing"
    job, source = build.all_tiles, build.source
    newest = reached(receipt.ledger, build.declared.reading.origins, clock.now_us())
    starts = reconcile.history(
        build.session, build.name, job, source, build.admin, newest_event=newest, begins=build.begins
    )
    build.writer.begin_again()
    written: Written | None = None
    ends = build.reached(receipt.last)
    own = session_for(build.session, starts, ends)
    buckets = build.target.buckets
    partly = not changelog and len(behind) < buckets
    only = f"{bucket_sql('entity', buckets)} in ({', '.join(map(str, sorted(behind)))})" if partly else None

    def fill() -> None:
        nonlocal written
        records = read_history(own, source, starts, ends)
        packed = recomputed(records, job, receipt.last, newest_event=newest, only=only)
        if receipt.redriven and build.place.redrive is not None:
            every = redrive.in_place(records, own, source, build.place.redrive, receipt.redriven)
            packed = lifetime_from(packed, recomputed(every, job, receipt.last, newest_event=newest, only=only))
        # The changelog may already hold the batch that will run again. These rows must not be older than that.
        number = max(receipt.last, mark)
        written = build.rewrite(packed, number, online=online, changelog=changelog, repairs=True)

    start.turn.end()
    with start.turns.repair(start.stopping), recomputing(build.name):
        over_history(fill)
    if written is not None:
        _restore(build, receipt, written.calls, behind)
    if changelog and checkpoint.planned == checkpoint.committed:
        build.receipt = replace(receipt, stores={**receipt.stores, **build.stores})
        build.receipts.write(build.receipt)
    elif changelog:
        # In the changelog, older rows now follow those of the batch that will run again. So that batch is written once
        # more, and only its own receipt says that the changelog is complete. If the process dies before that, the next
        # start repairs the changelog again.
        build.log_again = checkpoint.planned
    build.progress.repairs += 1


def _restore(build: RunningBuild, receipt: Receipt, calls: Iterable[Calls], buckets: frozenset[int]) -> None:
    """Set the marks to those of the receipt, after the rows of these buckets were written."""
    mine = [one for one in calls if one.bucket in buckets]
    build.writer.restore(
        receipt.last, receipt.ledger, mine, buckets=buckets, redriven=receipt.redriven, history=build.history
    )
    build.place.publish()


def _redrive(build: RunningBuild, receipt: Receipt, start: Start) -> float:
    """Apply re-driven records to tiles that no record in the log can change any more.

    Return the number of seconds until the next tile closes for which a re-driven record waits.
    """
    topic, job = build.place.redrive, build.job
    if topic is None or not isinstance(job, TilesJob):
        return 0.0
    if not redrive_waits(build):
        build.progress.pending = 0
        return 0.0
    ends = build.positions.after(receipt.last)
    if build.past is not None and not build.passed:
        return 0.0  # the stream still reads records again, and would overwrite a corrected tile
    closed = _frontier(build, ends) - build.watermark.lateness - watermark.CLOCK_SLACK
    start.turn.end()
    start.unless_stopping()
    build.writer.begin_again()
    calls: list[Calls] = []

    def write(rows: DataFrame, number: int) -> None:
        written = build.rewrite(rows, number)
        calls.extend(written.calls if written else ())

    with recomputing(build.name):
        done = redrive.apply(
            build.session,
            build.source,
            job,
            build.admin,
            topic=topic,
            since=build.redriven,
            begins=build.begins,
            ends=ends,
            number=receipt.last,
            closed=closed,
            write=write,
        )
    build.progress.pending = done.pending
    if done.until > build.redriven:
        build.writer.move_redriven(receipt.last, calls, since=build.redriven, until=done.until)
        build.redriven = done.until
        build.beyond += done.beyond
        build.progress.beyond = build.beyond
        build.receipt = replace(receipt, redriven=build.redriven, beyond=build.beyond)
        build.receipts.write(build.receipt)
    return 0.0 if done.closes is None else (done.closes - closed) / 1e6


def _frontier(build: RunningBuild, ends: Offsets) -> int:
    by_broker = all(origin.log_time == "broker" for origin in build.declared.reading.origins)
    # Ask for the time before the look at the log's ends: a record logged after that look is logged after this moment.
    # Never use this machine's clock, which may be ahead: a tile would be closed too early, and a later record of that
    # tile would undo a correction.
    now = build.place.receipts.broker_time(build.receipts.scope) if by_broker else None
    return build.watermark.frontier(build.positions.unread(ends, build.watermark.newest_log), now)
