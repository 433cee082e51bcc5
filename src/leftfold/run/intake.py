"""The intake of one topic: what is late or rejected is written down once, whoever reads the topic; and its archive.

It keeps no state and no receipts: a record's fate depends on the record alone, and is written under its position, so
a batch that runs again changes nothing.

With an archive each batch goes to the rejects first and to the table after: the table's end then says that all before
it was taken in, and is where an intake without a fitting checkpoint goes on. A death between the two leaves rejects
of a batch that is not archived yet; it runs again, and writes the same ones under the same positions.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leftfold import clock
from leftfold.errors import LeftfoldError, RunError
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry
from leftfold.ranges import Ranges
from leftfold.run import reconcile
from leftfold.run.running import BatchRefusedError, RunningReader
from leftfold.spark import archive
from leftfold.spark.checkpoint import batch_offsets, set_aside, standing
from leftfold.spark.fed import Ends, fits
from leftfold.spark.history import check_topic
from leftfold.spark.intake import IntakeTopics, intake_stream, refused_of, write_intake
from leftfold.spark.query import Query, start_batches
from leftfold.spark.source import Source, kafka_stream
from leftfold.spec.topic import Topic

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

# Nobody waits for a reject within seconds, and a batch that finds none costs the views a moment of the cores.
_EVERY_S = 10
# A commit to Delta costs over a second, and leaves a file: what is archived is in the log, too, for much longer.
_ARCHIVE_EVERY_S = 30
# Looking for a date to compact reads the table's list of files.
_COMPACT_EVERY_S = 3_600.0
# The moments of a batch that a test can stop at, in their order, for a topic with an archive.
STEPS = ("begun", "rejects", "archive", "compacted")


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
        self.at_step: Callable[[str, int], None] = lambda step, batch: None
        self._topic = topic
        self._names = names
        self._admin = admin
        self._table = next(iter(source.archives), None)
        self._topic_id = ""
        self._writer = uuid.uuid4().hex
        self._compacted: float | None = None
        self.checkpoint = f"{checkpoints}/{self.name}"

    def prepare(self, session: SparkSession) -> None:
        """Nothing of it is a person's own code."""

    def _begin(self) -> Query:
        if self._table is not None:
            return self._started(self._archived(self._table), self._on_records, _ARCHIVE_EVERY_S)
        self._check_history()
        refused = intake_stream(self._session, self._source, self._topic, self._names)
        return self._started(refused, self._on_batch, _EVERY_S)

    def _started(self, frame: DataFrame, on_batch: Callable[[DataFrame, int], None], every_s: int) -> Query:
        return start_batches(
            frame,
            name=self.name,
            checkpoint=self.checkpoint,
            on_batch=on_batch,
            every_s=every_s,
            until_caught_up=self._until_caught_up,
        )

    def _on_batch(self, batch: DataFrame, _: int) -> None:
        self._go_on()
        write_intake(batch, self._source.kafka)
        self._went_well()

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise BatchRefusedError("stopping before this batch; it runs again at the next start")

    def _check_history(self) -> None:
        found = standing(self._session, self.checkpoint)
        if found is None or found.planned < 0 or self._topic.compacted:
            return
        (topic,), (partitions,) = self._source.topics, self._source.partitions
        position = batch_offsets(self._session, self.checkpoint, found.committed)
        reconcile.check_history(self.name, position, {topic: self._admin.start_offsets(topic, partitions)})

    # With an archive -------------------------------------------------------------------------------------------

    def _archived(self, table: str) -> DataFrame:
        """Every record, from where the table ends; of a new table from where the log starts."""
        (topic,), (partitions,) = self._source.topics, self._source.partitions
        archive.make(self._session, table)
        found = archive.position(self._session, table)
        self._topic_id = self._admin.topic_ids([topic])[topic]
        check_topic(topic, found.topic_id, self._topic_id)
        check_archive(self._topic.name, topic, found.ends, self._admin, partitions)
        if not self._fits(topic, found.ends):
            set_aside(self._session, self.checkpoint)
        starts = {str(p): found.ends.get(p, -2) for p in range(partitions)}  # -2: Kafka's word for its first record
        options = {"startingOffsets": json.dumps({topic: starts}), "includeHeaders": "true"}
        return kafka_stream(self._session, self._source, options)

    def _fits(self, topic: str, ends: Ends) -> bool:
        """A checkpoint from before there was an archive does not: the archive starts where the log does."""
        if not ends:
            found = standing(self._session, self.checkpoint)
            return found is None or found.planned < 0
        return fits(self._session, self.checkpoint, topic, ends)

    def _on_records(self, batch: DataFrame, number: int) -> None:
        self._go_on()
        try:
            self._take_in(batch, number)
        except LeftfoldError as refusal:
            self._refusal = refusal
            raise BatchRefusedError(refusal.code) from refusal
        self._went_well()

    def _take_in(self, batch: DataFrame, number: int) -> None:
        assert self._table is not None
        (topic,) = self._source.topics
        self.at_step("begun", number)
        write_intake(refused_of(batch, self._source, self._topic, self._names), self._source.kafka)
        self.at_step("rejects", number)
        starts = batch_offsets(self._session, self.checkpoint, number - 1).get(topic, {})
        ends = batch_offsets(self._session, self.checkpoint, number).get(topic, {})
        to = archive.Position(-1, self._topic_id, ends, {}, self._writer)
        archive.append_batch(
            self._session, batch, self._table, topic=self._topic.name, to=to, starts=starts, first=number == 0
        )
        self.at_step("archive", number)
        if self._compacted is None or clock.monotonic() - self._compacted >= _COMPACT_EVERY_S:
            self._compacted = clock.monotonic()
            self.progress.note = archive.compact_closed(self._session, self._table, clock.now())
            self.at_step("compacted", number)


def check_archive(topic: str, name: str, ends: Ends, admin: Admin, partitions: int) -> None:
    """The log must go on where the table ends. `name` is the cluster's."""
    if not ends:
        return  # nothing was promised yet: it starts where the log does
    firsts, logged = admin.start_offsets(name, partitions), admin.end_offsets(name, partitions)
    beyond = {p: end for p, end in ends.items() if end > logged.get(p, 0)}
    if beyond:
        told = ", ".join(f"{p} ends at {logged.get(p, 0):,}, archived up to {end:,}" for p, end in beyond.items())
        raise RunError(
            "archive-ahead",
            f"the archive of {topic} holds more than its log: partition {told}",
            why="the log lost records that were acknowledged: brokers lost their disks, or a replica behind the others "
            "became the leader; new records will have the offsets of those",
            state="nothing was archived; the table holds what was lost",
            fix="declare a new topic and go on there; history of the old one stays in its archive",
        )
    if gap := gap_of(name, ends, firsts):
        spans = " ".join(f"{r.partition}:{r.start}-{r.end - 1}" for r in gap)
        raise RunError(
            "archive-gap",
            f"{len(gap):,} offsets of {topic} were deleted before they were archived: {', '.join(map(str, gap))}",
            why="the topic's retention, or somebody, deleted records while its intake was behind or did not run",
            state="nothing was skipped: the table holds every record up to its end",
            fix=f"leftfold archive skip {topic} {spans} goes on after them, and history names the gap for ever",
        )


def gap_of(name: str, ends: Ends, firsts: Ends) -> Ranges:
    """What lies between the end of the table and the first offset of the log."""
    return Ranges.between({name: {p: ends.get(p, 0) for p in firsts}}, {name: firsts})
