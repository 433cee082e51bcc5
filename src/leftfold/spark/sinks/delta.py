"""Delta tables that are fed from one topic, exactly-once. The table alone decides, not the checkpoint.

A commit says in its `userMetadata` up to which offsets the table goes.

- A batch is appended only if it starts where the table ends. A batch at whose end the table already ends is skipped: it
  was written before a crash. Any other batch comes from another query, and the caller refuses it.
- Commits are numbered. The number is Delta's transaction version under one application id for all writers. If two
  queries found the same end, Delta lets one of them commit. The other fails with a conflict, or finds that its number
  was used.
- So a checkpoint may be lost, or restored from a backup. A query whose checkpoint does not fit starts at the end of the
  table.

The caller decides on the rows, and on what else a commit says.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.spark.checkpoint import batch_offsets, standing
from leftfold.spark.files import read_text

# The number of newest commits that are read one by one. Other commits (OPTIMIZE, VACUUM) lie between ours. If none of
# them is ours, the whole history is read.
_LOOK_BACK = 20
_OURS = '{"leftfold"'
# Delta's names for the conflict of two commits. The last two are those of two writers that both made the table.
_OVERTAKEN = (
    "CONCURRENT",
    "Concurrent",
    "DELTA_METADATA_CHANGED",
    "MetadataChanged",
    "PROTOCOL_CHANGED",
    "ProtocolChanged",
)

Ends = dict[int, int]  # by partition of the topic: the offset after the last one


def delta_settings() -> dict[str, str]:
    """The settings that a session needs for Delta, in addition to the jars of the set "lake"."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # tasks that read a table's log; the default is 50, too many
    }


def quoted(table: str) -> str:
    return "delta.`" + table.replace("`", "``") + "`"


def snapshot(session: SparkSession, table: str) -> Any:
    """The table's current snapshot, as an object of the JVM. Delta does not read again what it has in memory."""
    context: Any = session.sparkContext
    return context._jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(session._jsparkSession, table)._2()


def version_of(session: SparkSession, table: str) -> int:
    """The version of the table's newest commit, whoever made it."""
    return int(snapshot(session, table).version())


def newest(session: SparkSession, table: str) -> tuple[int, dict[str, Any] | None]:
    """The table's version, and the metadata of our newest commit up to it; None if no commit of ours is left.

    Commits never change, so a commit that is made meanwhile is in neither of the two. Recent commits are read here
    without a Spark job, because every batch and every read of history calls this.
    """
    version = version_of(session, table)
    for number in range(version, max(version - _LOOK_BACK, -1), -1):
        if (said := _ours(_user_metadata(session, table, number))) is not None:
            return version, said
    history = session.sql(f"DESCRIBE HISTORY {quoted(table)}").where(F.col("version") <= version)
    ours = history.where(F.col("userMetadata").startswith(_OURS))
    return version, _ours(ours.agg(F.max_by("userMetadata", "version")).collect()[0][0])


def _user_metadata(session: SparkSession, table: str, version: int) -> str | None:
    """The `userMetadata` of a commit; None if it has none, or if the commit is no longer there."""
    text = read_text(session, f"{table}/_delta_log/{version:020}.json") or ""
    actions = (json.loads(line) for line in text.splitlines() if line.startswith('{"commitInfo"'))
    return next((action["commitInfo"].get("userMetadata") for action in actions), None)


def _ours(metadata: str | None) -> dict[str, Any] | None:
    if metadata is None or not metadata.startswith(_OURS):
        return None
    said: dict[str, Any] = json.loads(metadata)["leftfold"]
    return said


def append(
    rows: DataFrame, table: str, *, application: str, sequence: int, said: dict[str, Any], merge: bool = False
) -> None:
    """Append rows in one atomic commit with the number `sequence`. With `merge` it adds new columns to the table.

    If the number was used already, Delta appends nothing and reports nothing. So the caller must check whether it was
    this append that took the number. A commit that moves the table's end puts its metadata under the key "leftfold",
    where `newest` finds it.
    """
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", application)
        .option("txnVersion", sequence)  # Delta skips a number that is used already, silently
        .option("userMetadata", json.dumps(said))
        .option("mergeSchema", str(merge).lower())
        .save(table)
    )


def overtaken(failure: str) -> bool:
    """Return whether an append failed because another writer has committed meanwhile."""
    return any(word in failure for word in _OVERTAKEN)


def follows(table_ends: Ends, starts: Ends, ends: Ends, *, first: bool) -> bool | None:
    """Return whether to append a batch: True if it starts where the table ends, False if the table has it already.

    None means neither: the batch comes from another query. The first batch of a checkpoint (`first`) may have
    partitions that the table does not know, from their first record on.
    """
    if table_ends == ends:
        return False
    known = {p: start for p, start in starts.items() if p in table_ends} if first else starts
    return True if table_ends == known else None


def fits(session: SparkSession, checkpoint: str, topic: str, ends: Ends) -> bool:
    """Return whether the checkpoint continues at the table's end: with a batch that is written already, or the next."""
    progress = standing(session, checkpoint)
    if progress is None or progress.planned < 0:
        return True  # the checkpoint has no batch yet
    starts = batch_offsets(session, checkpoint, progress.committed).get(topic, {})
    if progress.committed < 0:
        starts = {p: start for p, start in starts.items() if p in ends}
    return ends in (starts, batch_offsets(session, checkpoint, progress.planned).get(topic, {}))


def ends_text(ends: Ends) -> str:
    return ", ".join(f"{p}:{end}" for p, end in sorted(ends.items())) or "its start"
