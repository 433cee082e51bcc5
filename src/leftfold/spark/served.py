"""Which batch brought each record into a store, and which one the store had at each moment, from the receipts.

Receipts are small (one entry per batch); records and what is asked are joined with them in Spark, by buckets of offsets
and of minutes, so that a look-up is a join by equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from leftfold.fold.durations import SECOND

# Offsets of a bucket: a batch of the usual size lies in a few, and a bucket of a busy topic holds few batches.
_OFFSETS = 4_096
_MINUTE = 60 * SECOND
# Before the first batch a store holds nothing.
NONE = -1
# So many batches, some tens of megabytes, are sent to every executor; more are joined by sorting both sides.
_BROADCAST_AT_MOST = 1_000_000


@dataclass(frozen=True)
class AppliedBatch:
    """When a store had a batch (µs), and up to where in each slot of the view's source that reaches."""

    batch: int
    applied: int
    ends: dict[int, int]


def with_batches(rows: DataFrame, batches: Sequence[AppliedBatch]) -> DataFrame:
    """The rows (slot, offset, …) that a batch has brought into the store, with the number of that `batch`."""
    ranges, reached = [], dict.fromkeys({slot for b in batches for slot in b.ends}, 0)
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
    """entity, at, and `upto`: the last batch that the store had at that moment."""
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
    return joined.select("entity", "at", F.coalesce("batch", F.lit(NONE).cast("long")).alias("upto"))


def known_by_store(asked: DataFrame, rows: DataFrame, batches: Sequence[AppliedBatch], lateness: int) -> DataFrame:
    """`asked` (entity, at, upto) with `complete`: every event that happened before it had been applied by then.

    What was not applied was logged after a certain moment, so it happened at most `lateness` before that.
    """
    oldest = rows.groupBy("batch").agg(F.min("log_us").alias("log_us"))
    later = Window.orderBy(F.desc("batch")).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.coalesce(F.lag("batch").over(Window.orderBy("batch")), F.lit(NONE).cast("long"))
    # Whoever knows a batch, and not this one, may lack all from here on. Of some hours not every batch is known.
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
    """Spark knows no size of what was made here, and would sort the records for it."""
    return F.broadcast(frame) if batches <= _BROADCAST_AT_MOST else frame


def _frame(session: SparkSession, batches: Sequence[AppliedBatch]) -> DataFrame:
    return session.createDataFrame([(b.batch, b.applied) for b in batches], "batch bigint, applied bigint")
