"""The history of topics as one source, made of archive and log: for repairs, rebuilds and training sets.

Records come from the archive as far as it goes, and from the log after that. The archive is read at one version of its
table, so each offset comes from exactly one of the two. An offset that neither has is an error that names it, never a
silent gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.errors import RunError
from leftfold.kafka.admin import Admin
from leftfold.offsets import Offsets, Range, Ranges
from leftfold.spark.history.archive import Held, first_since, held, read_archive
from leftfold.spark.ids import looked_at
from leftfold.spark.source import Source, raw_range, records_of

T = TypeVar("T")
_BEFORE_ALL = -(1 << 62)
# The intake may be about to commit records that the log has just deleted. So the archive is read up to three times, two
# seconds apart.
_LOOKS = 3
_LOOK_AGAIN_S = 2.0
# How often retention may delete the log's head during one read before the read fails. Each time the archive has more.
_TRIES = 20
# Records of history per task of an aggregation, and the most tasks. So a task holds little in memory, and has fewer
# groups than the number from which Spark sorts instead of hashing. A task is also short, so views that run at the same
# time soon get their cores: Spark does not interrupt a task for another.
_RECORDS_PER_TASK = 250_000
_MOST_TASKS = 1_000
# Spark's error texts for offsets that are gone: when it plans the read, and when a task asks for them.
_GONE = ("DATA_LOSS", "OffsetOutOfRange", "Cannot fetch offset", "data may have been lost")


@dataclass(frozen=True)
class Seam:
    """The offsets that come from the archive, those that come from the log, and those that neither has."""

    archive: Ranges
    log: Ranges
    gap: Ranges


def seam(wanted: Ranges, archived: Ranges, firsts: Mapping[str, Mapping[int, int]]) -> Seam:
    """Split the wanted offsets between archive and log. Whatever the archive has comes from the archive.

    `firsts` are the first offsets that the log still has.
    """
    rest = wanted - archived
    deleted = Ranges.of(Range(t, p, _BEFORE_ALL, first) for t, parts in firsts.items() for p, first in parts.items())
    return Seam(wanted & archived, rest - deleted, rest & deleted)


def session_for(session: SparkSession, starts: Offsets, ends: Offsets) -> SparkSession:
    """A new session with enough shuffle partitions for an aggregation over this range of history."""
    records = sum(end - starts[t].get(p, 0) for t, parts in ends.items() for p, end in parts.items())
    own = session.newSession()
    least = int(str(session.conf.get("spark.sql.shuffle.partitions")))
    own.conf.set("spark.sql.shuffle.partitions", max(least, min(records // _RECORDS_PER_TASK, _MOST_TASKS)))
    return own


def read_history(
    session: SparkSession, source: Source, starts: Offsets, ends: Offsets, *, key: bytes | None = None
) -> DataFrame:
    """Decoded records from `starts` up to and without `ends`, each once, with the columns of `read_range`.

    With `key`, only the records of that key. It is decided here which offsets come from archive and log. If the log
    deletes some of them before they are read, Spark fails; `over_history` then tries again.
    """
    frames = _raw(session, source, starts, ends, key)
    if source.unknown == "look":
        known, _ = looked_at(_values(frames), source)
        source = replace(known, unknown="reject")
    return reduce(DataFrame.unionByName, (records_of(frame, source) for frame in frames))


def look_at_history(
    session: SparkSession, source: Source, starts: Offsets, ends: Offsets, *, key: bytes | None = None
) -> Source:
    """The source with every schema that the records of this range need.

    Ids that are still unknown were never given out by the registry. Their records are rejects.
    """
    known, _ = looked_at(_values(_raw(session, source, starts, ends, key)), source)
    return replace(known, unknown="reject")


def _raw(session: SparkSession, source: Source, starts: Offsets, ends: Offsets, key: bytes | None) -> list[DataFrame]:
    """Undecoded records from archive and log, with the columns of Kafka's source."""
    archives, parts = _settled(session, source, Ranges.between(starts, ends))
    frames = [
        read_archive(session, archive, [r for r in parts.archive if r.topic == topic], key=key)
        for topic, archive in archives.items()
        if any(r.topic == topic for r in parts.archive)
    ]
    pieces: dict[tuple[str, int], list[Range]] = {}
    for r in parts.log:
        pieces.setdefault((r.topic, r.partition), []).append(r)
    # A read of Kafka takes one range of each partition. There is only one, unless a user allowed a gap in the archive.
    for number in range(max(map(len, pieces.values()), default=0 if frames else 1)):
        layer = {place: spans[number] for place, spans in pieces.items() if number < len(spans)}
        logged = _of_log(session, source, layer, ends)
        frames.append(logged if key is None else logged.where(F.col("key") == F.lit(key)))
    return frames


def _values(frames: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, (frame.select("value") for frame in frames))


def _of_log(session: SparkSession, source: Source, layer: dict[tuple[str, int], Range], ends: Offsets) -> DataFrame:
    """Records of the log, one range per partition. A partition that is not in the layer gives no records."""
    places = {
        t: {p: layer.get((t, p), Range(t, p, max(end, 0), max(end, 0))) for p, end in ends[t].items()} for t in ends
    }
    return raw_range(
        session,
        source,
        {t: {p: r.start for p, r in parts.items()} for t, parts in places.items()},
        {t: {p: r.end for p, r in parts.items()} for t, parts in places.items()},
    )


