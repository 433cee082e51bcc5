"""The batch that brought each record into a store, and the last batch that the store had at each moment.

Both come from the receipts, which are small: one entry per batch. Spark joins records and labels with them by buckets
of offsets and of minutes, so that a lookup is an equality join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from leftfold.fold.durations import SECOND
from leftfold.fold.known import NO_BATCH, AppliedBatch

# Offsets per bucket: a batch of the usual size lies in a few buckets, and a bucket of a busy topic holds few batches.
_OFFSETS = 4_096
_MINUTE = 60 * SECOND
# Up to this many batches, some tens of megabytes, are broadcast to every executor. More are joined by sorting.
_BROADCAST_AT_MOST = 1_000_000


def with_batches(
    rows: DataFrame, batches: Sequence[AppliedBatch], begins: Mapping[int, int] | None = None
) -> DataFrame:
    """The rows (slot, offset, …) that a batch brought into the store, with the number of that batch as `batch`.

    `begins` are the offsets at which the build began: it has no record before them, even if an archive does. Imported
    records have negative offsets, and a build that read them began there.
    """
    ranges, reached = [], {slot: (begins or {}).get(slot, 0) for slot in {slot for b in batches for slot in b.ends}}
    for one in batches:
        for slot, end in one.ends.items():
            if end > reached[slot]:
                ranges.append((slot, reached[slot], end, one.batch))
                reached[slot] = end
    schema = "of_slot int, first bigint, beyond bigint, batch bigint"
    known = rows.sparkSession.createDataFrame(ranges, schema).withColumn(
        "bucket", F.explode(F.expr(f"sequence(`first` div {_OFFSETS}, (beyond - 1) div {_OFFSETS})"))
    )
    within = F.expr(
        f"slot = of_slot and `offset` div {_OFFSETS} = bucket and `offset` >= `first` and `offset` < beyond",
    )
    return rows.join(_small(known, len(ranges)), within).drop("of_slot", "first", "beyond", "bucket")


def with_upto(asked: DataFrame, batches: Sequence[AppliedBatch]) -> DataFrame:
    """Columns entity, at, and upto: the last batch that the store had at that moment."""
    applied = _frame(asked.sparkSession, batches)
    inside = Window.orderBy("batch")
    last = max((b.applied for b in batches), default=0)
    spans = applied.withColumn("until", F.lead("applied").over(inside)).where("until is null or until > applied")
    minutes = F.expr(f"sequence(applied div {_MINUTE}, (coalesce(until, applied + 1) - 1) div {_MINUTE})")
    known = spans.select("batch", "applied", "until", F.explode(minutes).alias("minute"))
    bucket = F.least(F.expr(f"`at` div {_MINUTE}"), F.lit(last // _MINUTE))
    within = (
        (F.col("bucket") == F.col("minute"))
        & (F.col("applied") <= F.col("at"))
        & F.coalesce(F.col("at") < F.col("until"), F.lit(True))
    )
    joined = asked.withColumn("bucket", bucket).join(_small(known, len(batches)), within, "left")
    return joined.select("entity", "at", F.coalesce("batch", F.lit(NO_BATCH).cast("long")).alias("upto"))


def known_by_store(asked: DataFrame, rows: DataFrame, batches: Sequence[AppliedBatch], lateness: int) -> DataFrame:
    """Add `complete` to `asked` (entity, at, upto): the store had every event that happened before that moment.

    Events that were not yet applied were all logged at or after a certain moment, so they happened at most `lateness`
    before it.
    """
    oldest = rows.groupBy("batch").agg(F.min("log_us").alias("log_us"))
    later = Window.orderBy(F.desc("batch")).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.coalesce(F.lag("batch").over(Window.orderBy("batch")), F.lit(NO_BATCH).cast("long"))
    # A reader that had the batch before, but not this one, may lack all events from here on. Some batches have no entry
    # of their own, so each entry covers the numbers since the entry before it.
    frontier = (
        _frame(asked.sparkSession, batches)
        .join(oldest, "batch", "left")
        .select("batch", before.alias("before"), F.min("log_us").over(later).alias("unseen"))
        .select(F.explode(F.sequence("before", F.col("batch") - 1)).alias("upto"), "unseen")
    )
    complete = F.coalesce(F.least(F.col("unseen") - F.lit(lateness), F.col("at")), F.col("at"))
    return asked.join(_small(frontier, len(batches)), "upto", "left").select(
        "entity", "at", "upto", complete.alias("complete")
    )


def _small(frame: DataFrame, batches: int) -> DataFrame:
    """Broadcast a small frame. Spark does not know its size, and would sort the records for the join."""
    return F.broadcast(frame) if batches <= _BROADCAST_AT_MOST else frame


def _frame(session: SparkSession, batches: Sequence[AppliedBatch]) -> DataFrame:
    return session.createDataFrame([(b.batch, b.applied) for b in batches], "batch bigint, applied bigint")
