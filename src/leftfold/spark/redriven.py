"""Log ∪ re-driven records, for the batch paths: a corrected record stands in the place of the one it corrects."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.spark.source import SLOTS_PER_TOPIC, Source, common_options, decoded

# Positions of so many records, some tens of megabytes, are sent to every executor; more are joined by sorting both.
_BROADCAST_AT_MOST = 1_000_000


def redriven(
    session: SparkSession,
    source: Source,
    redrive_topic: str,
    ends: Mapping[int, int],
    *,
    starts: Mapping[int, int] | None = None,
    place: int = 0,
) -> DataFrame:
    """What was re-driven from `starts` (else from the first on) up to `ends`, with the columns of `read_range`.

    Slot and offset are the original's; `place` is that of the original topic among the topics of the source. Of
    several for one position the newest wins.
    """
    options = {
        **common_options(source, (redrive_topic,)),
        "includeHeaders": "true",
        "startingOffsets": "earliest" if starts is None else json.dumps({redrive_topic: _by_text(starts)}),
        "endingOffsets": json.dumps({redrive_topic: _by_text(ends)}),
    }
    appended = session.read.format("kafka").options(**options).load()
    newest = (
        appended.groupBy(F.col("key").cast("string").alias("position"))
        # By one key: one partition, so offsets tell which is newer.
        .agg(F.max_by(F.struct("value", "headers"), "offset").alias("record"))
        .select("position", "record.value", "record.headers")
    )
    return newest.select(
        (_part(0).cast("int") + F.lit(place * SLOTS_PER_TOPIC)).alias("slot"),
        _part(1).cast("long").alias("offset"),
        _header("key").alias("key"),
        F.lit(False).alias("deleted"),
        F.timestamp_micros(_header("log_time").cast("string").cast("long")).alias("log_time"),
        F.lit(True).alias("by_broker"),
        decoded(source).alias("event"),
    )


def with_redriven(records: DataFrame, redriven: DataFrame, *, at_most: int | None = None) -> DataFrame:
    """The records, what was re-driven in the place of its original. `at_most` so many were, as their ends tell."""
    positions = redriven.select("slot", "offset")
    if at_most is not None and at_most <= _BROADCAST_AT_MOST:
        positions = F.broadcast(positions)
    return records.join(positions, ["slot", "offset"], "left_anti").unionByName(redriven)


def from_offsets(redriven: DataFrame, firsts: Mapping[int, int]) -> DataFrame:
    """Those whose original lies at or after these offsets, by partition."""
    by_place = F.array(*(F.lit(firsts.get(p, 0)).cast("long") for p in range(max(firsts, default=0) + 1)))
    return redriven.where(F.col("offset") >= F.coalesce(F.get(by_place, F.col("slot")), F.lit(0).cast("long")))


def _by_text(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _part(number: int) -> Column:
    return F.split_part(F.col("position"), F.lit("/"), F.lit(number + 1))


def _header(name: str) -> Column:
    """Null if there is none."""
    return F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]
