"""Arrow types of columns: for the kinds of values, and the names that Spark has for them."""

from __future__ import annotations

import pyarrow as pa

from leftfold.declare.label_columns import LabelKind
from leftfold.fold.values import Kind

MOMENT = pa.timestamp("us", tz="UTC")
_TYPES: dict[Kind, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "datetime": MOMENT,
    "bytes": pa.binary(),
}
# The types that Spark's Parquet files and data frames have, too.
_NAMED: tuple[tuple[pa.DataType, LabelKind, str], ...] = (
    (pa.string(), "string", "string"),
    (pa.int8(), "int", "tinyint"),
    (pa.int16(), "int", "smallint"),
    (pa.int32(), "int", "int"),
    (pa.int64(), "int", "bigint"),
    (pa.float32(), "float", "float"),
    (pa.float64(), "float", "double"),
    (pa.bool_(), "bool", "boolean"),
    (MOMENT, "moment", "timestamp"),
    (pa.timestamp("us"), "naive moment", "timestamp_ntz"),
    (pa.date32(), "other", "date"),
    (pa.binary(), "other", "binary"),
)


def type_of(kind: Kind, *, repeated: bool = False) -> pa.DataType:
    return pa.list_(_TYPES[kind]) if repeated else _TYPES[kind]


def named(data: pa.DataType) -> tuple[LabelKind, str] | None:
    """Return the kind of a type, and its name in SQL. None for a type that only Spark knows how to hash."""
    if pa.types.is_list(data):
        element = named(data.value_type)
        return None if element is None else ("other", f"array<{element[1]}>")
    return next(((kind, shown) for type_, kind, shown in _NAMED if type_ == data), None)
