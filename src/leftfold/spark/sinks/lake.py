"""The lake: every version of every row of a view, in a Delta table. A query of its own appends it from the changelog.

A commit to Delta takes over a second, so the lake is fed once a minute and never delays the view. The module `delta`
explains how a batch is appended exactly once, even if the checkpoint is lost.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.errors import LeftfoldError, RunError
from leftfold.kafka.admin import Admin
from leftfold.settings import Kafka
from leftfold.spark.checkpoint import batch_offsets, set_aside
from leftfold.spark.query import Query, start_batches
from leftfold.spark.sinks.delta import Ends, append, ends_text, fits, follows, newest, quoted

# Delta's id of the writer: the same for every query, so that two concurrent queries conflict.
_APPLICATION = "leftfold-lake"
# Records per file: a day of a quiet view then has 1,440 small files, and a day of a busy one not many more.
_RECORDS_PER_FILE = 500_000
# More than a changelog receives in a second. It cuts the first read of a long changelog into batches.
_RECORDS_PER_SECOND = 500_000
_COLUMNS = (
    "build string, entity string, field string, position bigint, batch bigint, value string, deleted boolean, "
    "logged timestamp, changelog_partition int, changelog_offset bigint"
)


@dataclass(frozen=True)
class LakePosition:
    """The end of a table, from our newest commit in it."""

    sequence: int  # -1: none yet
    ends: Ends
    writer: str  # the query that made it


def start_lake(
    session: SparkSession,
    *,
    kafka: Kafka,
    topic: str,
    view: str,
    table: str,
    checkpoint: str,
    every_s: int = 60,
    until_caught_up: bool = False,
    refused: Callable[[LeftfoldError], None] = lambda _: None,
    appended: Callable[[], None] = lambda: None,
) -> Query:
    """Feed the table from the changelog `topic`. The table is made if it does not exist.

    `refused` is called with the error if a batch could not be appended. `appended` is called after each batch, before
    Spark commits it. If `appended` fails, the batch runs again and is skipped, because the table has it already.
    """
    own = session.newSession()
    _make(own, table)
    current = position(own, table)
    starts = _starts(Admin(kafka), topic, view, current.ends)
    if not fits(own, checkpoint, topic, current.ends):
        set_aside(own, checkpoint)
    options = {
        **kafka.for_spark(),
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: starts}),  # for a new checkpoint; an existing one has its own
        "maxOffsetsPerTrigger": str(_RECORDS_PER_SECOND * max(every_s, 1)),
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
    }
    feed = _Feed(own, view, topic, table, checkpoint, uuid.uuid4().hex, refused, appended)
    return start_batches(
        own.readStream.format("kafka").options(**options).load(),
        name=f"{view} lake",
        checkpoint=checkpoint,
        on_batch=feed.write,
        until_caught_up=until_caught_up,
        every_s=every_s,
    )


def lake_rows(session: SparkSession, table: str) -> DataFrame:
    """The current rows: the newest for each build, entity and field, without deleted ones."""
    newest = F.max(
        F.struct("batch", "changelog_offset", "position", "value", "deleted", "logged", "changelog_partition")
    ).alias("newest")
    rows = session.read.format("delta").load(table).groupBy("build", "entity", "field").agg(newest)
    return rows.select("build", "entity", "field", "newest.*").where("not deleted").drop("deleted")


def lake_at(session: SparkSession, table: str, version: int) -> DataFrame:
    """Every version of every row that the table had at this version of the table."""
    return session.read.format("delta").option("versionAsOf", version).load(table)


def position(session: SparkSession, table: str) -> LakePosition:
    """The end of the table."""
    version, said = newest(session, table)
    if said is None:
        return _position_of_rows(session, table, version)
    return LakePosition(said["sequence"], {int(p): end for p, end in said["ends"].items()}, said["writer"])


def _position_of_rows(session: SparkSession, table: str, version: int) -> LakePosition:
    """The end of a table whose history was cleaned: each partition ends after its last row, as there are no gaps."""
    rows = session.read.format("delta").load(table).groupBy("changelog_partition").agg(F.max("changelog_offset"))
    ends = {int(row[0]): int(row[1]) + 1 for row in rows.collect()}
    return LakePosition(version, ends, "")  # Delta's own count is above every number that was used


def continues(view: str, table_ends: Ends, starts: Ends, ends: Ends, *, first: bool = False) -> bool:
    """Return whether to append a batch: True if it starts where the table ends, False if the table has it already.

    Raises if neither is the case. The first batch of a checkpoint (`first`) may have partitions that the table does not
    know, from their first record on.
    """
    taken = follows(table_ends, starts, ends, first=first)
    if taken is None:
        raise _taken(
            view, f"the table ends at {ends_text(table_ends)} of the changelog, the batch starts at {ends_text(starts)}"
        )
    return taken


@dataclass(frozen=True)
class _Feed:
    """The processing of each batch of the changelog."""

    session: SparkSession
    view: str
    topic: str
    table: str
    checkpoint: str
    writer: str
    refused: Callable[[LeftfoldError], None] = lambda _: None
    appended: Callable[[], None] = lambda: None

    def write(self, batch: DataFrame, number: int) -> None:
        try:
            self._write(batch, number)
            self.appended()
        except LeftfoldError as refusal:
            self.refused(refusal)
            raise

    def _write(self, batch: DataFrame, number: int) -> None:
        starts = batch_offsets(self.session, self.checkpoint, number - 1).get(self.topic, {})
        ends = batch_offsets(self.session, self.checkpoint, number).get(self.topic, {})
        current = position(self.session, self.table)
        if continues(self.view, current.ends, starts, ends, first=number == 0):
            self._append(batch, starts, LakePosition(current.sequence + 1, ends, self.writer))

    def _append(self, batch: DataFrame, starts: Ends, to: LakePosition) -> None:
        records = sum(end - starts.get(p, 0) for p, end in to.ends.items())
        append(
            rows_of(batch).coalesce(max(1, records // _RECORDS_PER_FILE)),
            self.table,
            application=_APPLICATION,
            sequence=to.sequence,
            said={"leftfold": {"sequence": to.sequence, "ends": to.ends, "writer": to.writer}},
        )
        if position(self.session, self.table) != to:
            raise _taken(self.view, f"commit {to.sequence} was made by another query")


def rows_of(records: DataFrame) -> DataFrame:
    """Records of the changelog as rows of the table. The entity is the last part of the key, and may contain '/'."""
    key = records.withColumn("key", F.expr("cast(key as string)")).withColumn("value", F.expr("cast(value as string)"))
    parts = key.withColumns(
        {
            "build": F.expr("substring_index(key, '/', 1)"),
            "field": F.expr("substring_index(substring_index(key, '/', 2), '/', -1)"),
            "deleted": F.expr("value is null"),
        }
    )
    return parts.selectExpr(
        "build",
        "substring(key, length(build) + length(field) + 3) as entity",
        "field",
        f"cast(if(deleted, {_header('index')}, substring_index(substring(value, 2), ',', 1)) as bigint) as position",
        f"cast({_header('batch')} as bigint) as batch",
        "value",
        "deleted",
        "timestamp as logged",
        "partition as changelog_partition",
        "offset as changelog_offset",
    )


def _header(name: str) -> str:
    return f"cast(filter(headers, header -> header.key = '{name}')[0].value as string)"


def _make(session: SparkSession, table: str) -> None:
    session.sql(f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({_COLUMNS}) USING delta PARTITIONED BY (build)")


def _starts(admin: Admin, topic: str, view: str, ends: Ends) -> dict[str, int]:
    """The end of the table in each partition; -2 (Kafka's number for the first record) where the table has none."""
    partitions = admin.partitions_of(topic)
    logged = admin.end_offsets(topic, partitions)
    beyond = {p: end for p, end in ends.items() if end > logged.get(p, 0)}
    if beyond:
        raise RunError(
            "lake-ahead",
            f"{view}: the lake holds the changelog up to {ends_text(beyond)}, the topic {topic} ends before",
            why="the topic was deleted and recreated, or the table belongs to another",
            fix="give the view another lake, or rename the table; the lake is then fed from the changelog's start",
        )
    return {str(p): ends.get(p, -2) for p in range(partitions)}


def _taken(view: str, why: str) -> RunError:
    return RunError(
        "lake-taken-over",
        f"{view}: another query writes to its lake",
        why=why,
        state="this batch was not appended; the table holds every record up to its end, once",
        fix="run one query per lake: end the other, or this one; a new start continues from the table",
    )
