"""Ledger rows: what became of the records of each partition, counted by the aggregation that makes the view."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from leftfold.spark.source import SLOTS_PER_TOPIC

# SQL for a ledger row's field and value in the store; its entity is the outcome, its step -(slot + 1).
NAME = (
    f"concat(element_at(array({{topics}}), cast((-step - 1) div {SLOTS_PER_TOPIC} as int) + 1), "
    f"'/', (-step - 1) % {SLOTS_PER_TOPIC}, ':', entity)"
)
COUNTS = "concat_ws(':', records, newest_log, coalesce(newest_event, 0), newest_offset)"
# ... and for the digest of a packed row, which adds up to that of its batch.
DIGEST = "if(entity is null, null, xxhash64(entity, name, value)) as digest"


def ledger_step() -> Column:
    return -(F.col("slot") + 1).cast("long")
