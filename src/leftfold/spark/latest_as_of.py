"""Tables, and recorded rows of free views, of many entities, each at a moment of its own: the newest row known then."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from leftfold.fold.latest import Latest, Taken
from leftfold.spark.as_of import KEYS, AsOf
from leftfold.spark.offline import read_as, type_of
from leftfold.spark.table import TableJob
from leftfold.store.layout import ACCEPTED, ROW_FIELD


def versions_of_table(records: DataFrame, definition: Latest) -> DataFrame:
    """Every row that a table ever had: slot, offset, entity, log_us, position, deleted, c0…cn.

    As far as the log has it: of a compacted topic older records of a key may be gone.
    """
    rows = TableJob(definition).stream(records, 0).where(F.col("outcome") == ACCEPTED)
    columns = [f"c{i}" for i in range(len(definition.columns))]
    return rows.select("slot", "offset", "entity", "log_us", F.col("offset").alias("position"), "deleted", *columns)


def versions_in_lake(recorded: DataFrame, definition: Latest, build: str) -> DataFrame:
    """Every row that a build of a free view ever had, with the batch that wrote it, from its lake."""
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
    """entity, at, upto, and the columns as f0, f1, …: one row for each that is asked, which are distinct.

    A row counts if it was logged before `at`; for "served", if its `batch` is at most `upto`.
    """
    row = F.struct("deleted", *(f"c{i}" for i in range(len(definition.columns))))
    # In the order of what decides: a version before what is asked for its batch, after what is asked for its moment.
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


def _value(column: Taken, value: Column) -> Column:
    if column.repeated:
        return F.transform(value, F.timestamp_micros) if column.kind == "datetime" else value
    made = read_as(value, column.kind)
    return made if column.default is None else F.coalesce(made, read_as(F.lit(column.default), column.kind))
