"""The records that Spark makes a training set from: the topics of some views, each read and decoded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.companions import redrive_topic
from leftfold.declare.topic import Topic
from leftfold.errors import RunError
from leftfold.run.deployment import Deployment, TopicPlace
from leftfold.run.sources import learned
from leftfold.spark.history.records import head_is_gone, look_at_history, over_history, read_history, starts_since
from leftfold.spark.history.redriven import redriven, with_redriven
from leftfold.spark.source import Source
from leftfold.spark.training.assemble import cached, marked
from leftfold.training.position import (
    FrozenPosition,
    find_position,
    gone_from_log,
    read_by,
    refuse_another,
    schemas_of,
)

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession


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
        for topic, readers, fields in read_by(views):
            source = self.deployment.source([topic], fields, who=readers[0].name, at=readers[0].source)
            place = TopicPlace(topic, source.topics[0], source.partitions[0], dict(source.writer_schemas))
            if frozen is None:
                starts = partial(self._starts, source)
                position, lacking = find_position(place, readers, span, self.deployment, starts)
            else:
                position, lacking = frozen[topic.name], ()
                used = schemas_of(self.deployment, position, source.writer_schemas)
                rejected = frozenset(position.rejected)
                source = replace(source, writer_schemas=used, rejected_ids=rejected, unknown="reject")
                refuse_another(self.deployment, position)
                # Archive and log together may still hold what the log has deleted; the read finds out.
                if not any(source.archives):
                    gone = gone_from_log(self.deployment, position, place.partitions)
                    if gone is not None:
                        raise gone
            self.topics[topic.name] = self._decoded(topic, source, position, lacking)

    def release(self) -> None:
        for topic in self.topics.values():
            topic.records.unpersist()
        self.topics = {}

    def _starts(self, source: Source, since: int | None) -> tuple[dict[int, int], list[int]]:
        starts, lacking = starts_since(self.session, source, self.deployment.engines.admin, since)
        return starts[source.topics[0]], [int(place.rpartition("/")[2]) for place in lacking]

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
