"""Replay: a range of a topic, read again as a DataFrame or written to files with a manifest.

The manifest lets a replay be repeated and compared. A replay is lazy: its offsets are frozen when it is made, and rows
are read when they are asked for. A small one is written without Spark. For a topic with an archive, Spark starts at
once, to find the offsets.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leftfold import clock
from leftfold.declare.event import fields_of
from leftfold.declare.keys import key_values
from leftfold.declare.topic import Topic
from leftfold.errors import RunError
from leftfold.fold.values import entity_text
from leftfold.kafka.admin import Admin
from leftfold.kafka.failures import in_java
from leftfold.kafka.registry import SchemaRegistry
from leftfold.offsets import Offsets, Ranges
from leftfold.places import local_path
from leftfold.replay.manifest import FILE, UNFINISHED, Format, Manifest, read_manifest
from leftfold.run.choice import Choice, Engine, chosen, for_replay, only_spark
from leftfold.run.deployment import Deployment, TopicPlace

if TYPE_CHECKING:
    from leftfold.arrow.rows import RowContent
    from leftfold.replay.by_arrow import ArrowReplay
    from leftfold.spark.history.replayed import Content
    from leftfold.spark.session import DataFrame, SparkSession
    from leftfold.spark.source import Source


T = TypeVar("T")
Watch = Callable[[int, int], None]  # tasks done, and how many are known so far
_WHAT = "this replay"


@dataclass
class Replay:
    """A frozen range of one topic, which can be read as often as needed. `App.replay` makes it."""

    topic: Topic[Any]
    topic_id: str
    ranges: Ranges  # frozen: every read gives the same records
    place: TopicPlace
    deployment: Deployment

    @cached_property
    def source(self) -> Source:
        """The source that Spark reads. It is replaced when a read meets a schema that it does not know yet."""
        fields = frozenset(fields_of(self.topic.event))
        return self.deployment.source((self.topic,), fields, who="a replay", at=self.topic.source)

    @property
    def registry(self) -> SchemaRegistry:
        return self.deployment.engines.registry

    def start_session(self) -> SparkSession:
        return self.deployment.session(lake=self.topic.archive)

    def choice(self, directory: str | None, engine: Engine | None = None) -> Choice:
        """Choose whether Arrow or Spark reads the records, to write them to `directory` if it is given."""

        def only_spark_reads() -> str | None:
            if self.topic.archive:
                return f"some records of {self.topic.name} may be in its archive alone"
            if directory is not None and self._path(directory) is None:
                return f"{directory} is not on this machine's disk"
            return None

        return chosen(_WHAT, engine, only_spark_reads, lambda: for_replay(sum(len(r) for r in self.ranges)))

    def manifest_of(self, directory: str) -> Manifest:
        """Return the manifest of an earlier replay."""
        return read_manifest(directory, self.deployment)

    def _path(self, directory: str) -> Path | None:
        return local_path(directory, self.deployment.profile.spark.conf)

    def frame(self, session: SparkSession | None = None, /, **key: Any) -> DataFrame:
        """Return a DataFrame with one row for every record of the range.

        The columns are `_partition`, `_offset`, `_log_time`, `_key`, `_deleted`, `_outcome` and the event's fields. A
        record that cannot be read as an event has a row too: its `_outcome` is "rejected" and its fields are null.

        The read uses the given session, else the active one, else it starts one. `key` gives the parts of a key: only
        the records of that key are read, and an archive is then not read as a whole. The range of an Avro topic is
        read once beforehand, to learn which schemas its records have.
        """
        from leftfold.spark.history.records import look_at_history

        session, only, known = session or self.start_session(), self._key(key), self.source
        if self.topic.format == "avro":
            known = self._run(session, lambda _: look_at_history(session, known, *self._offsets(), key=only))
        return self._rows(session, only, known)

    def write(
        self,
        directory: str,
        format: Format = "parquet",
        *,
        session: SparkSession | None = None,
        watch: Watch = lambda _done, _known: None,
        engine: Engine | None = None,
    ) -> Manifest:
        """Write the records to files under `directory`, and return their manifest.

        The directory appears in one rename, together with its manifest, after everything is written. What a replay
        that died left next to it is removed first. Without a session, and if that is expected to be done first, this
        process writes them itself, with Arrow. `engine` decides it.
        """
        choice = self.choice(directory, engine) if session is None else Choice("spark", "its session was given")
        if choice.engine == "arrow":
            from leftfold.arrow import OnlySparkError

            try:
                return self._write_by_arrow(directory, format, watch)
            except OnlySparkError as error:
                only_spark(_WHAT, str(error), engine)
        from leftfold.spark import files
        from leftfold.spark.history import replayed
        from leftfold.spark.query import watching

        session = session or self.start_session()
        directory = files.absolute(session, directory)
        if files.exists(session, directory):
            raise out_exists(directory)
        for left in files.siblings(session, directory, UNFINISHED):
            files.remove(session, left)
        beside = f"{directory}{UNFINISHED}{uuid.uuid4().hex[:8]}"
        records, staged = f"{beside}/records", f"{beside}/staged"
        parquet = records if format == "parquet" else staged
        with watching(session, watch):
            columns = self._run(session, lambda rows: _written(rows, parquet))
            # Counts and digest are taken from the files: a task that failed and ran again is in them only once.
            content = replayed.content(replayed.read_parquet(session, parquet))
            if format == "jsonl":
                replayed.write_json(replayed.read_parquet(session, staged), records)
                lines = replayed.count_lines(session, records)
                assert lines == content.records, f"{lines} lines were written of {content.records} records"
                files.remove(session, staged)
        manifest = self._manifest(content, columns, format, self.source.writer_schemas, self.source.rejected_ids)
        files.write_text(session, f"{beside}/{FILE}", manifest.as_text())
        if files.exists(session, directory) or not files.rename(session, beside, directory):
            raise out_exists(directory)
        return manifest

    def _write_by_arrow(self, directory: str, format: Format, watch: Watch) -> Manifest:
        from leftfold.replay.by_arrow import ArrowReplay

        path = self._path(directory)
        assert path is not None, "chosen for that"
        if path.exists():
            raise out_exists(directory)

        def described(content: RowContent, columns: dict[str, str], read: ArrowReplay) -> Manifest:
            return self._manifest(content, columns, format, set(read.schemas.known), read.schemas.rejected)

        return ArrowReplay(self.place, self.ranges, self.deployment).write(path, format, described, watch)

    def again(
        self,
        manifest: Manifest,
        *,
        session: SparkSession | None = None,
        watch: Watch = lambda _done, _known: None,
        engine: Engine | None = None,
    ) -> Content | RowContent:
        """Read the manifest's ranges again, with the schemas that it names. Raise if the content is not the same."""
        if manifest.topic_id != self.topic_id:
            raise RunError(
                "topic-recreated",
                f"the replay was made of another topic under the name {manifest.name}",
                why=f"its id was {manifest.topic_id}, and is {self.topic_id}; the offsets of the replay are those of "
                "records that are gone",
                fix=f"leftfold replay {self.topic.name} --out DIR makes one of the topic that is there now",
            )
        schemas = {number: self.registry.schema(number) for number in manifest.schema_ids}
        known = {number: text for number, text in schemas.items() if text is not None}
        self.ranges = manifest.ranges
        content, columns = self._read_again(manifest, known, session, watch, engine)
        if content.digest != manifest.digest or content.records != manifest.records or columns != manifest.columns:
            raise _differs(manifest, content, columns)
        return content

    def _read_again(
        self,
        manifest: Manifest,
        known: dict[int, str],
        session: SparkSession | None,
        watch: Watch,
        engine: Engine | None,
    ) -> tuple[Content | RowContent, dict[str, str]]:
        choice = self.choice(None, engine) if session is None else Choice("spark", "its session was given")
        if choice.engine == "arrow":
            from leftfold.arrow import OnlySparkError
            from leftfold.replay.by_arrow import ArrowReplay

            place = replace(self.place, schemas=known)
            try:
                return ArrowReplay(place, self.ranges, self.deployment, rejected=manifest.rejected_ids).content(watch)
            except OnlySparkError as error:
                only_spark(_WHAT, str(error), engine)
        from leftfold.spark.history import replayed
        from leftfold.spark.query import watching

        session = session or self.start_session()
        rejected = frozenset(manifest.rejected_ids)
        self.source = replace(self.source, writer_schemas=known, rejected_ids=rejected, unknown="reject")
        with watching(session, watch):
            columns, content = self._run(session, lambda rows: (dict(rows.dtypes), replayed.content(rows)))
        return content, columns

    def _manifest(
        self,
        content: Content | RowContent,
        columns: dict[str, str],
        format: Format,
        schema_ids: Collection[int],
        rejected_ids: Collection[int],
    ) -> Manifest:
        return Manifest(
            topic=self.topic.name,
            name=self.place.name,
            topic_id=self.topic_id,
            ranges=self.ranges,
            schema_ids=tuple(sorted(schema_ids)),
            rejected_ids=tuple(sorted(rejected_ids)),
            columns=columns,
            format=format,
            records=content.records,
            outcomes=dict(sorted(content.outcomes.items())),
            digest=content.digest,
            made_at=clock.now().isoformat(),
        )

    def _offsets(self) -> tuple[Offsets, Offsets]:
        return as_offsets(self.ranges, self.source.topics[0], self.source.partitions[0])

    def _rows(self, session: SparkSession, key: bytes | None = None, known: Source | None = None) -> DataFrame:
        from leftfold.spark.history.replayed import replayed

        return replayed(session, known or self.source, self.topic, *self._offsets(), key=key)

    def _key(self, parts: Mapping[str, Any]) -> bytes | None:
        if not parts:
            return None
        return entity_text(key_values(self.topic.name, self.topic.keys, parts)).encode()

    def _run(self, session: SparkSession, action: Callable[[DataFrame], T]) -> T:
        """Run an action over the rows and return its result.

        The action runs again when it needs a schema that was not known, and when the log deletes records under the
        read. So it must bear being run several times.
        """
        from leftfold.run.sources import learned
        from leftfold.spark.history.records import over_history
        from leftfold.spark.history.replayed import FAILURES

        while True:
            try:
                return over_history(lambda: action(self._rows(session)))
            except FAILURES as failure:
                known = learned(self.source, self.registry, str(failure))
                if known is None:
                    said = next((line.strip() for line in str(failure).splitlines() if line.strip()), "Spark failed")
                    raise in_java(str(failure)) or RunError(
                        "replay-failed",
                        f"{self.topic.name} could not be replayed",
                        why=said[:300],
                        state="nothing that looks finished was left behind",
                        fix="see the log: leftfold logs spark; then run the same command again",
                        retriable=True,
                    ) from failure
                self.source = self._looked_at(session, known)

    def _looked_at(self, session: SparkSession, source: Source) -> Source:
        from leftfold.spark.history.records import look_at_history, over_history

        return over_history(lambda: look_at_history(session, source, *self._offsets()))


