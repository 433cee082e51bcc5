"""The intake of one topic: it writes late and rejected records once, for all readers of the topic, and the archive.

The intake keeps no state and no receipts. A record's outcome depends on the record alone and is written under its
position (partition and offset), so the write is idempotent: a batch that runs again changes nothing.

With an archive, each batch writes the rejects first and the archive table second. Everything before the table's end has
therefore been taken in. An intake whose checkpoint does not fit the table continues at the table's end. A process that
dies between the two writes leaves rejects of a batch that is not archived yet. That batch runs again and writes the
same rejects under the same positions.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leftfold import clock
from leftfold.declare.topic import Topic
from leftfold.errors import LeftfoldError, RunError
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry
from leftfold.offsets import Ranges
from leftfold.run import reconcile
from leftfold.run.running import BatchRefusedError, RunningReader
from leftfold.spark.checkpoint import batch_offsets, set_aside, standing
from leftfold.spark.history import archive
from leftfold.spark.history.records import check_topic
from leftfold.spark.query import Query, start_batches
from leftfold.spark.sinks.delta import Ends, fits
from leftfold.spark.sinks.intake import IntakeTopics, Keyed, intake_stream, refused_of, write_intake
from leftfold.spark.source import Source, kafka_stream

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

# Nobody needs a reject within seconds, and even a batch without rejects takes CPU time from the views.
_EVERY_S = 10
# A commit to Delta takes over a second and leaves a file. The log keeps the same records for much longer than this.
_ARCHIVE_EVERY_S = 30
# The search for a date to compact reads the table's list of files, which is too slow for every batch.
_COMPACT_EVERY_S = 3_600.0
# The points of a batch at which a test can stop it, in their order, for a topic with an archive.
STEPS = ("begun", "rejects", "archive", "compacted")


def intake_name(topic: str) -> str:
    """The intake's name in `status`, in `run --fresh` and in its checkpoint's directory.

    No view can have this name (`declare/names.py`).
    """
    return f"{topic}.intake"


class RunningIntake(RunningReader):
    kind = "intake"

    def __init__(
        self,
        topic: Topic[Any],
        source: Source,
        names: IntakeTopics,
        *,
        keyed: Keyed,
        checkpoints: str,
        log_file: str,
        admin: Admin,
        registry: SchemaRegistry,
    ) -> None:
        super().__init__(intake_name(topic.name), source, registry, log_file)
        self.at_step: Callable[[str, int], None] = lambda step, batch: None
        self._topic = topic
        self._names = names
        self._keyed = keyed
        self._admin = admin
        self._table = next(iter(source.archives), None)
        self._topic_id = ""
        self._writer = uuid.uuid4().hex
        self._compacted: float | None = None
        self.checkpoint = f"{checkpoints}/{self.name}"

    def prepare(self, session: SparkSession) -> None:
        """Do nothing: an intake contains no user code that would have to be compiled."""

    def _begin(self) -> Query:
        if self._table is not None:
            every_s = self._every(_ARCHIVE_EVERY_S)
            return self._started(self._archived(self._table, every_s), self._on_records, every_s)
        self._check_history()
        every_s = self._every(_EVERY_S)
        refused = intake_stream(self._session, self._source, self._topic, self._names, self._keyed, every_s=every_s)
        return self._started(refused, self._on_batch, every_s)

    def _every(self, seconds: int) -> int:
        """The interval between batches. A query that ends when it has caught up makes one after the other."""
        return 0 if self._until_caught_up else seconds

    def _started(self, frame: DataFrame, on_batch: Callable[[DataFrame, int], None], every_s: int) -> Query:
        return start_batches(
            frame,
            name=self.name,
            checkpoint=self.checkpoint,
            on_batch=on_batch,
            every_s=every_s,
            until_caught_up=self._until_caught_up,
        )

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        self._go_on()
        with self._refusing():
            self._look_at(number)
            write_intake(batch, self._source.kafka)
        self._went_well()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except LeftfoldError as refusal:
            self._refusal = refusal
            raise BatchRefusedError(refusal.code) from refusal

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise BatchRefusedError("stopping before this batch; it runs again at the next start")

    def _look_at(self, number: int) -> None:
        if self._as_usual:
            return
        starts, ends = (batch_offsets(self._session, self.checkpoint, n) for n in (number - 1, number))
        self._look_at_batch(starts, ends)

    def _check_history(self) -> None:
        state = standing(self._session, self.checkpoint)
        if state is None or state.planned < 0 or self._topic.compacted:
            return
        (topic,), (partitions,) = self._source.topics, self._source.partitions
        position = batch_offsets(self._session, self.checkpoint, state.committed)
        reconcile.check_history(self.name, position, {topic: self._admin.start_offsets(topic, partitions)})

    # With an archive -------------------------------------------------------------------------------------------

    def _archived(self, table: str, every_s: int) -> DataFrame:
        """The stream of all records from the table's end on, or from the start of the log if the table is new."""
        (topic,), (partitions,) = self._source.topics, self._source.partitions
        archive.make(self._session, table)
        position = archive.position(self._session, table)
        self._topic_id = self._admin.topic_ids([topic])[topic]
        check_topic(topic, position.topic_id, self._topic_id)
        check_archive(self._topic.name, topic, position.ends, self._admin, partitions)
        if not self._fits(topic, position.ends):
            set_aside(self._session, self.checkpoint)
        starts = {str(p): position.ends.get(p, -2) for p in range(partitions)}  # -2 means "earliest" to Kafka
        options = {"startingOffsets": json.dumps({topic: starts}), "includeHeaders": "true"}
        return kafka_stream(self._session, self._source, options, every_s)

    def _fits(self, topic: str, ends: Ends) -> bool:
        """Return whether the checkpoint continues where the table ends.

        If the table is empty, only a checkpoint without batches fits. A checkpoint from before the archive existed does
        not fit: the archive starts where the log does.
        """
        if not ends:
            state = standing(self._session, self.checkpoint)
            return state is None or state.planned < 0
        return fits(self._session, self.checkpoint, topic, ends)

    def _on_records(self, batch: DataFrame, number: int) -> None:
        self._go_on()
        with self._refusing():
            self._take_in(batch, number)
        self._went_well()

    def _take_in(self, batch: DataFrame, number: int) -> None:
        assert self._table is not None
        (topic,) = self._source.topics
        self.at_step("begun", number)
        self._look_at(number)
        refused = refused_of(batch, self._source, self._topic, self._names, self._keyed)
        write_intake(refused, self._source.kafka)
        self.at_step("rejects", number)
        starts = batch_offsets(self._session, self.checkpoint, number - 1).get(topic, {})
        ends = batch_offsets(self._session, self.checkpoint, number).get(topic, {})
        to = archive.ArchivePosition(-1, self._topic_id, ends, {}, self._writer)
        archive.append_batch(
            self._session, batch, self._table, topic=self._topic.name, to=to, starts=starts, first=number == 0
        )
        self.at_step("archive", number)
        if self._compacted is None or clock.monotonic() - self._compacted >= _COMPACT_EVERY_S:
            self._compacted = clock.monotonic()
            self.progress.note = archive.compact_closed(self._session, self._table, clock.now())
            self.at_step("compacted", number)


