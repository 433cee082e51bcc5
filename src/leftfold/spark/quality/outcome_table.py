"""The table of an outcome: a Delta table of closed rows, each prediction once.

A commit says up to which moment of predictions the table goes, and the next append begins there. So appends that are
repeated, killed or concurrent add every closed row once:

- A process that dies before the commit leaves files that no commit names. VACUUM deletes them.
- A process that dies after the commit leaves rows that the next append finds.
- Commits are numbered, under one application id for all writers. Of two with one number, Delta refuses or skips one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.spark.files import exists
from leftfold.spark.sinks.delta import append, newest, overtaken

_APPLICATION = "leftfold-outcomes"


@dataclass(frozen=True)
class TablePosition:
    """The end of a table, from our newest commit in it."""

    sequence: int
    closed: int  # the table holds the closed rows of all predictions up to this moment (µs)
    fingerprint: str  # of the outcome's definition; empty if it is not known any more
    writer: str


NO_ROWS = TablePosition(-1, -(1 << 62), "", "")


def position(session: SparkSession, table: str) -> TablePosition:
    """The end of the table; `NO_ROWS` if there is none."""
    if not exists(session, f"{table}/_delta_log"):
        return NO_ROWS
    version, said = newest(session, table)
    if said is not None:
        return TablePosition(said["sequence"], said["closed"], said["fingerprint"], said["writer"])
    # The table's history was cleaned. No prediction between the newest row and the end of the last append is missing.
    last = session.read.format("delta").load(table).agg(F.unix_micros(F.max("scored_at"))).collect()[0][0]
    return TablePosition(version, NO_ROWS.closed if last is None else int(last), "", "")


def append_once(rows: DataFrame, table: str, before: TablePosition, after: TablePosition, said: dict[str, Any]) -> bool:
    """Append closed rows in one commit. Return False if another writer has committed since `before` was read.

    A prediction that the table has already is left out: its first record may have been read by an earlier append.
    """
    session = rows.sparkSession
    if before.sequence >= 0:
        there = session.read.format("delta").load(table).select("prediction_id")
        rows = rows.join(there, "prediction_id", "left_anti").select(rows.columns)
    content = {"sequence": after.sequence, "closed": after.closed, "fingerprint": after.fingerprint}
    try:
        append(
            rows,
            table,
            application=_APPLICATION,
            sequence=after.sequence,
            said={"leftfold": {**content, "writer": after.writer, **said}},
            merge=True,
        )
    except (PySparkException, Py4JError) as error:
        if not overtaken(str(error)):
            raise
        return False
    return position(session, table).writer == after.writer


def count_from(session: SparkSession, table: str, after: int, until: int) -> int:
    """The number of rows of predictions after one moment and up to another (µs)."""
    at = F.unix_micros("scored_at")
    rows = session.read.format("delta").load(table)
    return int(rows.where((at > F.lit(after)) & (at <= F.lit(until))).count())
