"""Labels from a user (a DataFrame of Spark or pandas, or files) as one DataFrame that a training set can use.

Their columns are renamed to l0, l1, …, so that they may have any names. Every row stays, even if values are missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from leftfold.declare.label_columns import LabelColumns, LabelKind, format_of, naive, not_labels, unreadable
from leftfold.fold.definition import Key
from leftfold.fold.vector import Input, Part
from leftfold.spark.catalyst import entity
from leftfold.spark.training.offline import type_of

# The name of the mark of a column of labels that holds a feature as it was logged with a prediction. Spark keeps the
# mark in a frame, and in Parquet and Delta files.
_MARK = "leftfold"
# The zone at the end of a time: 2026-03-01T12:00:00+01:00, or Z. A time without one is in UTC.
_ZONE = r"(Z|[+-]\d\d:?\d\d)$"


@dataclass(frozen=True)
class Labels:
    frame: DataFrame  # l0…ln, and at: the label's moment, µs
    columns: LabelColumns
    logged: Mapping[str, str] = field(default_factory=dict)  # what was logged, by its mark -> its column in `frame`

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns.names

    def of(self, name: str) -> Column:
        """The column of the labels with that name."""
        return F.col(f"l{self.names.index(name)}")

    def entity(self, view: str, keys: tuple[Key, ...]) -> Column:
        """The text of a label's entity in a view; null if a part of the key is null."""
        return entity(keys, "", {key.name: self.of(self.columns.key(view, key)) for key in keys})

    def batch(self, name: str) -> Column:
        return self.of(self.columns.batch(name)).cast("long")

    def given(self, needed: Input) -> Column:
        return self.of(self.columns.given(needed)).cast(type_of(needed.kind))


def labels_of(
    raw: Any, session: SparkSession, *, time: str, keys: Mapping[str, str], made: Sequence[str] = ()
) -> Labels:
    """Labels from what a user gave. `made` are the names that the training set adds: no column may have one of them.

    The rows of an outcome hold the features that were logged with each prediction. The training set makes its own, so
    these are no columns of the labels. They are kept aside under other names.
    """
    frame = _frame(raw, session, time)
    marks = {f.name: f.metadata[_MARK] for f in frame.schema.fields if _MARK in f.metadata}
    aside = [name for name in marks if name in made]
    names = tuple(name for name in frame.columns if name not in aside)
    types = {field.name: field.dataType for field in frame.schema.fields}
    columns = LabelColumns({name: (_kind(types[name]), types[name].simpleString()) for name in names}, keys)
    columns.refuse_taken(made)
    places = {name: f"l{i}" for i, name in enumerate(names)} | {name: f"g{i}" for i, name in enumerate(aside)}
    plain = frame.toDF(*(places[name] for name in frame.columns))
    moment = columns.moment(time)
    at = _moment(F.col(places[moment]), types[moment])
    return Labels(plain.withColumn("at", at), columns, {mark: places[name] for name, mark in marks.items()})


def logged_mark(part: Part) -> str:
    """The mark of a feature that was logged. What has the same mark means the same, if it is of the same definition."""
    return json.dumps([part.view, part.feature, part.default])


def as_logged(frame: DataFrame, parts: Sequence[Part]) -> DataFrame:
    """Mark the columns of a frame that hold these features."""
    marks = {part.name: {_MARK: logged_mark(part)} for part in parts}
    names = frame.columns
    return frame.select(*(F.col(n).alias(n, metadata=marks[n]) if n in marks else F.col(n) for n in names))


def _frame(raw: Any, session: SparkSession, time: str) -> DataFrame:
    if isinstance(raw, DataFrame) or hasattr(raw, "sparkSession"):
        frame: DataFrame = raw
        return frame
    if isinstance(raw, str | Path):
        kind = format_of(Path(raw))
        options = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
        try:
            return session.read.format(kind).options(**options).load(str(raw))
        except PySparkException as error:
            said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise unreadable(raw, said) from error
    if type(raw).__module__.partition(".")[0] == "pandas":
        kind = raw.dtypes.get(time)
        if getattr(kind, "kind", "") == "M" and getattr(kind, "tz", None) is None:  # Spark would use its own zone
            raise naive(time)
        return session.createDataFrame(raw)
    if type(raw).__module__.partition(".")[0] == "pyarrow":
        return session.createDataFrame(raw)
    raise not_labels(raw)


def _moment(column: Column, kind: DataType) -> Column:
    """A time in µs; null if it is missing or cannot be read."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    zoned = F.when(column.rlike(_ZONE), column).otherwise(F.concat(column, F.lit("Z")))
    return F.unix_micros(F.try_to_timestamp(zoned))


def _kind(data: DataType) -> LabelKind:
    if isinstance(data, DecimalType):
        return "other"
    kinds: tuple[tuple[type[DataType], LabelKind], ...] = (
        (StringType, "string"),
        (IntegralType, "int"),
        (FractionalType, "float"),
        (BooleanType, "bool"),
        (TimestampType, "moment"),
        (TimestampNTZType, "naive moment"),
    )
    return next((kind for type_, kind in kinds if isinstance(data, type_)), "other")
