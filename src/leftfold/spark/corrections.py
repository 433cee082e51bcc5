"""Which tiles re-driven records touch, and those tiles computed anew."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leftfold.spark.catalyst import entity
from leftfold.spark.tiles import OWN, TilesJob, accepted, pack, tiles

_TILE = ("entity", "step", "tile_end")


_DAY = 86_400_000_000


@dataclass(frozen=True)
class Touched:
    open: int  # records with a tile that may still change
    closes: int | None  # when the first of their tiles ends, µs
    days: tuple[int, ...]  # where the oldest closed tile of each day starts, µs, oldest first


def touched(fresh: DataFrame, job: TilesJob, closed: int) -> Touched:
    """What re-driven records touch, by tiles that end by `closed` or later."""
    tiles_of = _tiles_of(fresh, job)
    late = F.col("end_us") > F.lit(closed)
    still = tiles_of.where(late).agg(F.count_distinct("slot", "offset"), F.min("end_us")).collect()[0]
    start = F.col("end_us") - F.col("step")
    days = tiles_of.where(~late).groupBy(F.floor(start / F.lit(_DAY))).agg(F.min(start).alias("start"))
    return Touched(still[0], still[1], tuple(sorted(row["start"] for row in days.collect())))


def corrected(
    records: DataFrame, fresh: DataFrame, job: TilesJob, number: int, *, since: int, closed: int
) -> DataFrame:
    """The closed tiles from `since` on that re-driven records touch, packed. `records` are the log with all of them."""
    reached = (F.col("end_us") <= F.lit(closed)) & (F.col("end_us") - F.col("step") >= F.lit(since))
    wanted = _tiles_of(fresh, job).where(reached).select(*_TILE).distinct()
    made = tiles(records, job.definition, delay=0, stream=job.between).where(F.col("step") > 0)
    return pack(made.join(wanted, list(_TILE), "left_semi"), job.definition, number)


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