def _written(rows: DataFrame, location: str) -> dict[str, str]:
    from leftfold.spark.history.replayed import write_parquet

    write_parquet(rows, location)
    return dict(rows.dtypes)


def out_exists(directory: str) -> RunError:
    return RunError(
        "replay-out-exists",
        f"{directory} exists already",
        why="what a replay wrote is never written over",
        fix="choose a directory that does not exist, or delete this one",
    )


def _differs(manifest: Manifest, content: Content | RowContent, columns: dict[str, str]) -> RunError:
    if columns != manifest.columns:
        why = "the event's fields have changed since: the same bytes are read into another shape"
    elif content.records != manifest.records:
        why = f"it had {manifest.records:,} records, and there are {content.records:,}: compaction, or deleted records"
    elif content.outcomes != manifest.outcomes:
        why = "other records are accepted: the event's rules, its defaults or the topic's lateness have changed since"
    else:
        why = "fields are read into other values: the event's defaults have changed since"
    return RunError(
        "replay-differs",
        f"a replay of the same ranges of {manifest.topic} gives another content",
        why=why,
        state=f"the files are as they were; their digest is {manifest.digest}, and now it is {content.digest}",
        fix=f"leftfold replay {manifest.topic} --out DIR makes a new one as things are declared now",
    )


