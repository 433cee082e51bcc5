"""Scores and labels of closed predictions, counted in Spark. Only counts reach the driver: by group and cell of scores.

The arithmetic of the counts is in `fold/scores.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from leftfold.errors import DeclarationError, RunError
from leftfold.fold.durations import SECOND
from leftfold.fold.scores import CLIP, QUANTILES, UNIT, Cell, ScoreCounts
from leftfold.spark.training.assemble import cached

# With all cells filled, the counts of so many groups take about 200 MB here.
MOST_GROUPS = 2_000
# Ranks of the edges are off by at most one in so many scores: by a 50th of a cell.
_ACCURACY = 50 * QUANTILES
_BETWEEN = "\x1f"  # parts of the name of groups that differ by the hour alone


@dataclass(frozen=True)
class GroupCounts:
    """The predictions of one group: those that were counted, and how many were left out."""

    by: tuple[Any, ...]  # texts, in the order of `by`; the hour as a number of hours since 1970
    scores: ScoreCounts
    open: int = 0  # their outcome is not known yet
    fallback: int = 0  # the answer is not the model's
    without_score: int = 0
    without_label: int = 0


def counts_of(frame: DataFrame, *, score: str, label: str, by: Sequence[str]) -> list[GroupCounts]:
    """Count the rows of outcomes by group, and their scores by cell and class.

    `by` names columns, or "hour" for the hour of `scored_at`. Groups that differ by the hour alone have the same edges,
    so their counts can be added. The edges are quantiles of the scores that are counted.
    """
    check_columns(frame, score, label, by)
    keys = [_key(name).alias(f"g{place}") for place, name in enumerate(by)]
    together = F.concat_ws(_BETWEEN, *(_key(name) for name in by if name != "hour")).alias("together")
    judged = _judged(F.col(f"`{score}`"), F.col(f"`{label}`"))
    rows = cached(frame.select(*keys, together, *judged), "an evaluation needs")
    try:
        groups = rows.groupBy(*(f"g{place}" for place in range(len(by)))).agg(F.count_if(F.col("state") == "neither"))
        check_groups(groups.limit(MOST_GROUPS + 1).collect(), label, by)
        return _counted(rows, len(by), _edges(rows))
    finally:
        rows.unpersist()


def _key(name: str) -> Column:
    if name == "hour":
        return F.floor(F.unix_micros("scored_at") / F.lit(3_600 * SECOND)).cast("string")
    return F.coalesce(F.col(f"`{name}`").cast("string"), F.lit("none"))


def _judged(score: Column, label: Column) -> list[Column]:
    """Columns with the score (`value`), the label (`hit`), and what becomes of the row (`state`)."""
    value = score.cast("double") + F.lit(0.0)  # there are two zeros
    whole = label.cast("int")
    state = (
        F.when(F.col("outcome") != "scored", "fallback")
        .when(~F.col("closed"), "open")
        .when(value.isNull() | F.isnan(value), "without score")
        .when(whole.isNull(), "without label")
        .when(~whole.isin(0, 1), "neither")
        .otherwise("counted")
    )
    return [value.alias("value"), (whole == 1).alias("hit"), state.alias("state")]


def _edges(rows: DataFrame) -> dict[str, tuple[float, ...]]:
    """Return the edges for each group of versions, roles and the like: the distinct quantiles of its scores."""
    # As SQL: a thousand literals of Python are a thousand calls into the JVM.
    shares = ", ".join(f"{n / QUANTILES!r}D" for n in range(1, QUANTILES))
    quantiles = F.expr(f"percentile_approx(value, array({shares}), {_ACCURACY})")
    found = rows.where(F.col("state") == "counted").groupBy("together").agg(quantiles).collect()
    return {together: tuple(sorted(set(values))) for together, values in found}


def _counted(rows: DataFrame, keys: int, edges: dict[str, tuple[float, ...]]) -> list[GroupCounts]:
    groups = [*(f"g{place}" for place in range(keys)), "together"]
    counted, value, hit = F.col("state") == "counted", F.col("value"), F.col("hit")
    inside = counted & value.between(0.0, 1.0)
    clipped = F.least(F.greatest(value, F.lit(CLIP)), F.lit(1.0 - CLIP))
    loss = -F.log(F.when(hit, clipped).otherwise(1.0 - clipped))
    table = (
        _with_cells(rows, edges)
        .groupBy(*groups, "cell")
        .agg(
            *(F.count_if(F.col("state") == state) for state in ("open", "fallback", "without score", "without label")),
            F.count_if(counted & hit),
            F.count_if(counted & ~hit),
            F.count_if(counted & ~value.between(0.0, 1.0)),
            _units(inside, value),
            _units(inside, loss),
            _units(inside, F.pow(value - hit.cast("double"), 2)),
        )
    )
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for batch in table.toDF(*groups, *(f"c{n}" for n in range(11))).toArrow().to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.setdefault(row[: keys + 1], []).append(row[keys + 1 :])
    return [_group(group[:-1], cells, edges.get(group[-1], ())) for group, cells in found.items()]


def _group(by: tuple[Any, ...], rows: list[tuple[Any, ...]], edges: tuple[float, ...]) -> GroupCounts:
    cells = {int(row[0]): Cell(row[5], row[6], int(row[8])) for row in rows if row[0] is not None}
    left_out, sums = (
        [sum(int(row[place]) for row in rows) for place in places] for places in ((1, 2, 3, 4), (9, 10, 7))
    )
    return GroupCounts(by, ScoreCounts(edges, cells, *sums), *left_out)


def _units(where: Column, value: Column) -> Column:
    """Return the sum of some values in units. It is exact, so it does not depend on the order of rows."""
    units = F.rint(value * float(UNIT)).cast("long").cast("decimal(20,0)")
    return F.coalesce(F.sum(F.when(where, units)), F.lit(0).cast("decimal(30,0)"))


def _with_cells(rows: DataFrame, edges: dict[str, tuple[float, ...]]) -> DataFrame:
    """Add the cell of each counted score: twice its place among the edges, and one more if it is equal to an edge."""
    table = rows.sparkSession.createDataFrame(list(edges.items()), "together string, edges array<double>")
    placed = rows.join(F.broadcast(table), "together", "left").withColumn("place", F.lit(0))
    step = QUANTILES // 2
    while step:  # a binary search: ten compiled comparisons of one row; beyond the last edge they are null
        before = F.get("edges", F.col("place") + (step - 1)) < F.col("value")
        placed = placed.withColumn("place", F.col("place") + F.when(before, step).otherwise(0))
        step //= 2
    on_edge = F.coalesce(F.get("edges", F.col("place")) == F.col("value"), F.lit(False)).cast("int")
    cell = F.when(F.col("state") == "counted", F.col("place") * 2 + on_edge)
    return placed.withColumn("cell", cell).drop("edges", "place")


# Refusals ------------------------------------------------------------------------------------------------------------


def check_columns(frame: DataFrame, score: str, label: str, by: Sequence[str]) -> None:
    kinds: dict[str, T.DataType] = {field.name: field.dataType for field in frame.schema}
    if unknown := [name for name in by if name not in kinds and name != "hour"]:
        raise DeclarationError(
            "evaluation-column",
            f"figures were asked for by {unknown[0]}, which no prediction has",
            why=f"its fields are {', '.join(kinds)}, and hour, which is the hour of scored_at",
            fix=f"leave it out, or name in by= some of {', '.join([*kinds, 'hour'])}",
        )
    if not isinstance(kinds[score], T.NumericType | T.BooleanType):
        raise DeclarationError(
            "score-not-a-number",
            f"{score} cannot be judged as a score: it is {kinds[score].simpleString()}",
            why="figures tell how well a number separates what happened from what did not",
            fix="name a field of the prediction that is a number: score=",
        )
    if not isinstance(kinds[label], T.BooleanType | T.IntegralType):
        raise not_binary(label, f"it is {kinds[label].simpleString()}")


def check_groups(found: Sequence[Any], label: str, by: Sequence[str]) -> None:
    """Refuse too many groups, and labels that are neither 0 nor 1. Of each group found, the last value counts those."""
    if len(found) > MOST_GROUPS:
        raise RunError(
            "too-many-groups",
            f"predictions were to be judged in more than {MOST_GROUPS:,} groups",
            why=f"by {', '.join(by)} there are more; the counts of a group take up to 100 kB in this process",
            fix="name fewer fields in by=, or a shorter stretch of time",
        )
    if neither := sum(group[-1] for group in found):
        raise not_binary(label, f"in {neither:,} predictions it is neither 0 nor 1")


def not_binary(label: str, why: str) -> DeclarationError:
    return DeclarationError(
        "label-not-binary",
        f"{label} cannot be the label: {why}",
        why="AUC, log loss and calibration judge whether something happened: a label is true or false, or 1 or 0",
        fix="name another label, for example one that is lf.happened(); label=",
    )
