"""Delta tables that one topic feeds: a commit says in its `userMetadata` how far it goes, and the table alone decides.

- A batch is appended only if it starts where the table ends. One that the table already ends with is left out: it was
  written before a crash. What does neither comes from another query, and the caller refuses it.
- Commits are numbered, and the number is Delta's transaction version of one application id, whoever writes. Of two
  queries that found the same end, Delta lets one commit: the other fails with a conflict, or finds that its number
  was used. So a checkpoint may be lost or restored from a backup; a query without a fitting one starts at the end of
  the table.

What the rows are, and what else a commit says, is its caller's.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.spark.checkpoint import batch_offsets, standing
from leftfold.spark.files import read_text

# Commits that others make (OPTIMIZE, VACUUM) stand between ours; beyond these the whole history is read.
_LOOK_BACK = 20
_OURS = '{"leftfold"'

Ends = dict[int, int]  # by partition of the topic: the offset after the last one


def delta_settings() -> dict[str, str]:
    """What a session needs for Delta, beside the jars of the set "lake"."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # tasks that read a table's log; 50 by default, for little
    }


def quoted(table: str) -> str:
    return "delta.`" + table.replace("`", "``") + "`"


def snapshot(session: SparkSession, table: str) -> Any:
    """The table as it is now, to the JVM: what of its log Delta has in memory, it does not read again."""
    context: Any = session.sparkContext
    return context._jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(session._jsparkSession, table)._2()


def version_of(session: SparkSession, table: str) -> int:
    """Its newest commit, whoever made it."""
    return int(snapshot(session, table).version())


def newest(session: SparkSession, table: str) -> tuple[int, dict[str, Any] | None]:
    """The table's version, and what the newest commit of ours up to it says; None if none is known any more.

    Commits are never changed, so what is committed meanwhile is in neither answer. They are read here, without a job of
    Spark's: every batch and every read of history asks.
    """
    version = version_of(session, table)
    for number in range(version, max(version - _LOOK_BACK, -1), -1):
        if (said := _ours(_user_metadata(session, table, number))) is not None:
            return version, said
    history = session.sql(f"DESCRIBE HISTORY {quoted(table)}").where(F.col("version") <= version)
    ours = history.where(F.col("userMetadata").startswith(_OURS))
    return version, _ours(ours.agg(F.max_by("userMetadata", "version")).collect()[0][0])


def _user_metadata(session: SparkSession, table: str, version: int) -> str | None:
    """None, too, if the commit is no longer there."""
    text = read_text(session, f"{table}/_delta_log/{version:020}.json") or ""
    actions = (json.loads(line) for line in text.splitlines() if line.startswith('{"commitInfo"'))
    return next((action["commitInfo"].get("userMetadata") for action in actions), None)


def _ours(metadata: str | None) -> dict[str, Any] | None:
    if metadata is None or not metadata.startswith(_OURS):
        return None
    said: dict[str, Any] = json.loads(metadata)["leftfold"]
    return said


def append(rows: DataFrame, table: str, *, application: str, sequence: int, said: dict[str, Any]) -> None:
    """Atomic. Whether it was this one that took the number is for the caller to look at: Delta says nothing.

    What a commit that moves the table's end says is under "leftfold", where `newest` finds it.
    """
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", application)
        .option("txnVersion", sequence)  # one that is used already is left out by Delta, without a word
        .option("userMetadata", json.dumps(said))
        .save(table)
    )


def follows(found: Ends, starts: Ends, ends: Ends, *, first: bool) -> bool | None:
    """Whether a batch is to be appended: False if the table ends with it already, None if it does neither.

    The first batch of a checkpoint may have partitions that the table does not know, from their first record on.
    """
    if found == ends:
        return False
    known = {p: start for p, start in starts.items() if p in found} if first else starts
    return True if found == known else None


def fits(session: SparkSession, checkpoint: str, topic: str, ends: Ends) -> bool:
    """Whether the checkpoint goes on where the table ends: with a batch that is written already, or the next."""
    found = standing(session, checkpoint)
    if found is None or found.planned < 0:
        return True  # nothing to go on with
    starts = batch_offsets(session, checkpoint, found.committed).get(topic, {})
    if found.committed < 0:
        starts = {p: start for p, start in starts.items() if p in ends}
    return ends in (starts, batch_offsets(session, checkpoint, found.planned).get(topic, {}))


def told(ends: Ends) -> str:
    return ", ".join(f"{p}:{end}" for p, end in sorted(ends.items())) or "its start"