def check_archive(topic: str, name: str, ends: Ends, admin: Admin, partitions: int) -> None:
    """Refuse to continue unless the log continues where the table ends. `name` is the topic's name in the cluster."""
    if not ends:
        return  # nothing is archived yet: the archive starts where the log does
    firsts, logged = admin.start_offsets(name, partitions), admin.end_offsets(name, partitions)
    beyond = {p: end for p, end in ends.items() if end > logged.get(p, 0)}
    if beyond:
        losses = ", ".join(f"{p} ends at {logged.get(p, 0):,}, archived up to {end:,}" for p, end in beyond.items())
        raise RunError(
            "archive-ahead",
            f"the archive of {topic} holds more than its log: partition {losses}",
            why="the log lost records that were acknowledged: brokers lost their disks, or a replica behind the others "
            "became the leader; new records will have the offsets of those",
            state="nothing was archived; the table holds what was lost",
            fix="declare a new topic and continue there; the archive keeps the history of the old one",
        )
    if gap := gap_of(name, ends, firsts):
        spans = " ".join(f"{r.partition}:{r.start}-{r.end - 1}" for r in gap)
        raise RunError(
            "archive-gap",
            f"{len(gap):,} offsets of {topic} were deleted before they were archived: {', '.join(map(str, gap))}",
            why="the topic's retention, or somebody, deleted records while its intake was behind or did not run",
            state="nothing was skipped: the table holds every record up to its end",
            fix=f"leftfold archive skip {topic} {spans} continues after them, and history always names the gap",
        )


def gap_of(name: str, ends: Ends, firsts: Ends) -> Ranges:
    """The offsets between the end of the table and the first offset of the log."""
    return Ranges.between({name: {p: ends.get(p, 0) for p in firsts}}, {name: firsts})