def _settled(session: SparkSession, source: Source, wanted: Ranges) -> tuple[dict[str, Held], Seam]:
    admin = Admin(source.kafka)
    looks = _LOOKS if any(source.archives) else 1
    while True:
        firsts = _firsts(admin, source)
        archives = archives_of(session, source, admin)
        archived = reduce(Ranges.__or__, (archive.ranges for archive in archives.values()), Ranges())
        parts = seam(wanted, archived, firsts)
        if not parts.gap.ranges:
            return archives, parts
        looks -= 1
        if not looks:
            raise _lost(parts.gap, archived=any(source.archives))
        time.sleep(_LOOK_AGAIN_S)


def _firsts(admin: Admin, source: Source) -> Offsets:
    """The first offsets that the log still has. They must be read before the archive.

    Otherwise records that are archived and then deleted in between would seem to be missing in both.
    """
    return {t: admin.start_offsets(t, n) for t, n in zip(source.topics, source.partitions, strict=True)}


def archives_of(session: SparkSession, source: Source, admin: Admin) -> dict[str, Held]:
    """The content of the archives, by the topic's name in the cluster, for the topics that have an archive."""
    tables = {topic: table for topic, table in zip(source.topics, source.archives, strict=False) if table}
    if not tables:
        return {}
    ids = admin.topic_ids(tables)
    there = {topic: held(session, table, topic) for topic, table in tables.items()}
    begun = {topic: archive for topic, archive in there.items() if archive.version >= 0}  # otherwise it has not begun
    for topic, archive in begun.items():
        check_topic(topic, archive.topic_id, ids.get(topic))
    return begun


def head_is_gone(failure: str) -> bool:
    """Return whether a failure means that the log deleted records while they were read."""
    return any(words in failure for words in _GONE)


def over_history(act: Callable[[], T]) -> T:
    """Call `act`, which reads history by `read_history`. Call it again if the log's head was deleted meanwhile.

    The new call decides again which offsets come from the archive. `act` may have failed halfway, so it must be
    idempotent.
    """
    for _ in range(_TRIES):
        try:
            return act()
        except (PySparkException, Py4JError) as error:
            if not head_is_gone(str(error)):
                raise
    return act()


def starts_since(
    session: SparkSession, source: Source, admin: Admin, since: int | None, begins: Offsets | None = None
) -> tuple[Offsets, list[str]]:
    """The offsets from which to read everything that was logged since a moment (None: from the beginning).

    The second result lists the partitions whose oldest records may be gone. `begins` are the offsets at which a reader
    began: it never had the records before, so those cannot be missing.
    """
    starts: Offsets = {}
    lacking: list[str] = []
    firsts = _firsts(admin, source)
    archives = archives_of(session, source, admin)
    for topic, partitions in zip(source.topics, source.partitions, strict=True):
        first = firsts[topic]
        logged = first if since is None else _logged_since(admin, topic, partitions, since, first)
        archive = archives.get(topic)
        reach = {} if archive is None else _reach(archive.ranges, first)
        below = {} if archive is None or since is None else first_since(session, archive, since)
        starts[topic] = {}
        for p in range(partitions):
            own = 0 if begins is None else begins.get(topic, {}).get(p, 0)
            oldest = reach.get(p, first[p])
            start = logged[p]
            if start == first[p] and oldest < first[p]:  # the archive may have older records logged since
                start = oldest if since is None else min(start, max(oldest, below.get(p, start)))
            if begins is not None:
                start = max(start, own)
            starts[topic][p] = start
            if max(own, 0) < oldest == start:
                lacking.append(f"{topic}/{p}")
    return starts, lacking


def _logged_since(admin: Admin, topic: str, partitions: int, since: int, first: Mapping[int, int]) -> dict[int, int]:
    offsets, ends = admin.offsets_at(topic, partitions, since), admin.end_offsets(topic, partitions)
    return {p: ends[p] if at is None else max(at, first[p]) for p, at in offsets.items()}


def _reach(archived: Ranges, firsts: Mapping[int, int]) -> dict[int, int]:
    """The offset of each partition from which on archive and log together have all records."""
    reach = dict(firsts)
    for r in reversed(archived.ranges):
        if r.start < reach.get(r.partition, r.start) <= r.end:
            reach[r.partition] = r.start
    return reach


def check_topic(topic: str, archived: str | None, now: str | None) -> None:
    """Raise an error if the topic is not the one that was archived.

    A topic that was deleted and made again has other records at the archived offsets.
    """
    if archived is not None and archived != now:
        raise RunError(
            "archive-of-another-topic",
            f"the archive of {topic} holds another topic of that name",
            why=f"its id was {archived}, and is {now or 'nothing: there is none'}; the archive's offsets are those of "
            "records that are gone",
            state="nothing was read or written",
            fix="declare the new topic under another name, or move the table away: the archive then starts anew",
        )


def _lost(gap: Ranges, *, archived: bool) -> RunError:
    return RunError(
        "history-gap",
        f"neither log nor archive has {', '.join(map(str, gap))}",
        why="the log deleted these offsets "
        + ("before they were archived" if archived else "and its topic has no archive"),
        state="nothing was read",
        fix="start after them; archive=True keeps what is still there",
    )
