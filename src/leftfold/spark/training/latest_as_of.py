"""Rows of tables and of free views for training sets: for each entity and moment, the newest row known then."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from leftfold.declare.acceptance import ACCEPTED
from leftfold.fold.known import AsOf
from leftfold.fold.latest import Latest, TakenColumn
from leftfold.spark.training.as_of import KEYS
from leftfold.spark.training.offline import read_as, type_of
from leftfold.spark.views.table import TableJob
from leftfold.store.layout import ROW_FIELD


def versions_of_table(records: DataFrame, definition: Latest) -> DataFrame:
    """Every version of every row of a table: slot, offset, entity, log_us, position, deleted, c0…cn.

    Only versions that the log still has are included. In a compacted topic, older records of a key may be gone.
    """
    rows = TableJob(definition).stream(records, 0).where(F.col("outcome") == ACCEPTED)
    columns = [f"c{i}" for i in range(len(definition.columns))]
    return rows.select("slot", "offset", "entity", "log_us", F.col("offset").alias("position"), "deleted", *columns)


def versions_in_lake(recorded: DataFrame, definition: Latest, build: str) -> DataFrame:
    """Every version of every row of a build of a free view, with the batch that wrote it, from its lake."""
    mine = recorded.where((F.col("build") == F.lit(build)) & (F.col("field") == F.lit(ROW_FIELD)))
    texts = F.from_json("value", "array<string>")  # [position, batch, value, …]; a number is its own text
    columns = [
        F.get(texts, F.lit(i + 2)).cast("long" if column.kind == "datetime" else type_of(column.kind)).alias(f"c{i}")
        for i, column in enumerate(definition.columns)
    ]
    return mine.select(
        "entity",
        "batch",
        F.unix_micros("logged").alias("log_us"),
        F.struct("position", "batch", "changelog_offset").alias("position"),
        "deleted",
        *columns,
    )


def rows_as_of(asked: DataFrame, versions: DataFrame, definition: Latest, as_of: AsOf) -> DataFrame:
    """Columns entity, at, upto, and the view's columns as f0, f1, …: one row for each row of `asked`.

    The rows of `asked` must be distinct. A version counts if it was logged before `at`. For "served", it counts if its
    `batch` is at most `upto`.
    """
    row = F.struct("deleted", *(f"c{i}" for i in range(len(definition.columns))))
    # The sort order at equal moments: a version of the same batch counts, so it comes before the asked row. A version
    # that was logged at the same moment does not count, so it comes after.
    moment, turn = ("batch", 0) if as_of == "served" else ("log_us", 2)
    known = versions.select(
        "entity", F.col(moment).alias("moment"), F.lit(turn).alias("turn"), "position", row.alias("row")
    )
    reached = F.col("upto" if as_of == "served" else "at")
    both = asked.select(*KEYS, reached.alias("moment"), F.lit(1).alias("turn")).unionByName(
        known, allowMissingColumns=True
    )
    before = Window.partitionBy("entity").orderBy("moment", "turn").rowsBetween(Window.unboundedPreceding, 0)
    newest = both.withColumn("newest", F.max_by("row", "position").over(before)).where("turn = 1")
    there = ~F.coalesce(F.col("newest.deleted"), F.lit(True))
    values = [_value(c, F.when(there, F.col(f"newest.c{i}"))).alias(f"f{i}") for i, c in enumerate(definition.columns)]
    return newest.select(*KEYS, *values)


def _value(column: TakenColumn, value: Column) -> Column:
    if column.repeated:
        return F.transform(value, F.timestamp_micros) if column.kind == "datetime" else value
    typed = read_as(value, column.kind)
    return typed if column.default is None else F.coalesce(typed, read_as(F.lit(column.default), column.kind))