# Moments serve only to find offsets. From then on a replay knows offsets alone, so that it can be repeated.


@dataclass(frozen=True)
class FrozenRanges:
    """The start and end offset of every partition of a topic, including partitions with nothing to read."""

    topic: str
    starts: dict[int, int]
    ends: dict[int, int]

    @property
    def ranges(self) -> Ranges:
        return Ranges.between({self.topic: self.starts}, {self.topic: self.ends})


def frozen(
    admin: Admin, topic: str, partitions: int, *, start: int | None = None, end: int | None = None
) -> FrozenRanges:
    """Return the offsets from the first record stamped at `start` or later up to the first stamped at `end` or later.

    `start` and `end` are moments in µs; None means no limit. Log times sometimes step back. So a record older than
    `start` may lie after the start offset, and a newer one before it. An end is never past the last stable offset,
    where every transaction has ended: nothing before it changes.
    """
    firsts, stable = admin.start_offsets(topic, partitions), admin.stable_offsets(topic, partitions)
    starts, ends = dict(firsts), dict(stable)
    if start is not None:
        offsets = admin.offsets_at(topic, partitions, start)
        starts = {p: stable[p] if at is None else max(at, firsts[p]) for p, at in offsets.items()}
    if end is not None:
        offsets = admin.offsets_at(topic, partitions, end)
        ends = {p: stable[p] if at is None else min(at, stable[p]) for p, at in offsets.items()}
    return FrozenRanges(topic, starts, ends)


def frozen_history(
    session: SparkSession, admin: Admin, source: Source, *, start: int | None, end: int | None
) -> FrozenRanges:
    """Return the offsets between two moments (µs; None: no limit) for a topic that has an archive.

    They cover what archive and log hold together.
    """
    from leftfold.spark.history.records import starts_since

    (topic,), (partitions,) = source.topics, source.partitions
    stable = admin.stable_offsets(topic, partitions)
    starts, ends = (starts_since(session, source, admin, moment)[0][topic] for moment in (start, end))
    return FrozenRanges(
        topic,
        {p: min(at, stable[p]) for p, at in starts.items()},
        stable if end is None else {p: min(at, stable[p]) for p, at in ends.items()},
    )


def as_offsets(ranges: Ranges, topic: str, partitions: int) -> tuple[Offsets, Offsets]:
    """Return the start and end offsets of every partition of the topic, in the form that a read takes.

    A partition that is not in `ranges` gets start and end 0, so nothing of it is read.
    """
    starts = dict.fromkeys(range(partitions), 0)
    ends = dict(starts)
    for r in ranges:
        starts[r.partition], ends[r.partition] = r.start, r.end
    return {topic: starts}, {topic: ends}
