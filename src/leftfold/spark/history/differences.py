"""Compare two tables of features by entity. Only counts and the largest differences come to the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from leftfold.fold.definition import Key
from leftfold.fold.differences import SHOWN, Differences, FeatureDifference, Largest, text_of
from leftfold.offsets import Offsets
from leftfold.places import table_unreadable
from leftfold.spark.catalyst import entity
from leftfold.spark.files import absolute, exists
from leftfold.spark.history.records import read_history
from leftfold.spark.history.redriven import with_redriven
from leftfold.spark.source import Source
from leftfold.spark.training.offline import features_at
from leftfold.spark.views.tiles import TilesJob, accepted

_NUMBERS = ("bigint", "int", "smallint", "tinyint", "double", "float")
_INTEGERS = _NUMBERS[:4]


def features_of(
    session: SparkSession,
    source: Source,
    job: TilesJob,
    *,
    starts: Offsets,
    ends: Offsets,
    at: int,
    redriven: DataFrame | None,
) -> DataFrame:
    """Columns entity and every visible feature of a definition, at one moment and one position of the log."""
    records = read_history(session, source, starts, ends)
    if redriven is not None:
        records = with_redriven(records, redriven)
    return features_at(accepted(records, job.definition, job.between), job.definition, at)


def table_at(session: SparkSession, location: str, keys: Sequence[Key], columns: Mapping[str, str]) -> DataFrame:
    """Read a foreign table, Delta or Parquet, with columns renamed to those of the features.

    `columns` maps our names to the names in the table.
    """
    try:
        location = absolute(session, location)
        delta = session.read.format("delta").load(location) if exists(session, f"{location}/_delta_log") else None
        table = session.read.parquet(location) if delta is None else delta
        names = {k.name: columns.get(k.name, k.name) for k in keys}
        own = table.select(*(F.col(f"`{theirs}`").alias(f"key_{ours}") for ours, theirs in names.items()), "*")
    except AnalysisException as error:
        raise table_unreadable(location, why=str(error).splitlines()[0][:300]) from error
    renames = {theirs: ours for ours, theirs in columns.items() if ours not in names}
    features = [c for c in table.columns if c not in names.values()]
    return own.select(
        entity(tuple(keys), "key_").alias("entity"), *(F.col(f"`{c}`").alias(renames.get(c, c)) for c in features)
    )


def differences(
    left: DataFrame,
    right: DataFrame,
    features: Sequence[str],
    *,
    nothing: tuple[Mapping[str, Any], Mapping[str, Any]],
    tolerance: float,
    top: int,
) -> Differences:
    """Compare the features of both sides. `nothing` has, for each side, the values of an entity without a row there."""
    ours, theirs = dict(left.dtypes), dict(right.dtypes)
    types = {f: _common(ours[f], theirs[f]) for f in features}
    left, right = (_side(frame, side, features, types) for side, frame in (("l", left), ("r", right)))
    joined = left.join(right, "entity", "full_outer")
    columns = [F.col("entity")]
    for i, feature in enumerate(features):
        for side, empty in zip("lr", nothing, strict=True):
            absent = _literal(empty.get(feature), types[feature])
            value = F.when(F.col(f"is_{side}"), F.col(f"{side}{i}")).otherwise(absent)
            columns.append(value.alias(f"{side}{i}"))
    table = joined.select(*columns).persist()
    try:
        empties = [_literal(nothing[0].get(f), types[f]) for f in features]
        return _counted(table, features, types, empties, tolerance, top)
    finally:
        table.unpersist()


def _common(left: str, right: str) -> str:
    """The type in which two sides are compared: ours, but never one that cuts off the fraction of the other's."""
    fraction = right in ("double", "float") or right.startswith("decimal")
    return "double" if left in _INTEGERS and fraction else left


def _side(frame: DataFrame, side: str, features: Sequence[str], types: Mapping[str, str]) -> DataFrame:
    values = [F.col(f"`{f}`").cast(types[f]).alias(f"{side}{i}") for i, f in enumerate(features)]
    return frame.select("entity", F.lit(True).alias(f"is_{side}"), *values)


