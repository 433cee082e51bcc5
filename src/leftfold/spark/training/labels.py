"""Labels from a user (a DataFrame of Spark or pandas, or files) as one DataFrame that a training set can use.

Their columns are renamed to l0, l1, …, so that they may have any names. Every row stays, even if values are missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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

from leftfold.errors import DeclarationError
from leftfold.fold.definition import Key
from leftfold.fold.values import Kind
from leftfold.fold.vector import Input, Part
from leftfold.spark.catalyst import entity
from leftfold.spark.training.offline import type_of

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}
# The name of the mark of a column of labels that holds a feature as it was logged with a prediction. Spark keeps the
# mark in a frame, and in Parquet and Delta files.
_MARK = "leftfold"
# The zone at the end of a time: 2026-03-01T12:00:00+01:00, or Z. A time without one is in UTC.
_ZONE = r"(Z|[+-]\d\d:?\d\d)$"


@dataclass(frozen=True)
class Labels:
    frame: DataFrame  # l0…ln, and at: the label's moment, µs
    names: tuple[str, ...]
    keys: Mapping[str, str]  # key of a view -> its label column, if named differently
    logged: Mapping[str, str] = field(default_factory=dict)  # what was logged, by its mark -> its column in `frame`

    def column(self, name: str, why: str, fits: Callable[[DataType], bool], needed: str) -> str:
        """Return the column's name in `frame`. Raise if it is missing or its type does not fit.

        `why` and `needed` are for the text of the error.
        """
        if name not in self.names:
            raise DeclarationError(
                "label-column-missing",
                f"the labels have no column {name}",
                why=f"{why}; they have {', '.join(self.names)}",
                fix=f"add {name} to the labels, or name the column that holds it (time=, keys=)",
            )
        place = f"l{self.names.index(name)}"
        kind = self.frame.schema[place].dataType
        if not fits(kind):
            raise DeclarationError(
                "label-column-kind",
                f"the column {name} of the labels is {kind.simpleString()}",
                why=needed,
                fix=f"cast {name} in the labels first",
            )
        return place

    def entity(self, view: str, keys: tuple[Key, ...]) -> Column:
        """The text of a label's entity in a view; null if a part of the key is null."""
        columns = {}
        for key in keys:
            name = self.keys.get(key.name, key.name)
            why, needed = f"{view} is keyed by {key.name}", f"{view} is keyed by {key.name}, which is {key.kind}"
            columns[key.name] = F.col(self.column(name, why, _fits(key.kind), needed))
        return entity(keys, "", columns)

    def batch(self, name: str) -> Column:
        why = "batch= names the column with the batch that a reader got"
        return F.col(self.column(name, why, _fits("int"), "a batch is a whole number")).cast("long")

    def given(self, needed: Input) -> Column:
        why = f"the vector asks for {needed.name} as {needed.kind}"
        return F.col(self.column(needed.name, why, _fits(needed.kind), why)).cast(type_of(needed.kind))


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
    for name in made:
        if name in names:
            raise DeclarationError(
                "label-column-taken",
                f"the labels have a column {name}, and so has the vector",
                why="a training set has the columns of the labels and the features side by side",
                fix=f"rename that column of the labels, or leave it out: it would be {name} as somebody else knew it",
            )
    places = {name: f"l{i}" for i, name in enumerate(names)} | {name: f"g{i}" for i, name in enumerate(aside)}
    plain = frame.toDF(*(places[name] for name in frame.columns))
    labels = Labels(plain, names, keys, {mark: places[name] for name, mark in marks.items()})
    place = labels.column(
        time,
        "time= names the column with the moment of each label",
        lambda kind: isinstance(kind, TimestampType | TimestampNTZType | StringType),
        "the moment of a label is a timestamp, or its text in ISO 8601",
    )
    kind = plain.schema[place].dataType
    if isinstance(kind, TimestampNTZType):
        raise _naive(time)
    return Labels(plain.withColumn("at", _moment(F.col(place), kind)), names, keys, labels.logged)


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
        suffix = Path(raw).suffix.lower()
        kind = "parquet" if suffix == "" else _FORMATS.get(suffix)
        if kind is None:
            raise DeclarationError(
                "labels-format",
                f"labels in {Path(raw).name} are of no format that is read here",
                why=f"{suffix} is not one of {', '.join(_FORMATS)}, nor is it a directory of parquet files",
                fix="give a file of one of these, or a DataFrame of Spark or pandas",
            )
        options = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
        try:
            return session.read.format(kind).options(**options).load(str(raw))
        except PySparkException as error:
            said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise DeclarationError(
                "labels-unreadable",
                f"labels cannot be read from {raw}",
                why=said[:300],
                fix="correct the path or the files; parquet of pandas needs coerce_timestamps='us'",
            ) from error
    if type(raw).__module__.partition(".")[0] == "pandas":
        kind = raw.dtypes.get(time)
        if getattr(kind, "kind", "") == "M" and getattr(kind, "tz", None) is None:  # Spark would use its own zone
            raise _naive(time)
        return session.createDataFrame(raw)
    raise DeclarationError(
        "labels-kind",
        f"labels were given as {type(raw).__name__}",
        why="a training set takes a DataFrame of Spark or pandas, or the path of files with labels",
        fix="pass one of these",
    )


def _moment(column: Column, kind: DataType) -> Column:
    """A time in µs; null if it is missing or cannot be read."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    zoned = F.when(column.rlike(_ZONE), column).otherwise(F.concat(column, F.lit("Z")))
    return F.unix_micros(F.try_to_timestamp(zoned))


def _fits(kind: Kind) -> Callable[[DataType], bool]:
    types: dict[Kind, tuple[type[DataType], ...]] = {
        "string": (StringType,),
        "int": (IntegralType,),
        "bool": (BooleanType,),
        "float": (IntegralType, FractionalType),
    }
    return lambda data_type: isinstance(data_type, types[kind]) and not isinstance(data_type, DecimalType)


def _naive(name: str) -> DeclarationError:
    return DeclarationError(
        "naive-datetime",
        f"the column {name} of the labels has moments without a time zone",
        why="without a zone it is a different moment on every machine",
        fix=f"give it one, for example labels[{name!r}].dt.tz_localize('UTC')",
    )
