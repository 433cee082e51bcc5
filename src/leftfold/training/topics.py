"""The part of the topics that a training set is made from: found by time, frozen as offsets, read and decoded once.

Its position consists of offsets, schema ids, and the offset up to which re-driven records count. The same position
gives the same records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.companions import redrive_topic
from leftfold.declare.free import View
from leftfold.declare.topic import Topic
from leftfold.errors import RunError
from leftfold.fold.reach import CLOCK_SLACK, value_reach
from leftfold.offsets import Ranges
from leftfold.run.deployment import Deployment
from leftfold.run.sources import learned
from leftfold.spark.history.records import head_is_gone, look_at_history, over_history, read_history, starts_since
from leftfold.spark.history.redriven import redriven, with_redriven
from leftfold.spark.source import Source
from leftfold.spark.training.assemble import cached, marked

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession


@dataclass(frozen=True)
class FrozenPosition:
    """The part of one topic that was read. The topic has its name in the cluster."""

    topic: str
    id: str  # a topic that is deleted and created again keeps its name, but gets another id
    starts: dict[int, int]
    ends: dict[int, int]
    redriven: int  # re-driven records before this offset (of the re-drive topic) replace their originals
    schemas: tuple[int, ...]  # ids of the writer schemas
    rejected: tuple[int, ...]  # schema ids in records that the registry never gave out

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "id": self.id,
            "ranges": Ranges.between({self.topic: self.starts}, {self.topic: self.ends}).as_json(),
            "starts": {str(p): at for p, at in self.starts.items()},
            "ends": {str(p): at for p, at in self.ends.items()},
            "redriven": self.redriven,
            "schemas": list(self.schemas),
            "rejected": list(self.rejected),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FrozenPosition:
        return cls(
            document["topic"],
            document["id"],
            {int(p): at for p, at in document["starts"].items()},
            {int(p): at for p, at in document["ends"].items()},
            document["redriven"],
            tuple(document["schemas"]),
            tuple(document["rejected"]),
        )


@dataclass(frozen=True)
class TopicPast:
    position: FrozenPosition
    records: DataFrame  # rows of `read_history` with a column `original`: False for a re-driven record
    lacking: tuple[int, ...]  # partitions whose oldest records are gone, and might have been needed


@dataclass
class PastReader:
    """The topics of some views, each read once. `release` frees what Spark keeps of them."""

    deployment: Deployment
    session: SparkSession
    topics: dict[str, TopicPast] = field(default_factory=dict)  # by declared name

    def read(
        self,
        views: Mapping[str, DeclaredView],
        span: tuple[int, int],
        frozen: Mapping[str, FrozenPosition] | None = None,
    ) -> None:
        """Read from each topic what these views can need for the moments in `span` (µs).

        With `frozen`, read exactly those positions instead.
        """
        wanted: dict[str, tuple[Topic[Any], list[DeclaredView]]] = {}
        for view in views.values():
            for topic in view.reading.topics:
                wanted.setdefault(topic.name, (topic, []))[1].append(view)
        for topic, readers in wanted.values():
            # All views of one event decode the same fields. So the topics that one view reads together have one shape.
            fields = frozenset().union(*(v.fields for v in views.values() if v.reading.topics[0].event is topic.event))
            source = self.deployment.source([topic], fields, who=readers[0].name, at=readers[0].source)
            again = None if frozen is None else frozen[topic.name]
            position, lacking = (again, ()) if again else self._position(topic, source, readers, span)
            if again:
                source = self._as_before(source, again)
                self._refuse_gone(source, again)
            self.topics[topic.name] = self._decoded(topic, source, position, lacking)

    def release(self) -> None:
        for topic in self.topics.values():
            topic.records.unpersist()
        self.topics = {}

    def _position(
        self, topic: Topic[Any], source: Source, readers: list[DeclaredView], span: tuple[int, int]
    ) -> tuple[FrozenPosition, tuple[int, ...]]:
        """Return the position to read, and the partitions whose needed head is gone.

        It reaches from the first record that a window can need to the last whose transaction has ended by now. If the
        log is in time order and all views have windows, it ends after the last record that a label can see.
        """
        admin, (name,), (partitions,) = self.deployment.engines.admin, source.topics, source.partitions
        ends = admin.stable_offsets(name, partitions)
        definitions = [v.definition for v in readers]
        reaches = [None if isinstance(d, View) else value_reach(d) for d in definitions]
        known = [reach for reach in reaches if reach is not None]
        since = None
        # A copy gets records long after they were first logged, so only a log with the brokers' own times has an end.
        if topic.log_time == "broker" and not topic.compacted and len(known) == len(reaches):
            since = span[0] - max(known) - CLOCK_SLACK
            beyond = span[1] + topic.lateness + CLOCK_SLACK
            for partition, at in admin.offsets_at(name, partitions, beyond).items():
                ends[partition] = ends[partition] if at is None else min(at, ends[partition])
        starts_by_topic, lacking = starts_since(self.session, source, admin, since)
        starts = {p: min(at, ends[p]) for p, at in starts_by_topic[name].items()}
        gone = () if topic.compacted else tuple(int(place.rpartition("/")[2]) for place in lacking)
        until = 0
        if not topic.compacted:
            redrives = self.deployment.profile.topic_name(redrive_topic(topic.name))
            until = admin.stable_offsets(redrives, 1)[0] if redrives in admin.partitions([redrives]) else 0
        topic_id = admin.topic_ids([name])[name]
        return FrozenPosition(name, topic_id, starts, ends, until, tuple(sorted(source.writer_schemas)), ()), gone

    def _as_before(self, source: Source, frozen: FrozenPosition) -> Source:
        known = dict(source.writer_schemas)
        for schema_id in frozen.schemas:
            if schema_id not in known and (schema := self.deployment.engines.registry.schema(schema_id)) is not None:
                known[schema_id] = schema
        missing = [schema_id for schema_id in frozen.schemas if schema_id not in known]
        if missing:
            raise RunError(
                "schema-gone",
                f"the registry no longer has schema {missing[0]}, with which records of {frozen.topic} were read",
                why="without it the same records cannot be read again",
                fix="bring back the registry's schemas; or make the training set anew, without --again",
            )
        used = {schema_id: known[schema_id] for schema_id in frozen.schemas}
        return replace(source, writer_schemas=used, rejected_ids=frozenset(frozen.rejected), unknown="reject")

    def _refuse_gone(self, source: Source, frozen: FrozenPosition) -> None:
        topic_id = self.deployment.engines.admin.topic_ids([frozen.topic]).get(frozen.topic)
        if topic_id != frozen.id:
            raise RunError(
                "history-gone",
                f"topic {frozen.topic} is not the one that this rests on",
                why=f"it was deleted and made again since: its id was {frozen.id}, and is {topic_id} now",
                fix="make the training set anew from what the topic has now",
            )
        if any(source.archives):
            return  # archive and log together may still hold it; the read finds out
        firsts = self.deployment.engines.admin.start_offsets(frozen.topic, source.partitions[0])
        gaps = {p: (at, min(firsts[p], frozen.ends[p])) for p, at in frozen.starts.items() if at < firsts.get(p, 0)}
        gaps = {p: (a, b) for p, (a, b) in gaps.items() if a < b}
        if gaps:
            ranges = ", ".join(f"{frozen.topic}/{p}: {a} to {b - 1} ({b - a})" for p, (a, b) in sorted(gaps.items()))
            raise RunError(
                "history-gone",
                f"the log no longer has all that this rests on: {ranges}",
                why="retention or a person deleted the oldest records of these partitions",
                fix="make the training set anew from what the log still has; archive=True keeps what retention deletes",
            )

    def _looked_at(self, source: Source, position: FrozenPosition) -> Source:
        starts, ends = {position.topic: position.starts}, {position.topic: position.ends}
        return over_history(lambda: look_at_history(self.session, source, starts, ends))

    def _decoded(
        self, topic: Topic[Any], source: Source, position: FrozenPosition, lacking: tuple[int, ...]
    ) -> TopicPast:
        """Read and decode the records of the position, and keep them in Spark.

        The read is repeated with each schema that it turns out to need, and, for a topic with an archive, when the log
        deletes its oldest records under the read.
        """
        starts, ends = {position.topic: position.starts}, {position.topic: position.ends}
        while True:
            records = marked(read_history(self.session, source, starts, ends), original=True)
            if position.redriven:
                redrives = self.deployment.profile.topic_name(redrive_topic(topic.name))
                again = redriven(self.session, source, redrives, {0: position.redriven})
                records = with_redriven(records, marked(again, original=False), at_most=position.redriven)
            try:
                stored = cached(records)
            except RunError as error:
                failure = str(error.__cause__)
                wiser = learned(source, self.deployment.engines.registry, failure)
                if wiser is None and not (any(source.archives) and head_is_gone(failure)):
                    raise
                source = self._looked_at(wiser, position) if wiser else source
                continue
            ids = tuple(sorted(source.writer_schemas)), tuple(sorted(source.rejected_ids))
            return TopicPast(replace(position, schemas=ids[0], rejected=ids[1]), stored, lacking)
