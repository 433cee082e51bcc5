"""The archive of a topic: every record at its offset, in a Delta table by log date, also after the log deleted it.

Owns the table: its columns, what a commit says, reads that touch few files, and the compaction of closed dates. The
topic's intake alone appends (`fed` says how each batch is appended once); nothing here deletes a record.

A commit says which offsets the table then holds, so version and offsets are read in one atomic step. Imported records
have negative offsets and say it themselves: whatever lies between them and the first offset of the topic is the
past that they stand for.
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
from leftfold.ranges import Range, Ranges
from leftfold.spark import files
from leftfold.spark.fed import Ends, append, follows, newest, quoted, snapshot, told

# Delta's name for who appends: the same for every intake, so that two of them are in each other's way.
APPLICATION = "leftfold-archive"
IMPORT = "leftfold-import"  # of those that bring the past in
# What statistics prune by comes first: Delta keeps the smallest and largest value of the first 32 columns of a file,
# though not of bytes. So a key is found by its checksum.
_COLUMNS = (
    "topic_id string, partition int, offset bigint, log_time timestamp, by_broker boolean, key_crc bigint, "
    "key binary, value binary, headers array<struct<key:string,value:binary>>, log_date date"
)
# Records of a batch in one file, and so in one task: a backlog is written by several.
_RECORDS_PER_FILE = 100_000
# Bytes of a compacted file: a date of a large topic is some files, of which a key lies in one.
FILE_BYTES = 64 * 1_024 * 1_024
# How long after a date has ended it counts as closed: by then the intake has long read what was logged on it, and if
# not, the date is compacted once more.
_CLOSED_AFTER = timedelta(hours=1)
# A date is compacted again if so many files were added to it since.
_TOO_MANY = 4


@dataclass(frozen=True)
class Position:
    """Where a table ends: its newest commit of ours."""

    sequence: int  # -1: none yet
    topic_id: str | None
    ends: Ends
    holds: dict[int, list[list[int]]]  # by partition: from, up to and without; what it got from Kafka
    writer: str

    def said(self) -> dict[str, Any]:
        said = {"sequence": self.sequence, "topic": self.topic_id, "ends": self.ends, "holds": self.holds}
        return {"leftfold": {**said, "writer": self.writer}}


@dataclass(frozen=True)
class Held:
    """What the archive of one topic holds at one version of its table, imported records included."""

    table: str
    version: int
    topic_id: str | None
    ranges: Ranges
    ends: Ends


def make(session: SparkSession, table: str) -> None:
    session.sql(f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({_COLUMNS}) USING delta PARTITIONED BY (log_date)")


def exists(session: SparkSession, table: str) -> bool:
    return files.exists(session, f"{table}/_delta_log")


def position(session: SparkSession, table: str) -> Position:
    return _position(session, table)[1]


def held(session: SparkSession, table: str, topic: str) -> Held:
    """For readers, in one version. `topic` is the cluster's name, under which the ranges stand."""
    if not exists(session, table):
        return Held(table, -1, None, Ranges(), {})
    version, found = _position(session, table)
    ranges = [Range(topic, p, start, end) for p, spans in found.holds.items() for start, end in spans]
    past = imported(session, table, version)
    if past:
        firsts = {p: min((s for s, _ in found.holds.get(p, ())), default=end) for p, end in found.ends.items()}
        ranges += [Range(topic, p, past.get(p, 0), first) for p, first in firsts.items()]
    return Held(table, version, found.topic_id, Ranges.of(ranges), found.ends)


def _position(session: SparkSession, table: str) -> tuple[int, Position]:
    version, said = newest(session, table)
    if said is None:
        return version, _position_of_rows(session, table, version)
    ends = {int(p): end for p, end in said["ends"].items()}
    holds = {int(p): spans for p, spans in said["holds"].items()}
    return version, Position(said["sequence"], said["topic"], ends, holds, said["writer"])


def _position_of_rows(session: SparkSession, table: str, version: int) -> Position:
    """For a new table, or one whose history was cleaned: then gaps that a person let through are not known."""
    found = (
        at_version(session, table, version)
        .where("offset >= 0")
        .groupBy("partition")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.max("topic_id").alias("topic"))
        .collect()
    )
    holds = {int(row["partition"]): [[int(row["first"]), int(row["last"]) + 1]] for row in found}
    topic = next((str(row["topic"]) for row in found), None)
    return Position(version, topic, {p: spans[0][1] for p, spans in holds.items()}, holds, "")


