"""Tiles of records that are all there: the finest made of records, coarser ones of finer; no state, one fold a record.

The same partials as the live view's, so the same rows; and how pieces of any kind become one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.fold import columns
from leftfold.fold.definition import Definition
from leftfold.spark.catalyst import entity
from leftfold.spark.tiles import OWN, aggregate, exploded, hashed, hashing, judged_rows, tally, tile
from leftfold.store.layout import ACCEPTED


def stacked(records: DataFrame, definition: Definition, only: Column) -> DataFrame:
    """What `tiles` makes of records that are all there: tiles of the finest step, and coarser ones of those.

    So a record is folded once, whatever it is exploded to, and every step is a multiple of those before it. Not for
    what a stream makes, and not for a lifetime.
    """
    is_accepted = F.col("outcome") == ACCEPTED
    start = F.col("event_us") - F.pmod("event_us", F.lit(definition.steps[0]))
    whose = F.when(is_accepted, entity(definition.keys, OWN)).alias("whose")
    made = [aggregate(column, placed=True).alias(f"p{i}") for i, column in enumerate(definition.columns)]
    base = (
        judged_rows(records, definition)
        .groupBy("outcome", "slot", whose, F.when(is_accepted, start).alias("start"))
        .agg(
            *made,
            *hashing(definition),
            *tally(),
        )
        .withColumnRenamed("start", "event_us")
    )
    rows = exploded(hashed(base), definition.steps).where(only)
    merges = [merged(column, F.col(f"p{i}")) for i, column in enumerate(definition.columns)]
    folded = (
        rows.select("*", *tile(F.col("whose")))
        .groupBy("entity", "step", "tile_end")
        .agg(
            *(merge.alias(f"p{i}") for i, merge in enumerate(merges)),
            *hashing(definition),
            F.sum("records").alias("records"),
            *(F.max(name).alias(name) for name in ("newest_log", "newest_event", "newest_offset")),
        )
    )
    lasts = {f"p{i}": F.col(f"p{i}.value") for i, c in enumerate(definition.columns) if c.aggregate == "last"}
    return hashed(folded).withColumns(lasts) if lasts else hashed(folded)


def merged(
    column: columns.Column, partial: Column, *, order: Column | None = None, within: Column | None = None
) -> Column:
    """Partials of a column as one. `order` is that of pieces that do not overlap in time; else they are `placed`."""
    chosen = partial if within is None else F.when(within, partial)
    match column.aggregate:
        case "count" | "sum":
            return F.sum(chosen)
        case "min":
            return F.min(chosen)
        case "max":
            return F.max(chosen)
        case "last":
            return F.max(chosen) if order is None else F.max_by(partial, F.when(chosen.isNotNull(), order))
        case "distinct":
            return F.hll_union_agg(chosen)
        case "last_n":  # each text starts with its position, so they sort by it
            newest = F.sort_array(F.flatten(F.collect_list(chosen)), asc=False)
            return F.slice(newest, 1, column.size)
    raise TypeError(f"not an aggregate: {column.aggregate!r}")