def _counted(
    table: DataFrame,
    features: Sequence[str],
    types: Mapping[str, str],
    empties: Sequence[Column],
    tolerance: float,
    top: int,
) -> Differences:
    fates = [_fate(i, types[f], empty, tolerance) for i, (f, empty) in enumerate(zip(features, empties, strict=True))]
    kinds = ("equal", "different", "left", "right", "empty")
    counts = table.agg(
        F.count(F.lit(1)).alias("entities"),
        *(F.count(F.when(fate == kind, 1)).alias(f"{kind}{i}") for i, fate in enumerate(fates) for kind in kinds),
    ).collect()[0]
    per_feature = []
    for i, (feature, largest) in enumerate(zip(features, _largest(table, fates, features, types, top), strict=True)):
        equal, different, left, right, empty = (int(counts[f"{kind}{i}"]) for kind in kinds)
        per_feature.append(FeatureDifference(feature, equal, different, left, right, empty, tuple(largest)))
    return Differences(counts["entities"], tuple(per_feature))


def _largest(
    table: DataFrame, fates: Sequence[Column], features: Sequence[str], types: Mapping[str, str], top: int
) -> list[list[Largest]]:
    """The largest differences of each feature, at most `top`."""
    largest: list[list[Largest]] = [[] for _ in features]
    if not features or not top:
        return largest
    rows = F.array(*(_row(i, types[f], fate) for i, (f, fate) in enumerate(zip(features, fates, strict=True))))
    unequal = F.filter(rows, lambda row: ~row["fate"].isin("equal", "empty"))
    order = Window.partitionBy("row.feature").orderBy(F.col("row.size").desc(), "entity")
    placed = table.select("entity", F.explode(unequal).alias("row")).withColumn("place", F.row_number().over(order))
    for ranked in placed.where(F.col("place") <= top).orderBy("place").collect():
        row = ranked["row"]
        left, right = (_shown(row[side], types[features[row["feature"]]]) for side in ("left", "right"))
        largest[row["feature"]].append(Largest(ranked["entity"], left, right, row["difference"]))
    return largest


def _fate(i: int, kind: str, empty: Column, tolerance: float) -> Column:
    left, right = F.col(f"l{i}"), F.col(f"r{i}")
    same = left.eqNullSafe(right)
    both_empty = same & (left.isNull() | left.eqNullSafe(empty))
    if tolerance and kind in _NUMBERS:
        a, b = left.cast("double"), right.cast("double")
        apart = F.abs(a - b)  # of an infinite value or NaN nothing is near
        near = (apart < F.lit(float("inf"))) & (apart <= F.lit(tolerance) * F.greatest(F.abs(a), F.abs(b)))
        same = same | F.coalesce(near, F.lit(False))
    return (
        F.when(both_empty, F.lit("empty"))
        .when(same, F.lit("equal"))
        .when(right.isNull(), F.lit("left"))
        .when(left.isNull(), F.lit("right"))
        .otherwise(F.lit("different"))
    )


def _row(i: int, kind: str, fate: Column) -> Column:
    left, right = F.col(f"l{i}"), F.col(f"r{i}")
    if kind in _NUMBERS:
        apart = right.cast("double") - left.cast("double")
        difference = F.when(F.abs(apart) < F.lit(float("inf")), apart)
        size = F.coalesce(F.abs(difference), F.lit(float("inf")))  # a missing value comes first
    else:
        difference, size = F.lit(None).cast("double"), F.lit(0.0)
    return F.struct(
        F.lit(i).alias("feature"),
        fate.alias("fate"),
        _text(left, kind).alias("left"),
        _text(right, kind).alias("right"),
        difference.alias("difference"),
        size.alias("size"),
    )


def _text(value: Column, kind: str) -> Column:
    """The text of a value; of a list as JSON, with moments as text."""
    if not kind.startswith("array"):
        return F.substring(value.cast("string"), 1, SHOWN)
    return F.to_json(value.cast("array<string>") if kind == "array<timestamp>" else value)


def _shown(text: str | None, kind: str) -> str | None:
    """The text that a user is shown, with numbers as Python writes them, which is not always as Java does."""
    if text is None or not ("double" in kind or "float" in kind or kind.startswith("array")):
        return text
    return text_of(json.loads(text) if kind.startswith("array") else float(text))


def _literal(value: Any, kind: str) -> Column:
    if isinstance(value, list):
        return F.array(*(F.lit(one) for one in value)).cast(kind)
    if isinstance(value, datetime):
        return F.timestamp_micros(F.lit(round(value.timestamp() * 1_000_000)))
    return F.lit(value).cast(kind)
