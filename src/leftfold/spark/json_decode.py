"""Records of JSON as events, in Catalyst: a record is understood as a whole, or not at all.

Never fails a job: whatever is not the JSON object of the event becomes a struct of nulls, which views reject.
"""

from __future__ import annotations

import math
from collections.abc import Container
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from leftfold.fold.expressions import to_micros
from leftfold.fold.values import Kind
from leftfold.spec.event import Event, EventField, fields_of

_TYPES: dict[Kind, DataType] = {
    # Spark turns a number, a list or an object into its JSON text where text is declared; to refuse these would take a
    # VARIANT per field, and half as long again per record.
    "string": StringType(),
    "int": LongType(),  # 1.0, 1e3 and what exceeds 64 bits are refused
    "float": DoubleType(),
    "bool": BooleanType(),
    "datetime": TimestampType(),
    "bytes": BinaryType(),  # base64
}
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}
# Spark alone would also take a time without a zone, a zone by name, or a time of today. Digits after the sixth are cut.
_MOMENT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\z"
# What Python's datetime holds; an offset can lead out of it.
_FIRST, _LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"


def json_event(event: type[Event], only: Container[str]) -> Column:
    """From the column `value` to a struct of the fields in `only`; of other fields nothing is checked."""
    fields = [f for f in fields_of(event).values() if f.name in only]
    text = F.col("value").cast("string")
    # Spark stops reading where an object ends. Inside another one, whatever follows it is a mistake or hides `end`.
    enclosed = F.concat(F.lit('{"event":'), text, F.lit(',"end":true}'))
    shape = StructType(
        [
            StructField("event", StructType([StructField(f.name, _written_type(f)) for f in fields])),
            StructField("end", BooleanType()),
            StructField("corrupt", StringType()),
        ]
    )
    parsed = F.from_json(enclosed, shape, _OPTIONS)
    written = {f.name: parsed["event"][f.name] for f in fields}
    read = {f.name: _read(f, written[f.name], text) for f in fields}
    understood = [
        F.is_valid_utf8(text),  # Jackson would put a replacement character
        parsed["corrupt"].isNull(),
        parsed["end"],
        parsed["event"].isNotNull(),
        *(
            written[f.name].isNull() | _sound(f, read[f.name]) if f.optional else _sound(f, read[f.name])
            for f in fields
        ),
    ]
    nothing = F.struct(*(F.lit(None).cast(type_of(f)).alias(f.name) for f in fields))
    return F.when(reduce(and_, understood), F.struct(*(read[f.name].alias(f.name) for f in fields))).otherwise(nothing)


def type_of(field: EventField) -> DataType:
    return ArrayType(_TYPES[field.kind]) if field.repeated else _TYPES[field.kind]


def _written_type(field: EventField) -> DataType:
    if field.kind != "datetime":
        return type_of(field)
    return ArrayType(StringType()) if field.repeated else StringType()


def _read(field: EventField, written: Column, text: Column) -> Column:
    value = written
    if field.kind == "datetime":
        value = F.transform(written, _moment) if field.repeated else _moment(written)
    if field.required or field.default is None:
        return value
    absent = written.isNull()
    if field.optional:  # here null is a value of its own, and only the names tell it from an absent one
        absent &= ~F.array_contains(F.json_object_keys(text), field.name)
    return F.when(absent, constant(field.default).cast(type_of(field))).otherwise(value)


def constant(value: Any) -> Column:
    if isinstance(value, list):
        return F.array(*(constant(v) for v in value))
    return F.timestamp_micros(F.lit(to_micros(value))) if isinstance(value, datetime) else F.lit(value)


def _moment(text: Column) -> Column:
    moment = F.when(text.rlike(_MOMENT), text.try_cast("timestamp"))
    return F.when(moment.between(F.lit(_FIRST).cast("timestamp"), F.lit(_LAST).cast("timestamp")), moment)


def _sound(field: EventField, read: Column) -> Column:
    """Whether a field that Spark could parse is also what the event declares: there, a moment, finite."""
    if not field.repeated:
        return F.abs(read) < F.lit(math.inf) if field.kind == "float" else read.isNotNull()
    unsound = [None, math.inf, -math.inf] if field.kind == "float" else [None]
    # Not with a lambda: Spark does not share what stands inside one, and would parse the record once more.
    return F.size(F.array_intersect(read, F.array(*(F.lit(v).cast(_TYPES[field.kind]) for v in unsound)))) == 0
