"""The log together with re-driven records, for batch reads: a corrected record replaces the one it corrects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.offsets import SLOTS_PER_TOPIC
from leftfold.spark.catalyst import entity
from leftfold.spark.source import HASHES, Source, common_options, decoded
from leftfold.spark.views.tiles import OWN, TilesJob, accepted, pack, tiles

# The positions of up to this many records, some tens of megabytes, are broadcast to every executor. More are joined by
# sorting both sides.
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
    """Re-driven records from `starts` (None: the first) up to and without `ends`, with the columns of `read_range`.

    `starts` and `ends` are offsets of the re-drive topic. Slot and offset of a row are those of the original record.
    `place` is the index of the original topic among the topics of the source. If there are several records for one
    position, the newest wins.
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
        # All records of a key are in one partition, so the larger offset is the newer one.
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
        # A record was re-driven because its schema was known. If it is not known here, the registry must be asked.
        decoded(replace(source, unknown="stop")).alias("event"),
        *(F.lit(None).cast("long").alias(name) for name in HASHES),  # a corrected record is not the log's record
    )


def with_redriven(records: DataFrame, redriven: DataFrame, *, at_most: int | None = None) -> DataFrame:
    """Replace the originals of re-driven records. `at_most` is an upper bound of their number, from their offsets."""
    positions = redriven.select("slot", "offset")
    if at_most is not None and at_most <= _BROADCAST_AT_MOST:
        positions = F.broadcast(positions)
    return records.join(positions, ["slot", "offset"], "left_anti").unionByName(redriven)


def from_offsets(redriven: DataFrame, firsts: Mapping[int, int]) -> DataFrame:
    """The re-driven records whose original lies at or after these offsets, by partition."""
    by_place = F.array(*(F.lit(firsts.get(p, 0)).cast("long") for p in range(max(firsts, default=0) + 1)))
    return redriven.where(F.col("offset") >= F.coalesce(F.get(by_place, F.col("slot")), F.lit(0).cast("long")))


def _by_text(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _part(number: int) -> Column:
    return F.split_part(F.col("position"), F.lit("/"), F.lit(number + 1))


def _header(name: str) -> Column:
    """The value of the first header of that name; null if there is none."""
    return F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]


# The tiles that re-driven records touch, and those tiles recomputed.


_TILE = ("entity", "step", "tile_end")


_DAY = 86_400_000_000


@dataclass(frozen=True)
class Touched:
    open: int  # number of records with a tile that may still change
    closes: int | None  # when the first of these tiles ends, µs; None if there is none
    days: tuple[int, ...]  # the start of the oldest closed tile of each day, µs, oldest first


def touched(fresh: DataFrame, job: TilesJob, closed: int) -> Touched:
    """The tiles that re-driven records touch. A tile is closed if it ends at `closed` (µs) or before, else open."""
    tiles_of = _tiles_of(fresh, job)
    late = F.col("end_us") > F.lit(closed)
    still = tiles_of.where(late).agg(F.count_distinct("slot", "offset"), F.min("end_us")).collect()[0]
    start = F.col("end_us") - F.col("step")
    days = tiles_of.where(~late).groupBy(F.floor(start / F.lit(_DAY))).agg(F.min(start).alias("start"))
    return Touched(still[0], still[1], tuple(sorted(row["start"] for row in days.collect())))


def out_of_reach(fresh: DataFrame, job: TilesJob, closed: int, *, since: int | None) -> int:
    """The number of re-driven records with a closed tile that starts before `since` (None: with any closed tile)."""
    tiles_of = _tiles_of(fresh, job).where(F.col("end_us") <= F.lit(closed))
    if since is not None:
        tiles_of = tiles_of.where(F.col("end_us") - F.col("step") < F.lit(since))
    return int(tiles_of.agg(F.count_distinct("slot", "offset")).collect()[0][0])


def corrected(
    records: DataFrame,
    fresh: DataFrame,
    job: TilesJob,
    number: int,
    *,
    since: int,
    closed: int,
    thinned: int,
    kept_since: int,
) -> DataFrame:
    """The packed closed tiles, from `since` on, that re-driven records touch, recomputed.

    `fresh` are the re-driven records. `records` are the log with all re-driven records in place. Where a record touches
    a tile that ends by `thinned`, all closed tiles of its entity from `kept_since` on are recomputed: older ones in the
    store may lack what that tile had, and it may no longer have it.
    """
    reached = (F.col("end_us") <= F.lit(closed)) & (F.col("end_us") - F.col("step") >= F.lit(since))
    wanted = _tiles_of(fresh, job).where(reached)
    wanted = wanted.select(
        *(F.col(name).alias(f"wanted_{name}") for name in _TILE),
        (F.col("end_us") <= F.lit(thinned)).alias("all"),
    ).distinct()
    computed = tiles(records, job.definition, delay=0, stream=job.between).where(F.col("step") > 0)
    end_us = F.unix_micros("tile_end")
    is_kept = (end_us <= F.lit(closed)) & (end_us - F.col("step") >= F.lit(kept_since))
    is_wanted = (F.col("step") == F.col("wanted_step")) & (F.col("tile_end") == F.col("wanted_tile_end"))
    matches = (F.col("entity") == F.col("wanted_entity")) & (is_wanted | (F.col("all") & is_kept))
    return pack(computed.join(wanted, matches, "left_semi"), job.definition, number)


def _tiles_of(fresh: DataFrame, job: TilesJob) -> DataFrame:
    definition = job.definition
    steps = F.array(*(F.lit(step).cast("long") for step in definition.steps))
    rows = accepted(fresh, definition, job.between).withColumn("step", F.explode(steps))
    end_us = F.col("event_us") - F.pmod("event_us", "step") + F.col("step")
    return rows.select(
        "slot",
        "offset",
        entity(definition.keys, OWN).alias("entity"),
        "step",
        end_us.alias("end_us"),
        F.timestamp_micros(end_us).alias("tile_end"),
    )
