"""The intake of one topic: what is late or rejected is written down once, whoever reads the topic.

It keeps no state and no receipts: a record's fate depends on the record alone, and is written under its position, so
a batch that runs again changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run import reconcile
from leftfold.run.running import BatchRefusedError, RunningReader
from leftfold.spark.checkpoint import batch_offsets, standing
from leftfold.spark.intake import IntakeTopics, intake_stream, write_intake
from leftfold.spark.query import Query, start_batches
from leftfold.spark.source import Source
from leftfold.spec.topic import Topic

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

# Nobody waits for a reject within seconds, and a batch that finds none costs the views a moment of the cores.
_EVERY_S = 10


def intake_name(topic: str) -> str:
    """As `status`, `run --fresh` and the checkpoint's directory say it; no view has a dot in its name."""
    return f"{topic}.intake"


class RunningIntake(RunningReader):
    kind = "intake"

    def __init__(
        self,
        topic: Topic[Any],
        source: Source,
        names: IntakeTopics,
        *,
        checkpoints: str,
        log_file: str,
        admin: Admin,
        registry: SchemaRegistry,
    ) -> None:
        super().__init__(intake_name(topic.name), source, registry, log_file)
        self._topic = topic
        self._names = names
        self._admin = admin
        self.checkpoint = f"{checkpoints}/{self.name}"

    def prepare(self, session: SparkSession) -> None:
        """Nothing of it is a person's own code."""

    def _begin(self) -> Query:
        self._check_history()
        return start_batches(
            intake_stream(self._session, self._source, self._topic, self._names),
            name=self.name,
            checkpoint=self.checkpoint,
            on_batch=self._on_batch,
            every_s=_EVERY_S,
            until_caught_up=self._until_caught_up,
        )

    def _on_batch(self, batch: DataFrame, _: int) -> None:
        if self._stopping.is_set():
            raise BatchRefusedError("stopping before this batch; it runs again at the next start")
        write_intake(batch, self._source.kafka)
        self._went_well()

    def _check_history(self) -> None:
        found = standing(self._session, self.checkpoint)
        if found is None or found.planned < 0 or self._topic.compacted:
            return
        (topic,), (partitions,) = self._source.topics, self._source.partitions
        position = batch_offsets(self._session, self.checkpoint, found.committed)
        reconcile.check_history(self.name, position, {topic: self._admin.start_offsets(topic, partitions)})
