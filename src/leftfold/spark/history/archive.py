"""The archive of a topic: every record with its offset, in a Delta table by log date, also after the log deleted it.

This module owns the table: its columns, the metadata of a commit, reads that touch few files, and the compaction of
closed dates. Only the topic's intake appends records of the log (`sinks.delta` explains how each batch is appended
exactly once). Nothing here deletes a record.

A commit says which offsets the table holds after it, so version and offsets are read in one atomic step. Imported
records have negative offsets and are found by those. They stand for the whole past of the topic: the offsets between
them and the first archived offset of the log count as held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.errors import RunError
from leftfold.fold.expressions import from_micros
from leftfold.offsets import Range, Ranges
from leftfold.spark import files
from leftfold.spark.sinks.delta import Ends, append, ends_text, follows, newest, quoted, snapshot

# Delta's id of the writer: the same for every intake, so that two concurrent intakes conflict.
APPLICATION = "leftfold-archive"
IMPORT = "leftfold-import"  # Delta's id of imports
# Columns that statistics prune by come first: Delta keeps the smallest and largest value of the first 32 columns of a
# file, but not of binary columns. So a key is found by its checksum.
_COLUMNS = (
    "topic_id string, partition int, offset bigint, log_time timestamp, by_broker boolean, key_crc bigint, "
    "key binary, value binary, headers array<struct<key:string,value:binary>>, log_date date"
)
# Records of a batch in one file, and so in one task: several tasks write a backlog.
_RECORDS_PER_FILE = 100_000
# Bytes of a compacted file: a date of a large topic has some files, and a key lies in one of them.
FILE_BYTES = 64 * 1_024 * 1_024
# The time from the end of a date until it counts as closed. By then the intake has normally read all records of the
# date. If not, the date is compacted again.
_CLOSED_AFTER = timedelta(hours=1)
# A date is compacted if it has at least this many files more than it needs.
_TOO_MANY = 4


@dataclass(frozen=True)
class ArchivePosition:
    """The end of a table, from our newest commit in it."""

    sequence: int  # -1: none yet
    topic_id: str | None
    ends: Ends
    holds: dict[int, list[list[int]]]  # by partition: [start, end) of what came from Kafka
    writer: str

    def said(self) -> dict[str, Any]:
        said = {"sequence": self.sequence, "topic": self.topic_id, "ends": self.ends, "holds": self.holds}
        return {"leftfold": {**said, "writer": self.writer}}


@dataclass(frozen=True)
class Held:
    """The offsets that the archive of one topic holds at one version of its table, imported records included."""

    table: str
    version: int
    topic_id: str | None
    ranges: Ranges
    ends: Ends


def make(session: SparkSession, table: str) -> None:
    session.sql(f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({_COLUMNS}) USING delta PARTITIONED BY (log_date)")


def exists(session: SparkSession, table: str) -> bool:
    return files.exists(session, f"{table}/_delta_log")


def position(session: SparkSession, table: str) -> ArchivePosition:
    return _position(session, table)[1]


def held(session: SparkSession, table: str, topic: str) -> Held:
    """The content of an archive for readers, at one version. `topic` is the name in the cluster, used in the ranges."""
    if not exists(session, table):
        return Held(table, -1, None, Ranges(), {})
    version, current = _position(session, table)
    ranges = [Range(topic, p, start, end) for p, spans in current.holds.items() for start, end in spans]
    past = imported(session, table, version)
    if past:
        firsts = {p: min((s for s, _ in current.holds.get(p, ())), default=end) for p, end in current.ends.items()}
        ranges += [Range(topic, p, past.get(p, 0), first) for p, first in firsts.items()]
    return Held(table, version, current.topic_id, Ranges.of(ranges), current.ends)


def _position(session: SparkSession, table: str) -> tuple[int, ArchivePosition]:
    version, said = newest(session, table)
    if said is None:
        return version, _position_of_rows(session, table, version)
    ends = {int(p): end for p, end in said["ends"].items()}
    holds = {int(p): spans for p, spans in said["holds"].items()}
    return version, ArchivePosition(said["sequence"], said["topic"], ends, holds, said["writer"])


def _position_of_rows(session: SparkSession, table: str, version: int) -> ArchivePosition:
    """The end of a new table, or of one whose history was cleaned. Gaps that a user allowed are then not known."""
    bounds = (
        at_version(session, table, version)
        .where("offset >= 0")
        .groupBy("partition")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.max("topic_id").alias("topic"))
        .collect()
    )
    holds = {int(row["partition"]): [[int(row["first"]), int(row["last"]) + 1]] for row in bounds}
    topic = next((str(row["topic"]) for row in bounds), None)
    return ArchivePosition(version, topic, {p: spans[0][1] for p, spans in holds.items()}, holds, "")


def imported(session: SparkSession, table: str, version: int) -> dict[int, int]:
    """The first offset of each partition with imported records. Statistics limit the read to their files."""
    if not imports_of(session, table):
        return {}
    rows = at_version(session, table, version).where("offset < 0").groupBy("partition").agg(F.min("offset"))
    return {int(row[0]): int(row[1]) for row in rows.collect()}


def imports_of(session: SparkSession, table: str) -> int:
    """The number of imports, from Delta's list of transactions. A table without imports need not be searched."""
    last = snapshot(session, table).transactions().get(IMPORT)
    return int(last.get()) + 1 if last.isDefined() else 0


