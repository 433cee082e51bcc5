"""One build of a view while it runs: its stores, and how far each of them is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.sinks import Lake
from leftfold.fold.definition import Definition
from leftfold.kafka import changelog as log_writer
from leftfold.kafka.admin import Admin
from leftfold.kafka.changelog import ChangelogTopic
from leftfold.kafka.definition_log import DefinitionLog
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.offsets import Offsets
from leftfold.run.positions import Positions
from leftfold.run.progress import Progress
from leftfold.run.receipt_store import DETAILS_KEPT, ReceiptStore
from leftfold.run.receipts import Receipt
from leftfold.run.watermark import Watermark
from leftfold.settings import group_id
from leftfold.spark.checkpoint import ReceiptsBookmark
from leftfold.spark.cutover import Past
from leftfold.spark.query import Job
from leftfold.spark.sinks.changelog import write_changelog
from leftfold.spark.sinks.online import Output, Target, Written, cached, write_online
from leftfold.spark.source import Source
from leftfold.spark.views.tiles import TilesJob
from leftfold.store.layout import PASSED, WRITTEN, Build, LedgerRow, definition_document, row_ttl_s
from leftfold.store.writer import BuildWriter

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession


@dataclass(frozen=True)
class Destination:
    """The places to which a view writes."""

    online_url: str
    namespace: str
    checkpoints: str
    log_file: str
    receipts: ReceiptLog
    definitions: DefinitionLog
    changelog: str | None  # the topic, as the cluster names it, if the view has one
    redrive: str | None  # the topic of re-driven records; None for a view of several topics or a compacted one
    publish: Callable[[], None]  # writes what else the store holds for readers
    staged: bool = False  # the build waits for `promote`
    take_over: bool = True  # a changed definition takes readers over once it has caught up; else it is staged


@dataclass(frozen=True)
class ViewContext:
    """The parts of a running view that stay the same for as long as it runs."""

    declared: DeclaredView
    place: Destination
    admin: Admin
    watermark: Watermark
    progress: Progress


class RunningBuild:
    """A build from one start of its query to the next. Its query starts again with a new object.

    `topic_ids` were asked for before the query started. To open a build compares nothing and writes nothing.
    """

    def __init__(
        self,
        view: ViewContext,
        source: Source,
        job: Job,
        positions: Positions,
        *,
        session: SparkSession,
        checkpoint: str,
        checkpoint_id: str,
        topic_ids: dict[str, str],
    ) -> None:
        build = Build(job.definition, checkpoint_id)
        self.id = build.id
        self.declared = view.declared
        self.place = view.place
        self.admin = view.admin
        self.watermark = view.watermark
        self.progress = view.progress
        self.source = source
        self.job = job
        self.positions = positions
        self.session = session
        self.topic_ids = topic_ids
        # The stores. `stores` has the identity of each that a receipt names.
        self.writer = BuildWriter(self.place.online_url, self.place.namespace, build)
        definition = job.definition
        self.target = Target(
            self.place.online_url,
            self.writer.at,
            row_ttl_s(definition),
            definition if isinstance(definition, Definition) else None,
        )
        self.receipts = ReceiptStore(
            self.place.receipts,
            f"{self.name}/{self.id}",
            bookmark=ReceiptsBookmark(session, checkpoint),
            kept=None if any(isinstance(sink, Lake) for sink in self.declared.sinks) else DETAILS_KEPT,
        )
        self.changelog, self.stores = self._open_changelog()
        # How far they are.
        self.begins: Offsets = {}  # where the build began
        self.past: Past | None = None  # the part of the build that a scan of history made
        self.passed = False  # the stream has read past the end of that scan
        self.receipt: Receipt | None = None  # the receipt of the last written batch
        self.ends: tuple[int, Offsets] | None = None  # the last batch written since the start, and where it ends
        self.ledger: dict[str, LedgerRow] = {}  # the store's ledger at batch `applied`
        self.applied = -1
        self.redriven = 0  # records re-driven before this offset have taken effect
        self.beyond = 0  # so many of them changed nothing: the log no longer has all of their tiles
        self.log_again = -1  # a batch to write to the changelog even if its mark is there
        self._defined = False  # this object has written the definition

    def _open_changelog(self) -> tuple[ChangelogTopic | None, dict[str, str]]:
        topic = self.place.changelog
        if topic is None:
            return None, {}
        partitions = self.admin.partitions_of(topic)
        scope = f"{group_id(self.place.namespace, self.name)}.{self.id}"
        changelog = ChangelogTopic(self.source.kafka, topic, scope, self.id, min(log_writer.WRITERS, partitions))
        # Compaction does not move a first offset. If one has moved, somebody deleted records.
        firsts = sum(self.admin.start_offsets(topic, partitions).values())
        return changelog, {"changelog": f"{self.admin.topic_ids([topic])[topic]}@{firsts}"}

    def announce(self) -> None:
        """Keep the definition for ever, then publish the manifest. Comes before the rows of the first batch.

        A process that dies in between leaves a definition of a build that nobody reads. The next start writes both
        again.
        """
        if not self._defined:
            definition = self.job.definition
            self.place.definitions.keep(self.name, definition.fingerprint, definition_document(definition))
            self._defined = True
        self.writer.announce()

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def all_tiles(self) -> Job:
        """The job for all of the build, also for tiles that a scan of history made."""
        return replace(self.job, only=None) if isinstance(self.job, TilesJob) else self.job

    @property
    def history(self) -> str | None:
        """The state of the scan of history, as the store knows it: written, or passed. None without a scan."""
        return None if self.past is None else PASSED if self.passed else WRITTEN

    def reached(self, batch: int) -> Offsets:
        """The offsets that the build has reached at the end of a batch.

        The end of a scan of history counts, even if the stream is not that far yet.
        """
        offsets = self.positions.after(batch)
        return self.past.frozen.reached(offsets) if self.past else offsets

    def rewrite(
        self, packed: DataFrame, number: int, *, online: bool = True, changelog: bool = True, repairs: bool = False
    ) -> Written | None:
        """Write recomputed rows under batch `number`, even if the changelog has this batch already.

        A repair `repairs`: these rows have all tiles that a read reaches. Return None if the online store is left out.
        """
        both = online and changelog and self.changelog is not None
        output = cached(packed) if both else Output(packed)
        written = None
        try:
            if online:
                written = write_online(output, self.target, repairs=repairs)
            if changelog and self.changelog is not None:
                write_changelog(output.packed, self.changelog, number, repair=True)
        finally:
            output.release()
        return written