def imported(session: SparkSession, table: str, version: int) -> dict[int, int]:
    """The first offset of each partition with imported records. Statistics lead to their files alone."""
    if not imports_of(session, table):
        return {}
    rows = at_version(session, table, version).where("offset < 0").groupBy("partition").agg(F.min("offset"))
    return {int(row[0]): int(row[1]) for row in rows.collect()}


def imports_of(session: SparkSession, table: str) -> int:
    """How many there have been, by Delta's own memory of who appended: a table without any need not be searched."""
    last = snapshot(session, table).transactions().get(IMPORT)
    return int(last.get()) + 1 if last.isDefined() else 0


# Appending -------------------------------------------------------------------------------------------------------


def append_batch(
    session: SparkSession, records: DataFrame, table: str, *, topic: str, to: Position, starts: Ends, first: bool
) -> None:
    """Records of Kafka up to `to.ends`, unless the table has them already. `first`: of a new checkpoint.

    `to` lacks its number and what the table holds by then: both come from the table.
    """
    found = position(session, table)
    taken = follows(found.ends, starts, to.ends, first=first)
    if taken is None:
        raise taken_over(topic, f"the table ends at {told(found.ends)}, the batch starts at {told(starts)}")
    if not taken:
        return
    read = {p: (starts.get(p, 0), end) for p, end in to.ends.items()}
    ahead = Position(found.sequence + 1, to.topic_id, to.ends, _joined(found.holds, read), to.writer)
    rows = rows_of(records, to.topic_id).coalesce(max(1, sum(e - s for s, e in read.values()) // _RECORDS_PER_FILE))
    move(session, rows, table, topic=topic, to=ahead)


def move(session: SparkSession, rows: DataFrame, table: str, *, topic: str, to: Position) -> None:
    """Rows, or none, in a commit after which the table stands at `to`."""
    append(rows, table, application=APPLICATION, sequence=to.sequence, said=to.said())
    if position(session, table) != to:
        raise taken_over(topic, f"commit {to.sequence} was made by another query")


def no_rows(session: SparkSession, table: str) -> DataFrame:
    """For a commit that only says something."""
    return session.read.format("delta").load(table).limit(0)


def _joined(holds: dict[int, list[list[int]]], read: dict[int, tuple[int, int]]) -> dict[int, list[list[int]]]:
    found = [Range("", p, s, e) for p, spans in holds.items() for s, e in spans]
    joined: dict[int, list[list[int]]] = {}
    for r in Ranges.of([*found, *(Range("", p, s, e) for p, (s, e) in read.items())]):
        joined.setdefault(r.partition, []).append([r.start, r.end])
    return joined


def rows_of(records: DataFrame, topic_id: str | None) -> DataFrame:
    """Records as Kafka's source gives them, with headers, as rows of the table."""
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
        fix="run one intake per topic: end the other run, or this one; a new start goes on from the table",
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
    """Records of one topic, with the columns that Kafka's source gives them.

    Every condition prunes files: offsets and log time (`since` up to and without `until`, µs) by dates and statistics,
    a key by its checksum, by which closed dates are sorted.
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
    """As text: each column of Python's is a call of the JVM, and a range has six."""
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
    """From Delta's own list of files; no record is read."""
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


def to_compact(found: list[Day], now: datetime) -> Day | None:
    """The oldest closed date that has more files than it needs."""
    newest_date = max((day.date for day in found), default=None)
    for day in found:
        ended = datetime(day.date.year, day.date.month, day.date.day, tzinfo=UTC) + timedelta(days=1)
        closed = newest_date is not None and day.date < newest_date and now >= ended + _CLOSED_AFTER
        if closed and day.files >= files_of(day) + _TOO_MANY:
            return day
    return None


def files_of(day: Day) -> int:
    return max(1, -(-day.bytes // FILE_BYTES))


def compact_closed(session: SparkSession, table: str, now: datetime) -> str | None:
    """One date, if one is due. Says what went wrong: an archive of many files is slow, one that stops loses records."""
    try:
        day = to_compact(days(session, table), now)
        if day is not None:
            compact(session, table, day)
    except (PySparkException, Py4JError) as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return f"its archive was not compacted: {said[:200]}"
    return None


def compact(session: SparkSession, table: str, day: Day) -> None:
    """The date's rows in few files, sorted by key: one commit that changes no data.

    Delta lets appends go on beside it, and of two compactions of the same files it lets one commit. A death before the
    commit leaves files that no version names.
    """
    condition = f"log_date = date'{day.date.isoformat()}'"
    rows = session.read.format("delta").load(table).where(condition)
    (
        rows.repartitionByRange(files_of(day), "key_crc", "partition", "offset")
        .sortWithinPartitions("key_crc", "partition", "offset")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", condition)
        .option("dataChange", "false")
        .save(table)
    )
