"""The predictions of a topic as a frame, each once."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def first_of_each(rows: DataFrame, *, repeats: str | None = None) -> DataFrame:
    """Return the accepted predictions of a replay, without those that repeat an earlier one.

    A scorer that was killed may log a prediction again, with the same id. Both have the same key, so they are in one
    partition, and the one with the smaller offset counts. `repeats` names a column for the number of dropped ones.
    """
    accepted = rows.where(F.col("_outcome") == "accepted")
    first = F.min_by(F.struct("*"), "_offset").alias("first")
    counted = [] if repeats is None else [(F.count(F.lit(1)) - F.lit(1)).alias(repeats)]
    return (
        accepted.groupBy("prediction_id")
        .agg(first, *counted)
        .select("first.*", *([] if repeats is None else [repeats]))
    )


def answered(rows: DataFrame, scorer: str) -> DataFrame:
    """Return the predictions of a replay that a scorer's model answered with, as live model or canary.

    Shadows are left out, because they see the same rows as the live model. Fallbacks are, because their features may
    not have been read.
    """
    made = first_of_each(rows.where(F.col("scorer") == scorer))
    return made.where((F.col("outcome") == "scored") & F.col("role").isin("live", "canary"))
