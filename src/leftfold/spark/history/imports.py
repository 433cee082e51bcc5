"""Import of an existing table as the past of an archive: its rows become records of the topic, encoded in Catalyst.

Imported records have negative offsets, in the order of their log time up to -1, so that ranges stay exact. They become
part of the archive in one commit, or not at all. No record passes through the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import to_avro

from leftfold.declare.event import EventField, fields_of
from leftfold.declare.framing import frame
from leftfold.declare.schema import avro_schema
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError
from leftfold.fold.definition import Key
from leftfold.fold.values import Kind
from leftfold.spark.catalyst import entity
from leftfold.spark.history.archive import IMPORT, at_version, exists
from leftfold.spark.json_decode import constant, type_of
from leftfold.spark.sinks.delta import append

# The column types that are allowed for a field of each kind: Spark casts them without loss.
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FITTING: dict[Kind, tuple[type[T.DataType], ...]] = {
    "string": (T.StringType,),
    "int": _WHOLE,
    "float": (T.FloatType, T.DoubleType, T.ByteType, T.ShortType, T.IntegerType),
    "bool": (T.BooleanType,),
    "datetime": (T.TimestampType,),  # without a zone it would be a different moment on every machine
    "bytes": (T.BinaryType,),
}
_ROWS_PER_FILE = 1_000_000
# Times as the producer writes them: with a zone, in microseconds.
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


@dataclass(frozen=True)
class Span:
    """The content of a table: the number of records, and the first and last log time, µs."""

    records: int
    first: int
    last: int


def opened(session: SparkSession, table: str) -> DataFrame:
    """Read a Delta table as it is now, or a directory of Parquet files."""
    try:
        return session.read.format("delta" if exists(session, table) else "parquet").load(table)
    except AnalysisException as error:
        raise DeclarationError(
            "import-unreadable",
            f"{table} is neither a Delta table nor a directory of Parquet files",
            why=str(error).splitlines()[0][:300],
            fix="give the directory of the table, as a path or a URL that Spark reads",
        ) from error


def as_records(
    rows: DataFrame, topic: Topic[Any], schema_id: int | None, *, columns: Mapping[str, str], time: str, partitions: int
) -> DataFrame:
    """Encode rows to columns partition, log_time, key, value, and lacking: whether a required value is missing.

    `columns` maps fields to columns. A field that is not in it is taken from the column of its own name, or gets its
    default.
    """
    fields = fields_of(topic.event)
    if unknown := sorted(set(columns) - set(fields)):
        raise _misfit(topic, f"there is no field {unknown[0]}", f"its fields are {', '.join(fields)}")
    types = {f.name: f.dataType for f in rows.schema.fields}
    if not isinstance(types.get(time), T.TimestampType):
        raise _misfit(topic, f"column {time}, of the log time, {_type_text(types, time)}", "it has to be a timestamp")
    values = {f.name: _value(topic, f, columns, types) for f in fields.values()}
    lacking = [value.isNull() for name, value in values.items() if not fields[name].optional]
    event = rows.select(
        F.col(f"`{time}`").alias("log_time"),
        reduce(or_, lacking, F.col(f"`{time}`").isNull()).alias("lacking"),
        F.struct(*(value.alias(name) for name, value in values.items())).alias("event"),
    )
    key = entity(tuple(Key(k.name, k.kind) for k in topic.key), "event.").cast("binary")
    return event.select(
        F.pmod(F.crc32(key), F.lit(partitions)).cast("int").alias("partition"),
        "log_time",
        key.alias("key"),
        F.when(~F.col("lacking"), _encoded(topic, schema_id)).alias("value"),
        "lacking",
    )


def span(records: DataFrame) -> tuple[Span | None, int]:
    """The content of the records (None if no log time is known), and the number that lack a required value."""
    totals = records.agg(
        F.count(F.lit(1)).alias("records"),
        F.unix_micros(F.min("log_time")).alias("first"),
        F.unix_micros(F.max("log_time")).alias("last"),
        F.count_if("lacking").alias("lacking"),
    ).collect()[0]
    known = None if totals["first"] is None else Span(totals["records"], totals["first"], totals["last"])
    return known, totals["lacking"]


def placed(records: DataFrame, topic_id: str) -> DataFrame:
    """Give records their negative offsets, as rows of an archive.

    The order within a date comes from a window, and the order of dates from sums. So no task sorts a whole partition.
    """
    dated = records.select("partition", "log_time", "key", "value", F.to_date("log_time").alias("log_date"))
    after = Window.partitionBy("partition").orderBy(F.desc("log_date")).rowsBetween(Window.unboundedPreceding, -1)
    later = (
        dated.groupBy("partition", "log_date")
        .count()
        .select("partition", "log_date", F.coalesce(F.sum("count").over(after), F.lit(0)).alias("later"))
    )
    # Key and value decide between records of one moment, so the same table is always imported in the same order.
    newest = Window.partitionBy("partition", "log_date").orderBy(F.desc("log_time"), F.desc("key"), F.desc("value"))
    ranked = dated.withColumn("rank", F.row_number().over(newest)).join(F.broadcast(later), ["partition", "log_date"])
    return ranked.select(
        F.lit(topic_id).alias("topic_id"),
        "partition",
        (-(F.col("later") + F.col("rank"))).cast("long").alias("offset"),
        "log_time",
        F.lit(True).alias("by_broker"),
        F.crc32("key").alias("key_crc"),
        "key",
        "value",
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        "log_date",
    )


def in_files(rows: DataFrame, records: int) -> DataFrame:
    """Divide rows into files, sorted within a date by the key's checksum, in the same way as compaction."""
    files = 1 + records // _ROWS_PER_FILE
    return rows.repartitionByRange(files, "log_date", "key_crc", "offset").sortWithinPartitions(
        "log_date", "key_crc", "partition", "offset"
    )


