"""The past of topics as one source, whatever part of it the log still has: for repairs, rebuilds and training sets.

The archive as far as it goes, the log from there: what the archive holds is read at one version of its table, so each
offset comes from one of the two. An offset that neither has is an error that names it, never a hole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.errors import RunError
from leftfold.kafka.admin import Admin
from leftfold.ranges import Range, Ranges
from leftfold.spark.archive import Held, first_since, held, read_archive
from leftfold.spark.source import Offsets, Source, read_range, records_of

T = TypeVar("T")
_BEFORE_ALL = -(1 << 62)
# The intake may be about to commit what the log has just deleted: the archive is looked at so often, so far apart.
_LOOKS = 3
_LOOK_AGAIN_S = 2.0
# How often the log's head may be deleted under one reading before that is given up. Each time the archive has more.
_TRIES = 20
# Spark's words for offsets that are gone: when it plans the read, and when a task asks for them.
_GONE = ("DATA_LOSS", "OffsetOutOfRange", "Cannot fetch offset", "data may have been lost")


@dataclass(frozen=True)
class Seam:
    """Which offsets come from the archive, which from the log, and which from nowhere."""

    archive: Ranges
    log: Ranges
    gap: Ranges


def seam(wanted: Ranges, archived: Ranges, firsts: Mapping[str, Mapping[int, int]]) -> Seam:
    """`firsts` are the first offsets that the log still has. The archive is preferred as far as it goes."""
    rest = wanted - archived
    deleted = Ranges.of(Range(t, p, _BEFORE_ALL, first) for t, parts in firsts.items() for p, first in parts.items())
    return Seam(wanted & archived, rest - deleted, rest & deleted)


def read_history(
    session: SparkSession, source: Source, starts: Offsets, ends: Offsets, *, key: bytes | None = None
) -> DataFrame:
    """Decoded records from `starts`, up to and without `ends`, each once, or those of a key: as `read_range` has them.

    What the frame reads is settled here. If the log deletes some of it before it is read, Spark fails (`over_history`).
    """
    found, parts = _settled(session, source, Ranges.between(starts, ends))
    frames = [
        records_of(read_archive(session, archive, [r for r in parts.archive if r.topic == topic], key=key), source)
        for topic, archive in found.items()
        if any(r.topic == topic for r in parts.archive)
    ]
    pieces: dict[tuple[str, int], list[Range]] = {}
    for r in parts.log:
        pieces.setdefault((r.topic, r.partition), []).append(r)
    # A read of Kafka takes one piece of each partition. There is one, unless a person let the archive have a gap.
    for number in range(max(map(len, pieces.values()), default=0 if frames else 1)):
        layer = {place: spans[number] for place, spans in pieces.items() if number < len(spans)}
        logged = _of_log(session, source, layer, ends)
        frames.append(logged if key is None else logged.where(F.col("key") == F.lit(key)))
    return reduce(lambda a, b: a.unionByName(b), frames)


def _of_log(session: SparkSession, source: Source, layer: dict[tuple[str, int], Range], ends: Offsets) -> DataFrame:
    """Nothing of a partition that is not in the layer."""
    places = {
        t: {p: layer.get((t, p), Range(t, p, max(end, 0), max(end, 0))) for p, end in ends[t].items()} for t in ends
    }
    return read_range(
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
        found = archives_of(session, source, admin)
        archived = reduce(Ranges.__or__, (archive.ranges for archive in found.values()), Ranges())
        parts = seam(wanted, archived, firsts)
        if not parts.gap.ranges:
            return found, parts
        looks -= 1
        if not looks:
            raise _lost(parts.gap, archived=any(source.archives))
        time.sleep(_LOOK_AGAIN_S)


def _firsts(admin: Admin, source: Source) -> Offsets:
    """Asked before the archive is looked at: what the log has lost by now, the archive had before or never will."""
    return {t: admin.start_offsets(t, n) for t, n in zip(source.topics, source.partitions, strict=True)}


def archives_of(session: SparkSession, source: Source, admin: Admin) -> dict[str, Held]:
    """By topic, as the cluster names it: what the archives of those hold that have one."""
    tables = {topic: table for topic, table in zip(source.topics, source.archives, strict=False) if table}
    if not tables:
        return {}
    ids = admin.topic_ids(tables)
    there = {topic: held(session, table, topic) for topic, table in tables.items()}
    found = {topic: archive for topic, archive in there.items() if archive.version >= 0}  # else it has not begun
    for topic, archive in found.items():
        check_topic(topic, archive.topic_id, ids.get(topic))
    return found


def head_is_gone(failure: str) -> bool:
    """Whether that is what the failure was: the log deleted records under a reader."""
    return any(words in failure for words in _GONE)


def over_history(act: Callable[[], T]) -> T:
    """Do what reads history by `read_history`; again, from a new seam, if the log's head was deleted under it.

    `act` may have been half done, so it must bear being done twice.
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
    """From where to read what was logged since a moment (None: ever), and the partitions whose head may be gone.

    `begins` is where a reader began: it never had what lies before, so that cannot be lacking.
    """
    starts: Offsets = {}
    lacking: list[str] = []
    firsts = _firsts(admin, source)
    found = archives_of(session, source, admin)
    for topic, partitions in zip(source.topics, source.partitions, strict=True):
        first = firsts[topic]
        logged = first if since is None else _logged_since(admin, topic, partitions, since, first)
        archive = found.get(topic)
        kept = {} if archive is None else _reach(archive.ranges, first)
        below = {} if archive is None or since is None else first_since(session, archive, since)
        starts[topic] = {}
        for p in range(partitions):
            own = 0 if begins is None else begins.get(topic, {}).get(p, 0)
            oldest = kept.get(p, first[p])
            start = logged[p]
            if start == first[p] and oldest < first[p]:  # older ones may have been logged since, too
                start = oldest if since is None else min(start, max(oldest, below.get(p, start)))
            if begins is not None:
                start = max(start, own)
            starts[topic][p] = start
            if max(own, 0) < oldest == start:
                lacking.append(f"{topic}/{p}")
    return starts, lacking


def _logged_since(admin: Admin, topic: str, partitions: int, since: int, first: Mapping[int, int]) -> dict[int, int]:
    found, ends = admin.offsets_at(topic, partitions, since), admin.end_offsets(topic, partitions)
    return {p: ends[p] if at is None else max(at, first[p]) for p, at in found.items()}


def _reach(archived: Ranges, firsts: Mapping[int, int]) -> dict[int, int]:
    """By partition: the offset from which on archive and log together have everything."""
    reach = dict(firsts)
    for r in reversed(archived.ranges):
        if r.start < reach.get(r.partition, r.start) <= r.end:
            reach[r.partition] = r.start
    return reach


def check_topic(topic: str, archived: str | None, now: str | None) -> None:
    """A topic that was deleted and made again has other records under the offsets that were archived."""
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
