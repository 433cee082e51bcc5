"""Labels from a user (an Arrow table, a data frame of pandas, or a file) as one Arrow table with Spark's types.

Every row stays, even if values are missing. A file whose columns Spark might read differently is left to Spark.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leftfold.arrow import OnlySparkError
from leftfold.arrow.types import MOMENT, named, type_of
from leftfold.declare.label_columns import LabelColumns, format_of, naive, not_labels, unreadable
from leftfold.fold.definition import Key
from leftfold.fold.expressions import to_micros
from leftfold.fold.values import INT64, entity_text
from leftfold.fold.vector import Input

# The note that Spark puts into Parquet files, with the metadata of their columns.
_SPARK_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_INT32 = 2**31


@dataclass(frozen=True)
class ArrowLabels:
    table: pa.Table
    columns: LabelColumns
    at: list[int | None] = field(repr=False)  # the moment of each label, µs

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and the last moment; None if no label has one."""
        known = [at for at in self.at if at is not None]
        return (min(known), max(known)) if known else None

    def entities(self, view: str, keys: tuple[Key, ...]) -> list[str | None]:
        """Return the text of each label's entity in a view; None if a part of the key is missing."""
        parts = [self.values(self.columns.key(view, key)) for key in keys]
        return [None if None in part else entity_text(part) for part in zip(*parts, strict=True)]

    def batches(self, column: str) -> list[int | None]:
        return self.values(self.columns.batch(column))

    def values(self, name: str) -> list[Any]:
        found: list[Any] = self.table.column(name).to_pylist()
        return found

    def with_inputs(self, inputs: Sequence[Input]) -> pa.Table:
        """Return the labels' columns, the inputs of a vector with the types that it asks for."""
        table = self.table
        for needed in inputs:
            place = self.columns.names.index(self.columns.given(needed))
            table = table.set_column(place, needed.name, table.column(place).cast(type_of(needed.kind), safe=False))
        return table


def labels_of(raw: Any, *, time: str, keys: Mapping[str, str], made: Sequence[str], only: Sequence[str]) -> ArrowLabels:
    """Read labels. `made` are the names that the training set adds; `only` are the columns to take, if not all."""
    table = _table(raw, time)
    if only:
        table = table.select(list(only))
    if len(set(table.column_names)) < table.num_columns:
        raise OnlySparkError("two columns of the labels have the same name")
    kinds = {}
    for one in table.schema:
        kind = named(one.type)
        if kind is None:
            raise OnlySparkError(f"the column {one.name} of the labels is {one.type}")
        kinds[one.name] = kind
    columns = LabelColumns(kinds, keys)
    columns.refuse_taken(made)
    moment = table.column(columns.moment(time))
    at = (
        moment.cast(pa.int64()).to_pylist() if moment.type == MOMENT else [_micros(text) for text in moment.to_pylist()]
    )
    return ArrowLabels(table, columns, at)


def _micros(text: str | None) -> int | None:
    """A moment from its text. A text without a zone is in UTC. Spark reads more forms, and knows which are none."""
    moment = None if text is None else _moment_of(text)
    if moment is None and text is not None:
        raise OnlySparkError(f"the time {text!r} of a label is not of the form 2026-03-01T12:00:00Z")
    return None if moment is None else to_micros(moment)


def _moment_of(text: str) -> datetime | None:
    if not _MOMENT.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _table(raw: Any, time: str) -> pa.Table:
    if isinstance(raw, pa.Table):
        return _as_spark_has_it(raw)
    if isinstance(raw, str | Path):
        return _file(Path(raw), str(raw))
    if type(raw).__module__.partition(".")[0] == "pandas":
        return _of_pandas(raw, time)
    if hasattr(raw, "sparkSession"):
        raise OnlySparkError("the labels are a DataFrame of Spark")
    raise not_labels(raw)


def _of_pandas(frame: Any, time: str) -> pa.Table:
    """Return a frame of pandas as a table. A missing number is NaN there, and Spark keeps it as such."""
    kind = frame.dtypes.get(time)
    if getattr(kind, "kind", "") == "M" and getattr(kind, "tz", None) is None:
        raise naive(time)
    try:
        return _as_spark_has_it(pa.Table.from_pandas(frame, preserve_index=False))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise OnlySparkError(f"Arrow cannot hold the labels: {error}") from error


def _as_spark_has_it(table: pa.Table) -> pa.Table:
    """Convert types that mean the same: texts of any layout, and moments of any precision and zone."""
    for place, one in enumerate(table.schema):
        column, data = table.column(place), one.type
        if pa.types.is_dictionary(data):
            column, data = column.cast(data.value_type), data.value_type
        if pa.types.is_large_string(data) or pa.types.is_string_view(data):
            column = column.cast(pa.string())
        elif pa.types.is_timestamp(data) and data.tz is not None:
            column = pc.floor_temporal(column, unit="microsecond").cast(MOMENT, safe=False)
        elif pa.types.is_null(data):
            raise OnlySparkError(f"the column {one.name} of the labels has no values")
        table = table.set_column(place, one.name, column)
    return table.replace_schema_metadata(None)


def _file(path: Path, shown: str) -> pa.Table:
    kind = format_of(path)
    if "://" in shown:
        raise OnlySparkError(f"the labels {shown} are not on this machine's disk")
    try:
        if kind == "parquet":
            return _parquet(path)
        text = path.read_bytes().decode()
    except FileNotFoundError as error:
        raise unreadable(shown, f"there is no file {path.absolute()}") from error
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise OnlySparkError(f"{path.name} is no file that is read here: {error}") from error
    return _json_lines(text) if kind == "json" else _csv(text)