# Appending -------------------------------------------------------------------------------------------------------


def append_batch(
    session: SparkSession, records: DataFrame, table: str, *, topic: str, to: ArchivePosition, starts: Ends, first: bool
) -> None:
    """Append records of Kafka up to `to.ends`, unless the table has them already.

    `first` says that this is the first batch of a checkpoint. `sequence` and `holds` of `to` are ignored: they are
    computed from the table.
    """
    current = position(session, table)
    taken = follows(current.ends, starts, to.ends, first=first)
    if taken is None:
        raise taken_over(topic, f"the table ends at {ends_text(current.ends)}, the batch starts at {ends_text(starts)}")
    if not taken:
        return
    read = {p: (starts.get(p, 0), end) for p, end in to.ends.items()}
    ahead = ArchivePosition(current.sequence + 1, to.topic_id, to.ends, _joined(current.holds, read), to.writer)
    rows = rows_of(records, to.topic_id).coalesce(max(1, sum(e - s for s, e in read.values()) // _RECORDS_PER_FILE))
    move(session, rows, table, topic=topic, to=ahead)


def move(session: SparkSession, rows: DataFrame, table: str, *, topic: str, to: ArchivePosition) -> None:
    """Append rows, possibly none, in a commit that moves the end of the table to `to`."""
    append(rows, table, application=APPLICATION, sequence=to.sequence, said=to.said())
    if position(session, table) != to:
        raise taken_over(topic, f"commit {to.sequence} was made by another query")


def no_rows(session: SparkSession, table: str) -> DataFrame:
    """An empty frame, for a commit that only carries metadata."""
    return session.read.format("delta").load(table).limit(0)


def _joined(holds: dict[int, list[list[int]]], read: dict[int, tuple[int, int]]) -> dict[int, list[list[int]]]:
    existing = [Range("", p, s, e) for p, spans in holds.items() for s, e in spans]
    joined: dict[int, list[list[int]]] = {}
    for r in Ranges.of([*existing, *(Range("", p, s, e) for p, (s, e) in read.items())]):
        joined.setdefault(r.partition, []).append([r.start, r.end])
    return joined


def rows_of(records: DataFrame, topic_id: str | None) -> DataFrame:
    """Records with the columns of Kafka's source, headers included, as rows of the table."""
    return records.select(
        F.lit(topic_id).alias("topic_id"),
        "partition",
        "offset",
        F.col("timestamp").alias("log_time"),
        (F.col("timestampType") == 1).alias("by_broker"),
        F.crc32("key").alias("key_crc"),
        "key",
        "value",
        "headers",
        F.to_date("timestamp").alias("log_date"),
    )


def taken_over(topic: str, why: str) -> RunError:
    return RunError(
        "archive-taken-over",
        f"another query writes to the archive of {topic}",
        why=why,
        state="this batch was not appended; the table holds every record up to its end, once",
        fix="run one intake per topic: end the other run, or this one; a new start continues from the table",
    )


# Reading ---------------------------------------------------------------------------------------------------------


def at_version(session: SparkSession, table: str, version: int) -> DataFrame:
    return session.read.format("delta").option("versionAsOf", version).load(table)


def read_archive(
    session: SparkSession,
    source: Held,
    ranges: Iterable[Range],
    *,
    since: int | None = None,
    until: int | None = None,
    key: bytes | None = None,
) -> DataFrame:
    """Records of one topic, with the columns of Kafka's source.

    Every condition prunes files. Offsets and log time (`since` up to and without `until`, µs) prune by dates and
    statistics. A key prunes by its checksum, by which closed dates are sorted.
    """
    wanted = sorted(ranges)
    rows = at_version(session, source.table, source.version).where(_within(wanted))
    if since is not None:
        rows = rows.where(
            (F.col("log_date") >= F.lit(_date(since))) & (F.col("log_time") >= F.timestamp_micros(F.lit(since)))
        )
    if until is not None:
        rows = rows.where(
            (F.col("log_date") <= F.lit(_date(until))) & (F.col("log_time") < F.timestamp_micros(F.lit(until)))
        )
    if key is not None:
        rows = rows.where((F.col("key_crc") == F.crc32(F.lit(key))) & (F.col("key") == F.lit(key)))
    return rows.select(
        F.lit(wanted[0].topic if wanted else "").alias("topic"),
        "partition",
        "offset",
        "key",
        "value",
        "headers",
        F.col("log_time").alias("timestamp"),
        F.col("by_broker").cast("int").alias("timestampType"),
    )


def first_since(session: SparkSession, source: Held, since: int) -> dict[int, int]:
    """The first offset of each partition with a record that was logged at `since` (µs) or later."""
    rows = (
        at_version(session, source.table, source.version)
        .where((F.col("log_date") >= F.lit(_date(since))) & (F.col("log_time") >= F.timestamp_micros(F.lit(since))))
        .groupBy("partition")
        .agg(F.min("offset"))
    )
    return {int(row[0]): int(row[1]) for row in rows.collect()}


def _within(ranges: list[Range]) -> Column:
    """The condition for offsets in these ranges.

    It is SQL text: each column object is a call into the JVM, and a range would need six.
    """
    parts = [f"(partition = {r.partition} AND offset >= {r.start} AND offset < {r.end})" for r in ranges]
    return F.expr(" OR ".join(parts) or "false")


def _date(moment: int) -> date:
    return from_micros(moment).date()


# Files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Day:
    """One log date of a table."""

    date: date
    files: int
    bytes: int
    records: int


def days(session: SparkSession, table: str) -> list[Day]:
    """The log dates of a table, from Delta's own list of files. No record is read."""
    added: Any = snapshot(session, table).allFiles().toDF()
    listed = (
        DataFrame(added, session)
        .groupBy(F.col("partitionValues")["log_date"].alias("date"))
        .agg(
            F.count(F.lit(1)).alias("files"),
            F.sum("size").alias("bytes"),
            F.sum(F.get_json_object("stats", "$.numRecords").cast("long")).alias("records"),
        )
        .orderBy("date")
    )
    return [
        Day(date.fromisoformat(row["date"]), row["files"], row["bytes"], row["records"] or 0)
        for row in listed.collect()
    ]


def to_compact(candidates: list[Day], now: datetime) -> Day | None:
    """The oldest closed date that has more files than it needs."""
    newest_date = max((day.date for day in candidates), default=None)
    for day in candidates:
        ended = datetime(day.date.year, day.date.month, day.date.day, tzinfo=UTC) + timedelta(days=1)
        closed = newest_date is not None and day.date < newest_date and now >= ended + _CLOSED_AFTER
        if closed and day.files >= files_of(day) + _TOO_MANY:
            return day
    return None


def files_of(day: Day) -> int:
    return max(1, -(-day.bytes // FILE_BYTES))


def compact_closed(session: SparkSession, table: str, now: datetime) -> str | None:
    """Compact one date, if one is due. Return a message if that failed, and do not raise.

    An archive of many files is only slow, while an archive that stops loses records.
    """
    try:
        day = to_compact(days(session, table), now)
        if day is not None:
            compact(session, table, day)
    except (PySparkException, Py4JError) as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return f"its archive was not compacted: {said[:200]}"
    return None


def compact(session: SparkSession, table: str, day: Day) -> None:
    """Rewrite a date's rows to few files, sorted by the checksums of keys, in one commit that changes no data.

    Delta's own OPTIMIZE reads the files of one version and removes exactly those, so records that are appended or
    imported meanwhile stay as they are. If two compactions take the same files, one commits and the other fails. A
    crash before the commit leaves files that no version refers to.
    """
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", FILE_BYTES)
    session.conf.set("spark.databricks.io.skipping.mdc.addNoise", "false")  # by key_crc alone: a key lies in one file
    session.conf.set("spark.databricks.io.skipping.mdc.sortWithinFiles", "true")
    session.sql(f"OPTIMIZE {quoted(table)} WHERE log_date = '{day.date.isoformat()}' ZORDER BY (key_crc)")
