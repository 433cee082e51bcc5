"""A range of a topic, read again: as a DataFrame, or as files with a manifest by which it can be repeated.

Lazy: made of offsets that are frozen when it is made; Spark starts when rows are asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from leftfold import clock
from leftfold.errors import RunError
from leftfold.fold.definition import Key
from leftfold.fold.values import entity_text
from leftfold.kafka.registry import SchemaRegistry
from leftfold.ranges import Ranges
from leftfold.replay.frozen import Offsets, as_offsets
from leftfold.replay.manifest import FILE, Format, Manifest
from leftfold.run.sources import learned
from leftfold.spark.source import Source
from leftfold.spec.keys import key_values
from leftfold.spec.topic import Topic

if TYPE_CHECKING:
    from leftfold.spark.replayed import Content
    from leftfold.spark.session import DataFrame, SparkSession

T = TypeVar("T")
Watch = Callable[[int, int], None]  # tasks done, and how many are known so far
_UNFINISHED = ".unfinished-"


@dataclass
class Replay:
    """Made by `App.replay`."""

    topic: Topic[Any]
    topic_id: str
    ranges: Ranges  # frozen: the same records whenever they are read
    source: Source  # which learns the schemas that it meets
    registry: SchemaRegistry
    start_session: Callable[[], SparkSession]

    def frame(self, session: SparkSession | None = None, /, **key: Any) -> DataFrame:
        """Every record once: `_partition`, `_offset`, `_log_time`, `_key`, `_deleted`, `_outcome`, the event's fields.

        One that is no event is there too, `_outcome` rejected and its fields null. In the session that is given, the
        active one, or one that is started. With the parts of a `key` only its records, for which an archive is not read
        as a whole. The range of an Avro topic is first read once to learn which schemas it has.
        """
        from leftfold.spark.replayed import look_for_schemas

        session, only = session or self.start_session(), self._key(key)
        if self.topic.format == "avro":
            self._run(session, lambda _: look_for_schemas(session, self.source, *self._offsets(), key=only))
        return self._rows(session, only)

    def write(
        self,
        directory: str,
        format: Format = "parquet",
        *,
        session: SparkSession | None = None,
        watch: Watch = lambda _done, _known: None,
    ) -> Manifest:
        """Files under `directory`, which is there with its manifest once all is written, and not before.

        Whatever a replay that died has left beside it is removed.
        """
        from leftfold.spark import files, replayed
        from leftfold.spark.watching import watching

        session = session or self.start_session()
        if files.exists(session, directory):
            raise out_exists(directory)
        for left in files.siblings(session, directory, _UNFINISHED):
            files.remove(session, left)
        beside = f"{directory}{_UNFINISHED}{uuid.uuid4().hex[:8]}"
        records, staged = f"{beside}/records", f"{beside}/staged"
        kept = records if format == "parquet" else staged
        with watching(session, watch):
            columns = self._run(session, lambda rows: _written(rows, kept))
            # What the files hold, not what was read: a task that failed and ran again is in them once.
            found = replayed.content(replayed.read_parquet(session, kept))
            if format == "jsonl":
                replayed.write_json(replayed.read_parquet(session, staged), records)
                lines = replayed.count_lines(session, records)
                assert lines == found.records, f"{lines} lines were written of {found.records} records"
                files.remove(session, staged)
        manifest = self._manifest(found, columns, format)
        files.write_text(session, f"{beside}/{FILE}", manifest.as_text())
        if files.exists(session, directory) or not files.rename(session, beside, directory):
            raise out_exists(directory)
        return manifest

    def again(
        self,
        manifest: Manifest,
        *,
        session: SparkSession | None = None,
        watch: Watch = lambda _done, _known: None,
    ) -> Content:
        """Read what the manifest says once more, under the schemas that it names; refused if it gives anything else."""
        from leftfold.spark import replayed
        from leftfold.spark.watching import watching

        if manifest.topic_id != self.topic_id:
            raise RunError(
                "topic-recreated",
                f"the replay was made of another topic under the name {manifest.name}",
                why=f"its id was {manifest.topic_id}, and is {self.topic_id}; the offsets of the replay are those of "
                "records that are gone",
                fix=f"leftfold replay {self.topic.name} --out DIR makes one of the topic that is there now",
            )
        session = session or self.start_session()
        schemas = {number: self.registry.schema(number) for number in manifest.schema_ids}
        known = {number: text for number, text in schemas.items() if text is not None}
        self.source = replace(self.source, writer_schemas=known, rejected_ids=frozenset(manifest.rejected_ids))
        self.ranges = manifest.ranges
        with watching(session, watch):
            columns, found = self._run(session, lambda rows: (dict(rows.dtypes), replayed.content(rows)))
        if found.digest != manifest.digest or found.records != manifest.records or columns != manifest.columns:
            raise _differs(manifest, found, columns)
        return found

    def _manifest(self, found: Content, columns: dict[str, str], format: Format) -> Manifest:
        return Manifest(
            topic=self.topic.name,
            name=self.source.topics[0],
            topic_id=self.topic_id,
            ranges=self.ranges,
            schema_ids=tuple(sorted(self.source.writer_schemas)),
            rejected_ids=tuple(sorted(self.source.rejected_ids)),
            columns=columns,
            format=format,
            records=found.records,
            outcomes=dict(found.outcomes),
            digest=found.digest,
            made_at=clock.now().isoformat(),
        )

    def _offsets(self) -> tuple[Offsets, Offsets]:
        return as_offsets(self.ranges, self.source.topics[0], self.source.partitions[0])

    def _rows(self, session: SparkSession, key: bytes | None = None) -> DataFrame:
        from leftfold.spark.replayed import replayed

        return replayed(session, self.source, self.topic, *self._offsets(), key=key)

    def _key(self, parts: Mapping[str, Any]) -> bytes | None:
        if not parts:
            return None
        keys = tuple(Key(k.name, k.kind) for k in self.topic.key)
        return entity_text(key_values(self.topic.name, keys, parts)).encode()

    def _run(self, session: SparkSession, action: Callable[[DataFrame], T]) -> T:
        """An action over the rows; again with each schema that it needs, and if the log deletes what it reads."""
        from leftfold.spark.history import over_history
        from leftfold.spark.replayed import FAILURES

        while True:
            try:
                return over_history(lambda: action(self._rows(session)))
            except FAILURES as failure:
                known = learned(self.source, self.registry, str(failure))
                if known is None:
                    said = next((line.strip() for line in str(failure).splitlines() if line.strip()), "Spark failed")
                    raise RunError(
                        "replay-failed",
                        f"{self.topic.name} could not be replayed",
                        why=said[:300],
                        state="nothing that looks finished was left behind",
                        fix="see the log: leftfold logs spark; then run the same command again",
                        retriable=True,
                    ) from failure
                self.source = known


def _written(rows: DataFrame, location: str) -> dict[str, str]:
    from leftfold.spark.replayed import write_parquet

    write_parquet(rows, location)
    return dict(rows.dtypes)


def out_exists(directory: str) -> RunError:
    return RunError(
        "replay-out-exists",
        f"{directory} exists already",
        why="what a replay wrote is never written over",
        fix="choose a directory that does not exist, or delete this one",
    )


def _differs(manifest: Manifest, found: Content, columns: dict[str, str]) -> RunError:
    if columns != manifest.columns:
        why = "the event's fields have changed since: the same bytes are read into another shape"
    elif found.records != manifest.records:
        why = f"it had {manifest.records:,} records, and there are {found.records:,}: compaction, or deleted records"
    elif found.outcomes != manifest.outcomes:
        why = "other records are accepted: the event's rules, its defaults or the topic's lateness have changed since"
    else:
        why = "fields are read into other values: the event's defaults have changed since"
    return RunError(
        "replay-differs",
        f"a replay of the same ranges of {manifest.topic} gives another content",
        why=why,
        state=f"the files are as they were; their digest is {manifest.digest}, and now it is {found.digest}",
        fix=f"leftfold replay {manifest.topic} --out DIR makes a new one as things are declared now",
    )