def _parquet(path: Path) -> pa.Table:
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if not f.name.startswith(("_", ".")))
        if not files or any(f.is_dir() for f in files):
            raise OnlySparkError(f"{path.name} is a directory of directories")
    elif not path.exists():
        raise FileNotFoundError(path)
    tables = []
    for one in files:
        file = pq.ParquetFile(one, coerce_int96_timestamp_unit="us")
        note = (file.schema_arrow.metadata or {}).get(_SPARK_NOTE)
        if note is not None and any(column["metadata"] for column in json.loads(note)["fields"]):
            raise OnlySparkError("the labels hold features that were logged with predictions")
        tables.append(_stored(file))
    if any(table.schema != tables[0].schema for table in tables):
        raise OnlySparkError(f"the files of {path.name} have different columns")
    return pa.concat_tables(tables)


def _stored(file: pq.ParquetFile) -> pa.Table:
    """Return the table of a Parquet file, as Spark reads it: none of its own moments say that they are in UTC."""
    table, columns = file.read(), [file.schema.column(i) for i in range(len(file.schema))]
    for column in columns:
        if column.physical_type == "INT96" and column.path == column.name:
            place = table.column_names.index(column.name)
            table = table.set_column(place, column.name, table.column(place).cast(MOMENT))
    # A moment in nanoseconds, as pandas writes it by default, Spark does not read.
    if any(pa.types.is_timestamp(one.type) and one.type.unit == "ns" for one in table.schema):
        raise OnlySparkError("the labels have moments in nanoseconds")
    return _as_spark_has_it(table)


# Files of text: the types are those that Spark would infer. What is not certain is left to Spark. --------------------


def _json_lines(text: str) -> pa.Table:
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise OnlySparkError(f"a line of the labels is no JSON object: {error}") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise OnlySparkError("the labels are not one JSON object per line")
    names = sorted({name for row in rows for name in row})  # Spark sorts them
    return pa.table({name: _json_column(name, [row.get(name) for row in rows]) for name in names})


def _json_column(name: str, values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:  # a column without values is text, too
        return pa.array(values, pa.string())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(value is None or -INT64 <= value < INT64 for value in values):
        return pa.array(values, pa.int64())
    if kinds <= {int, float} and all(not isinstance(value, int) or abs(value) < 2**53 for value in values):
        return pa.array(values, pa.float64())
    raise OnlySparkError(f"the column {name} of the labels has values of several kinds")


_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d*\.\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Texts that are nothing else in Spark: words that begin with a letter, and words with a letter that no number has.
_WORD = re.compile(r"(?!T\d)[A-Za-z_][\w .:@/#+-]*|\w*[g-oq-suvwyzG-MO-SU-Wa-c]\w*", re.ASCII)
_NO_WORDS = {"nan", "inf", "infinity", "true", "false", "null", "now", "today", "tomorrow", "yesterday", "epoch"}


def _csv(text: str) -> pa.Table:
    if '""' in text or "\\" in text:
        raise OnlySparkError("the labels have quotes or backslashes inside of values")
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    if not rows or any(len(row) != len(rows[0]) for row in rows) or ('"' in text and len(rows) != _lines(text)):
        raise OnlySparkError("the lines of the labels have different numbers of values")
    names = rows[0]
    if len(set(names)) < len(names) or any(name != name.strip() or not name for name in names):
        raise OnlySparkError("the names of the labels' columns are not plain")
    columns = zip(*rows[1:], strict=True) if len(rows) > 1 else ([] for _ in names)
    return pa.table({name: _csv_column(name, list(column)) for name, column in zip(names, columns, strict=True)})


def _lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip())


def _csv_column(name: str, texts: list[str]) -> pa.Array:
    kinds = {_kind_of(name, text) for text in set(texts) if text}
    given = [text or None for text in texts]
    if not kinds or "word" in kinds:
        return pa.array(given, pa.string())
    if kinds <= {"int", "long"}:
        whole = pa.int64() if "long" in kinds else pa.int32()
        return pa.array([None if text is None else int(text) for text in given], whole)
    if kinds <= {"int", "float"}:
        return pa.array([None if text is None else float(text) for text in given], pa.float64())
    if kinds == {"bool"}:
        return pa.array([None if text is None else text.lower() == "true" for text in given], pa.bool_())
    if kinds == {"date"}:
        return pa.array([None if text is None else date.fromisoformat(text) for text in given], pa.date32())
    if kinds == {"moment"}:
        return pa.array([_micros(text) for text in given], MOMENT)
    raise OnlySparkError(f"the column {name} of the labels has values of several kinds")


def _kind_of(name: str, text: str) -> str:
    if _NUMBER.fullmatch(text):
        return "int" if -_INT32 <= int(text) < _INT32 else "long"
    if _DECIMAL.fullmatch(text):
        return "float"
    if text.lower() in ("true", "false"):
        return "bool"
    if _moment_of(text) is not None:
        return "moment"
    if _DATE.fullmatch(text) and _moment_of(f"{text}T00:00:00") is not None:
        return "date"
    if _WORD.fullmatch(text) and text.lower() not in _NO_WORDS and text == text.strip():
        return "word"
    raise OnlySparkError(f"only Spark knows what kind of value {text!r} in the column {name} of the labels is")
