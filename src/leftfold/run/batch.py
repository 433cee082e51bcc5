"""One batch of a view, from Spark's rows to its receipt.

Spark has written the batch's number and its end offsets into the checkpoint before step 1, and commits it after step 8.
A batch that was not committed runs again at the next start, with the same number, records and state. So each step must
bear to be done twice. The steps, and what a death after each leaves behind:

1. Check. The store must stand at the batch before, or at this one if it runs again. A store that has lost data is
   refused, and repaired at the next start. Nothing is written.
2. Look at the batch's schema ids, if unknown ids have been met. Nothing is written.
3. Compute the rows. A small batch comes to the driver; a large one stays with the executors. Nothing is written.
4. Write the rows to the online store. Each tile has the batch's number, and replaces only tiles of earlier batches. The
   rows are there without their mark; the batch runs again and writes the same values.
5. Guard the watermark: refuse the batch if its commit would sweep state that an unread record still needs. The batch
   runs again with a longer delay.
6. Mark the batch in the online store, with the ledger: one atomic step, refused if the store has forgotten any of the
   rows. The batch runs again, and changes nothing there.
7. Write the rows to the changelog, if there is one: one transaction per writer, with the batch's number in it. Writers
   that committed leave the batch out when it runs again; the transactions of the others are aborted.
8. Write the receipt. The batch runs again, finds every store done, and replaces the receipt by an equal one.

Then people are told: the consumer group that shows the lag, and the progress. Nothing depends on either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.declare.acceptance import OUTCOMES
from leftfold.kafka.changelog import ChangelogTopic
from leftfold.offsets import Offsets
from leftfold.run.build import RunningBuild
from leftfold.run.progress import NewestBatch
from leftfold.run.receipts import Receipt, counted
from leftfold.run.running import RunAgainError
from leftfold.spark.sinks.changelog import write_changelog, write_changelog_rows
from leftfold.spark.sinks.online import (
    DRIVER_ROWS,
    Output,
    Written,
    cached,
    collected,
    counted_rows,
    write_online,
)
from leftfold.spark.views.free import FreeJob
from leftfold.store.layout import DIGESTS, PASSED, WRITTEN, LedgerRow

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame

# The points of a batch at which a test can stop it, in their order: after step 1, 4, 6, 7 and 8.
STEPS = ("begun", "online rows", "online mark", "changelog", "receipt")


@dataclass(frozen=True)
class Hooks:
    """The view's part in a batch."""

    look: Callable[[Offsets, Offsets], None]  # step 2: refuses a batch for which the query must start in another way
    at_step: Callable[[str, int], None]  # called at each of STEPS
    show: Callable[[Offsets], None]  # shows the lag


def apply(batch: DataFrame, number: int, build: RunningBuild, hooks: Hooks, *, by_executors: bool) -> None:
    """Apply a batch to all stores of a build. If this returns, Spark may commit the batch.

    With `by_executors`, the driver never writes rows. Raises TooWideError if the driver was to write a row that is too
    long for it, and RunAgainError if the query must start again with another setting.
    """
    # 1. Check.
    if number == 0:
        build.announce()
    build.writer.check(number, redriven=build.redriven)
    hooks.at_step("begun", number)
    ends = build.positions.after(number)
    known = build.ends is not None and build.ends[0] == number - 1
    starts = build.ends[1] if build.ends and known else build.positions.after(number - 1)
    # 2. Look at schema ids.
    hooks.look(starts, ends)
    # 3. Compute.
    small = not by_executors and _small(build, starts, ends)
    output = _output(build, build.job.packed(batch, number), small=small)
    try:
        # 4. to 6. Rows, guard, mark.
        written = _write_online(build, output, number, starts, ends, hooks)
        applied = {"online": clock.now_us()}
        # 7. Changelog.
        if build.changelog is not None:
            _write_changelog(build, output, build.changelog, number)
            applied["changelog"] = clock.now_us()
            hooks.at_step("changelog", number)
    finally:
        output.release()
    # 8. Receipt.
    receipt = _receipt(build, written, number, starts, ends, applied)
    build.receipts.write(receipt)
    hooks.at_step("receipt", number)
    build.receipt, build.ends = receipt, (number, ends)
    # People.
    hooks.show(ends)
    newest = max((row.newest_log for row in written.ledger), default=0)
    build.progress.applied(NewestBatch(number, written.tiles, newest, applied["online"]), written.ledger)


