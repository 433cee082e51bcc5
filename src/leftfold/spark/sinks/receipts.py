"""Older receipts of a view in a Delta table: one row for each receipt, complete, and never twice.

An append contains consecutive receipts of one build. Its last batch number is Delta's transaction version for that
build. So an append is idempotent: appending the same receipts again, or fewer, changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leftfold.spark.files import exists
from leftfold.spark.sinks.delta import append, quoted

_COLUMNS = "build string, first bigint, last bigint, applied timestamp, receipt string"


@dataclass(frozen=True)
class ReceiptRow:
    """The batches of a receipt, and the time (µs) at which the online store had the last one."""

    first: int
    last: int
    online: int


def make(session: SparkSession, table: str) -> None:
    session.sql(f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({_COLUMNS}) USING delta PARTITIONED BY (build)")


def end_of(session: SparkSession, table: str, build: str) -> int:
    """The last batch of a build in the table; -1 if there is none."""
    rows = session.read.format("delta").load(table).where(F.col("build") == build)
    last = rows.agg(F.max("last")).collect()[0][0]
    return -1 if last is None else int(last)


def add(session: SparkSession, table: str, build: str, rows: Iterable[tuple[ReceiptRow, Mapping[str, Any]]]) -> None:
    """Append receipts of consecutive batches, in one commit."""
    cells = [(build, row.first, row.last, row.online, json.dumps(document)) for row, document in rows]
    frame = session.createDataFrame(cells, "build string, first bigint, last bigint, online bigint, receipt string")
    append(
        frame.select("build", "first", "last", F.timestamp_micros("online").alias("applied"), "receipt").coalesce(1),
        table,
        application=f"leftfold-receipts/{build}",
        sequence=cells[-1][2],
        said={"receipts": {"build": build, "first": cells[0][1], "last": cells[-1][2]}},
    )


def rows_of(session: SparkSession, table: str, build: str) -> list[ReceiptRow]:
    """The rows of a build in the order of batches, without the receipts themselves."""
    if not exists(session, f"{table}/_delta_log"):
        return []
    rows = session.read.format("delta").load(table).where(F.col("build") == build)
    spans = rows.select("first", "last", F.unix_micros("applied")).orderBy("first").collect()
    return [ReceiptRow(int(first), int(last), int(online)) for first, last, online in spans]


def documents(session: SparkSession, table: str, build: str, first: int, last: int) -> list[dict[str, Any]]:
    """The receipts of batches from `first` to `last`."""
    rows = session.read.format("delta").load(table).where(F.col("build") == build)
    wanted = rows.where((F.col("first") >= first) & (F.col("last") <= last)).select("receipt")
    return [json.loads(row[0]) for row in wanted.collect()]