def append_past(rows: DataFrame, table: str, number: int) -> None:
    """Append the rows of an import. The intake may append at the same time.

    `number` is the number of earlier imports. If two imports found the same number, only one of them commits.
    """
    append(rows, table, application=IMPORT, sequence=number, said={"leftfold-import": number})


def digest(rows: DataFrame) -> tuple[int, int]:
    """The number of rows, and a hash over all of them to compare them with others."""
    mixed = F.bit_xor(F.xxhash64("partition", "offset", "log_time", "key", "value"))
    totals = rows.agg(F.count(F.lit(1)), mixed).collect()[0]
    return int(totals[0]), int(totals[1] or 0)


def past(session: SparkSession, table: str, version: int) -> DataFrame:
    return at_version(session, table, version).where("offset < 0")


def _value(topic: Topic[Any], field: EventField, columns: Mapping[str, str], types: Mapping[str, T.DataType]) -> Column:
    name = columns.get(field.name, field.name)
    if name not in types and field.name not in columns and not (field.required and not field.optional):
        default = None if field.required else field.default
        return (F.lit(None) if default is None else constant(default)).cast(type_of(field))
    column_type = types.get(name)
    plain = column_type.elementType if field.repeated and isinstance(column_type, T.ArrayType) else column_type
    if not isinstance(plain, _FITTING[field.kind]) or field.repeated != isinstance(column_type, T.ArrayType):
        many = "a list of " if field.repeated else ""
        raise _misfit(
            topic, f"column {name}, of {field.name}, {_type_text(types, name)}", f"the field is {many}{field.kind}"
        )
    return F.col(f"`{name}`").cast(type_of(field))


def _type_text(types: Mapping[str, T.DataType], name: str) -> str:
    return f"is {types[name].simpleString()}" if name in types else "is not in the table"


def _encoded(topic: Topic[Any], schema_id: int | None) -> Column:
    """The value of a record, encoded in the same way as by the topic's producer."""
    if schema_id is None:
        return F.to_json("event", _JSON).cast("binary")
    return F.concat(F.lit(frame(schema_id)), to_avro("event", avro_schema(topic.event)))


def until(records: DataFrame, moment: int | None) -> DataFrame:
    return records if moment is None else records.where(F.col("log_time") < F.timestamp_micros(F.lit(moment)))


def first_logged(records: DataFrame) -> int | None:
    """The earliest log time, µs, of records with Kafka's columns or of rows of an archive; None if there are none."""
    name = "timestamp" if "timestamp" in records.columns else "log_time"
    earliest = records.agg(F.unix_micros(F.min(name))).collect()[0][0]
    return None if earliest is None else int(earliest)


def _misfit(topic: Topic[Any], what: str, why: str) -> DeclarationError:
    return DeclarationError(
        "import-misfit",
        f"the table does not fit {topic.event.__name__}: {what}",
        why=why,
        fix="name the right column with --column FIELD=COLUMN or --time COLUMN, or import a table in which it is cast",
        source=topic.source,
    )
