"""JSON records decoded to events, in Catalyst: a record is decoded as a whole, or not at all.

Decoding never fails a job: a value that is not the JSON object of the event becomes a struct of nulls, which views
reject.
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

from leftfold.declare.event import Event, EventField, fields_of
from leftfold.fold.expressions import to_micros
from leftfold.fold.values import Kind

_TYPES: dict[Kind, DataType] = {
    # Where text is declared, Spark turns a number, a list or an object into its JSON text. To refuse these would need a
    # VARIANT per field, and make each record 50% slower.
    "string": StringType(),
    "int": LongType(),  # 1.0, 1e3 and numbers of more than 64 bits are refused
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
# Spark alone would also accept a time without a zone, a zone by name, or a time without a date. Fraction digits after
# the sixth are cut.
_MOMENT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\z"
# The range of Python's datetime. A time zone offset can lead out of it.
_FIRST, _LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"


def json_event(event: type[Event], only: Container[str]) -> Column:
    """Decode the column `value` to a struct of the fields in `only`. Other fields are not checked."""
    fields = [f for f in fields_of(event).values() if f.name in only]
    text = F.col("value").cast("string")
    # Spark stops reading where an object ends. So the text is put inside another object: anything that follows the
    # event is then a syntax error, or hides `end`.
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
        F.is_valid_utf8(text),  # Jackson would insert a replacement character
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
    if field.optional:  # null is a value here, and only the list of names shows whether it is absent
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
    """True if a field that Spark could parse is also valid for the event: present, a valid time, a finite number."""
    if not field.repeated:
        return F.abs(read) < F.lit(math.inf) if field.kind == "float" else read.isNotNull()
    unsound = [None, math.inf, -math.inf] if field.kind == "float" else [None]
    # Not with a lambda: Spark does not share expressions inside one, and would parse the record again.
    return F.size(F.array_intersect(read, F.array(*(F.lit(v).cast(_TYPES[field.kind]) for v in unsound)))) == 0
