"""Tiles in batch, from a complete set of records: the finest from records, coarser ones from finer ones.

There is no state, and each record is folded once. The partials are the same as those of the live view, so the rows are
the same. `merged` combines partials of any kind.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.declare.acceptance import ACCEPTED
from leftfold.fold import columns
from leftfold.fold.definition import Definition
from leftfold.spark.accept import OF_HASHES, hashes_in_ledger, tally, tally_of_tallies
from leftfold.spark.catalyst import entity
from leftfold.spark.views.tiles import OWN, aggregate, exploded, hashed, hashing, judged_rows, tile


def stacked(records: DataFrame, definition: Definition, only: Column) -> DataFrame:
    """Make the same tiles as `tiles` from a complete set of records: the finest step first, coarser ones from those.

    A record is folded once, whatever number of steps it is exploded to. This works because every step is a multiple of
    the steps before it. It does not work for rows that a `Stream` makes, nor for lifetime features.
    """
    is_accepted = F.col("outcome") == ACCEPTED
    start = F.col("event_us") - F.pmod("event_us", F.lit(definition.steps[0]))
    whose = F.when(is_accepted, entity(definition.keys, OWN)).alias("whose")
    partials = [aggregate(column, placed=True).alias(f"p{i}") for i, column in enumerate(definition.columns)]
    base = (
        judged_rows(records, definition)
        .groupBy("outcome", "slot", whose, F.when(is_accepted, start).alias("start"))
        .agg(
            *partials,
            *hashing(definition),
            *tally(),
        )
        .withColumnRenamed("start", "event_us")
    )
    rows = hashes_in_ledger(exploded(hashed(base), definition.steps).where(only), OF_HASHES)
    merges = [merged(column, F.col(f"p{i}")) for i, column in enumerate(definition.columns)]
    folded = (
        rows.select("*", *tile(F.col("whose")))
        .groupBy("entity", "step", "tile_end")
        .agg(
            *(merge.alias(f"p{i}") for i, merge in enumerate(merges)),
            *hashing(definition),
            *tally_of_tallies(),
        )
    )
    lasts = {f"p{i}": F.col(f"p{i}.value") for i, c in enumerate(definition.columns) if c.aggregate == "last"}
    return hashed(folded).withColumns(lasts) if lasts else hashed(folded)


def merged(
    column: columns.Column, partial: Column, *, order: Column | None = None, within: Column | None = None
) -> Column:
    """Merge the partials of a column into one.

    `order` is the order of partials that do not overlap in time. Without it, partials of "last" must be `placed` (see
    `aggregate`).
    """
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
