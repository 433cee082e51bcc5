"""Profiles of columns, made in Spark: first their cells, in two passes, then how many rows are in each, in one.

Only cells and counts reach the driver: for each column at most 50 texts and 52 counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from leftfold.errors import RunError
from leftfold.fold.profiles import CELLS, FREQUENT, LONGEST, MISSING, Cells, ColumnKind, ColumnProfile, edges_of

_ACCURACY = 10_000  # ranks of edges are off by at most one in so many rows; the counts between them are exact
# With more groups of predictions than this, a comparison for each says nothing any more.
MOST_GROUPS = 200


def kinds_of(frame: DataFrame, names: Iterable[str]) -> dict[str, ColumnKind]:
    """Return the kinds of those columns of a frame that can be profiled: numbers, texts, truth values and lists."""
    types = {field.name: field.dataType for field in frame.schema}
    kinds = {name: _kind(types[name]) for name in names if name in types}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def profiles_of(frame: DataFrame, names: Iterable[str]) -> dict[str, ColumnProfile]:
    """Return the profiles of columns of a frame. It is read three times."""
    kinds = kinds_of(frame, names)
    if not kinds:
        return {}
    cells = {**_numbers(frame, kinds), **_texts(frame, kinds)}
    ordered = {name: cells[name] for name in kinds}
    return counted(frame, ordered, by=()).get((), {name: ColumnProfile.of(c, {}, 0) for name, c in ordered.items()})


def counted(
    frame: DataFrame, cells: Mapping[str, Cells], by: Iterable[str]
) -> dict[tuple[str | None, ...], dict[str, ColumnProfile]]:
    """Count the rows of each group by column and cell, in one aggregation. `by` names the columns of the groups."""
    names, groups = list(cells), [F.col(f"`{name}`").cast("string").alias(f"g{n}") for n, name in enumerate(by)]
    keys = [f"g{n}" for n in range(len(groups))]
    each = [
        F.struct(F.lit(number).alias("column"), *_placed(_value(name, cells[name].kind), cells[name]))
        for number, name in enumerate(names)
    ]
    rows = frame.select(*groups, F.explode(F.array(*each)).alias("one")).select(*keys, "one.*")
    table = rows.groupBy(*keys, "column", "cell").agg(F.count(F.lit(1)), F.count_if("new"))
    # So many rows that a group beyond the limit shows, and no more.
    most = MOST_GROUPS * sum(c.number + 1 for c in cells.values())
    found: dict[tuple[str | None, ...], dict[str, dict[int, tuple[int, int]]]] = {}
    for row in table.limit(most + 1).collect():
        group, (column, cell, count, new) = tuple(row[: len(keys)]), row[len(keys) :]
        found.setdefault(group, {}).setdefault(names[column], {})[cell] = count, new
    check_number(len(found), by)
    return {
        group: {name: _profile(cells[name], columns.get(name, {})) for name in names}
        for group, columns in found.items()
    }


def check_number(groups: int, by: Iterable[str]) -> None:
    if groups > MOST_GROUPS:
        raise RunError(
            "too-many-groups",
            f"columns were to be compared in more than {MOST_GROUPS} groups",
            why=f"by {', '.join(by)} there are more; each has a figure for every column",
            fix="name fewer fields in by=, or a shorter stretch of time",
        )


def _profile(cells: Cells, rows: Mapping[int, tuple[int, int]]) -> ColumnProfile:
    return ColumnProfile.of(
        cells, {cell: count for cell, (count, _) in rows.items()}, sum(new for _, new in rows.values())
    )


def _kind(data: T.DataType) -> ColumnKind | None:
    """Return how a column is profiled. Moments and bytes are not: a moment of today is always new."""
    if isinstance(data, T.NumericType):
        return "number"
    if isinstance(data, T.StringType | T.BooleanType):
        return "text"
    return "length" if isinstance(data, T.ArrayType) else None


def _value(name: str, kind: ColumnKind) -> Column:
    """Return a column's value as it is placed into cells. It is null if it is missing; NaN counts as missing."""
    column = F.col(f"`{name}`")
    if kind == "text":
        return F.substring(column.cast("string"), 1, LONGEST)
    number = (F.size(column) if kind == "length" else column).cast("double")
    return F.when(column.isNotNull() & ~F.isnan(number), number)


def _placed(value: Column, cells: Cells) -> list[Column]:
    """Return the cell of a value, and whether the value is new."""
    if cells.kind == "text":
        known = F.array_position(F.array(*(F.lit(text) for text in cells.texts)).cast("array<string>"), value) - 1
        cell = F.when(known >= 0, known).otherwise(len(cells.texts)).cast("int")
        new = cell == len(cells.texts)
    else:
        edges = F.array(*(F.lit(edge) for edge in cells.edges)).cast("array<double>")
        cell = F.size(F.filter(edges, lambda edge: edge < value))
        new = F.coalesce((value < F.lit(cells.least)) | (value > F.lit(cells.greatest)), F.lit(True))
    missing = value.isNull()
    return [
        F.when(missing, MISSING).otherwise(cell).alias("cell"),
        F.coalesce(~missing & new, F.lit(False)).alias("new"),
    ]


def _numbers(frame: DataFrame, kinds: Mapping[str, ColumnKind]) -> dict[str, Cells]:
    """Return the cells of numbers and lengths, from one aggregation of all of them."""
    names = [name for name, kind in kinds.items() if kind != "text"]
    if not names:
        return {}
    shares = [n / CELLS for n in range(1, CELLS)]
    asked = [
        (F.percentile_approx(value, shares, _ACCURACY), F.min(value), F.max(value))
        for value in (_value(name, kinds[name]) for name in names)
    ]
    (row,) = frame.agg(*(column for columns in asked for column in columns)).collect()
    found = {name: row[3 * number : 3 * number + 3] for number, name in enumerate(names)}
    return {
        name: Cells(kinds[name], edges_of(quantiles or ()), least, greatest)
        for name, (quantiles, least, greatest) in found.items()
    }


def _texts(frame: DataFrame, kinds: Mapping[str, ColumnKind]) -> dict[str, Cells]:
    """Return the cells of texts: the most frequent ones, counted exactly, for all columns at once."""
    names = [name for name, kind in kinds.items() if kind == "text"]
    if not names:
        return {}
    each = [F.struct(F.lit(n).alias("column"), _value(name, "text").alias("text")) for n, name in enumerate(names)]
    rows = frame.select(F.explode(F.array(*each)).alias("one")).select("one.*").where("text IS NOT NULL")
    order = Window.partitionBy("column").orderBy(F.desc("count"), "text")
    counts = rows.groupBy("column", "text").count().withColumn("rank", F.row_number().over(order))
    found: dict[str, list[str]] = {name: [] for name in names}
    for row in counts.where(F.col("rank") <= FREQUENT).orderBy("column", "rank").collect():
        found[names[row["column"]]].append(row["text"])
    return {name: Cells("text", texts=tuple(texts)) for name, texts in found.items()}