def _small(build: RunningBuild, starts: Offsets, ends: Offsets) -> bool:
    """Return whether the batch surely has few enough rows for the driver."""
    per_record = build.job.rows_per_record
    if per_record is None:
        return False
    records = sum(end - starts.get(topic, {}).get(p, 0) for topic, parts in ends.items() for p, end in parts.items())
    return records * per_record + len(OUTCOMES) * sum(build.source.partitions) <= DRIVER_ROWS


def _output(build: RunningBuild, packed: DataFrame, *, small: bool) -> Output:
    """Take a small batch to the driver. Leave any other in Spark, and cache it there if two stores need it."""
    if small:
        return collected(packed)
    return Output(packed) if build.changelog is None else cached(packed)


def _write_online(
    build: RunningBuild, output: Output, number: int, starts: Offsets, ends: Offsets, hooks: Hooks
) -> Written:
    written = write_online(output, build.target)
    hooks.at_step("online rows", number)
    if isinstance(build.job, FreeJob):
        counts = build.job.counted(build.session, build.source, starts, ends)
        written = replace(written, ledger=counted_rows(counts))
    written = replace(written, ledger=_cumulative(build, number, written.ledger))
    # 5. Guard.
    build.watermark.reach(written.ledger)
    if build.job.sweeps and build.watermark.widen(build.positions.unread(ends, build.watermark.newest_log)):
        raise RunAgainError("a partition is read far behind the others; the batch runs again, swept later")
    # 6. Mark.
    history, passed = None, build.passed
    if build.past is not None and not passed:
        passed = build.past.frozen.passed_by(ends)
        history = PASSED if passed else WRITTEN
    build.writer.mark(number, written.ledger, written.calls, redriven=build.redriven, history=history)
    build.passed = passed
    hooks.at_step("online mark", number)
    build.applied = number
    build.ledger |= {row.name: row for row in written.ledger}
    return written


def _cumulative(build: RunningBuild, number: int, ledger: tuple[LedgerRow, ...]) -> tuple[LedgerRow, ...]:
    """The ledger rows of a batch as totals of the build."""
    if build.past is not None:
        return build.past.total(ledger, build.ledger)
    if build.job.cumulative:
        return ledger
    if build.applied == number:  # marked before a crash, and now run again: it is counted already
        return tuple(build.ledger.values())
    return tuple(row.after(build.ledger.get(row.name)) for row in ledger)


def _write_changelog(build: RunningBuild, output: Output, changelog: ChangelogTopic, number: int) -> None:
    # After a scan of history, the changelog has the mark of batch 0 already, but not the batch's own rows.
    again = (number == 0 and build.past is not None) or number == build.log_again
    if output.rows is None:
        write_changelog(output.packed, changelog, number, repair=again)
    else:
        write_changelog_rows(output.rows, changelog, number, repair=again)


def _receipt(
    build: RunningBuild, written: Written, number: int, starts: Offsets, ends: Offsets, applied: dict[str, int]
) -> Receipt:
    """The receipt of a batch. That of batch 0 includes what a scan of history has read and made."""
    scanned = build.past if number == 0 else None
    if build.past is not None:  # the stream's second reading of history does not count
        frozen = build.past.frozen
        starts, ends = frozen.firsts if scanned else frozen.reached(starts), frozen.reached(ends)
    return Receipt(
        first=number,
        last=number,
        topics=build.topic_ids,
        ranges=build.positions.ranges(starts, ends),
        records=counted(build.ledger.values(), build.receipt.ledger if build.receipt else ()),
        rows=written.tiles + (scanned.rows if scanned else 0),
        digest=(written.digest + (scanned.digest if scanned else 0)) % DIGESTS,
        ledger=tuple(build.ledger.values()),
        applied=applied,
        stores=build.stores,
        redriven=build.redriven,
        beyond=build.beyond,
    )
