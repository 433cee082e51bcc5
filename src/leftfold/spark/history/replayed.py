"""A range of a topic as rows for a user: position, outcome, and the event's own fields.

Also a digest of such rows that does not depend on their order, so that two replays can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from leftfold.declare.event import fields_of
from leftfold.declare.topic import Topic
from leftfold.offsets import Offsets
from leftfold.spark.history.records import read_history
from leftfold.spark.sinks.intake import with_outcome
from leftfold.spark.source import Source

FAILURES = (PySparkException, Py4JError)
# Columns in addition to the fields of an event, whose names cannot start with an underscore.
POSITION = ("_partition", "_offset", "_log_time", "_key", "_deleted", "_outcome")
_HALVES = (0, 1)  # two hashes of 64 bits make a digest
_EXACT = {
    # Times in Parquet exactly as in the log: in microseconds, and not rebased before 1900. Records that are not valid
    # may hold any time.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_JSON_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


@dataclass(frozen=True)
class Content:
    """A summary of rows that does not depend on their order."""

    records: int
    outcomes: Mapping[str, int]
    digest: str


def replayed(
    session: SparkSession, source: Source, topic: Topic[Any], starts: Offsets, ends: Offsets, *, key: bytes | None
) -> DataFrame:
    """Return each record once, or only those of one key.

    A record that could not be decoded has its position and outcome, and null in every field.
    """
    judged = with_outcome(read_history(session, source, starts, ends, key=key), topic)
    return judged.select(
        F.col("slot").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("log_time").alias("_log_time"),
        F.col("key").alias("_key"),
        F.col("deleted").alias("_deleted"),
        F.col("outcome").alias("_outcome"),
        *(F.col(f"event.{name}").alias(name) for name in fields_of(topic.event)),
    )


def content(rows: DataFrame) -> Content:
    hashes = [F.sum(_hash(rows, half).cast("decimal(20,0)")) for half in _HALVES]
    groups = rows.groupBy("_outcome").agg(F.count(F.lit(1)), *hashes).collect()
    sums = [sum(int(row[2 + half]) for row in groups) % (1 << 64) for half in _HALVES]
    return Content(
        records=sum(row[1] for row in groups),
        outcomes={row[0]: row[1] for row in sorted(groups)},
        digest="".join(f"{total:016x}" for total in sums),
    )


def _hash(rows: DataFrame, salt: int) -> Column:
    """The hash of one row. xxhash64 skips nulls, so the positions of null fields are hashed too."""
    nulls = F.concat(*(F.when(F.col(name).isNull(), "1").otherwise("0") for name in rows.columns))
    values = [
        F.make_valid_utf8(F.col(field.name)) if isinstance(field.dataType, StringType) else F.col(field.name)
        for field in rows.schema.fields
    ]
    return F.xxhash64(F.lit(salt), nulls, *values)


def write_parquet(rows: DataFrame, location: str) -> None:
    with _exact(rows.sparkSession):
        rows.write.mode("overwrite").parquet(location)


def read_parquet(session: SparkSession, location: str) -> DataFrame:
    return session.read.parquet(location)


def write_json(rows: DataFrame, location: str) -> None:
    """Write one JSON object per line: times in ISO 8601, bytes in base64, null fields left out."""
    rows.write.mode("overwrite").option("timestampFormat", _JSON_TIME).json(location)


def count_lines(session: SparkSession, location: str) -> int:
    return session.read.text(location).count()


@contextmanager
def _exact(session: SparkSession) -> Iterator[None]:
    before = {name: session.conf.get(name) for name in _EXACT}
    try:
        for name, value in _EXACT.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, original in before.items():
            session.conf.set(name, str(original))
