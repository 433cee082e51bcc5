"""Checks before a build continues: its checkpoint, its receipts and its topics must agree.

A store that is merely behind is repaired. Any other disagreement is refused with an error that names the way out,
because to continue would silently give wrong results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from leftfold.errors import RunError
from leftfold.fold.durations import text
from leftfold.fold.reach import needed_since, store_reach
from leftfold.kafka.admin import Admin
from leftfold.offsets import Offsets
from leftfold.run.receipts import Receipt
from leftfold.spark.checkpoint import CheckpointState
from leftfold.spark.history.records import starts_since
from leftfold.spark.query import Job
from leftfold.spark.source import Source
from leftfold.store.layout import LedgerRow
from leftfold.store.writer import OLDER_CHECKPOINT, newer_checkpoint

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

_NO_RECEIPTS = (
    "receipts were deleted, so nobody can show any more what became of the records in between; the view has to be "
    "built again"
)


def check_topics(view: str, receipt: Receipt | None, ids: Mapping[str, str]) -> None:
    """Refuse a topic that was deleted and recreated: it has other records under the offsets that were read."""
    for topic, then in receipt.topics.items() if receipt else ():
        if ids.get(topic) != then:
            raise RunError(
                "topic-recreated",
                f"{view} has read another topic under the name {topic}",
                why=f"its id was {then}, and is {ids.get(topic, 'nothing: there is none')}; the offsets that were read "
                "are those of records that are gone",
                state="nothing was read or written; readers see the build as it is",
                fix=f"leftfold run --fresh {view} reads the new topic from its start into a new build",
            )


def check_receipts(view: str, standing: CheckpointState, receipts: Sequence[Receipt], planned: Offsets | None) -> None:
    """Refuse receipts that do not fit the checkpoint, or that have a gap.

    `planned` is where the batch of the newest receipt ends according to the checkpoint; None if the checkpoint does not
    know that batch.
    """
    fix = f"leftfold run --fresh {view} reads the log again from its start into a new build"
    newest = receipts[-1].last if receipts else -1
    if newest < standing.committed:
        raise RunError(
            "receipts-missing",
            f"{view} has receipts up to batch {newest}, and its checkpoint has committed {standing.committed}",
            why=_NO_RECEIPTS,
            fix=fix,
        )
    if newest > standing.planned or (planned is not None and planned != receipts[-1].ends):
        raise RunError(
            "checkpoint-restored",
            f"{view}: the checkpoint ends at batch {standing.planned}, and receipts show batches up to {newest}",
            why=OLDER_CHECKPOINT,
            state="nothing was read or written; readers see the build as it is",
            fix=newer_checkpoint(view),
        )
    reached, ends = -1, Offsets()
    for receipt in receipts:
        starts = {t: {p: start for p, (start, _) in parts.items()} for t, parts in receipt.ranges.items()}
        moved = any(starts.get(t, {}).get(p) != end for t, parts in ends.items() for p, end in parts.items())
        if moved or receipt.first != reached + 1:
            raise RunError(
                "receipts-missing",
                f"{view} has receipts up to batch {reached} and from batch {receipt.first}",
                why=_NO_RECEIPTS,
                fix=fix,
            )
        reached, ends = receipt.last, receipt.ends


def anchors(ledger: Iterable[LedgerRow]) -> dict[tuple[str, int], tuple[int, int]]:
    """The newest record that was read, as its offset and hash, by declared topic and partition."""
    newest: dict[tuple[str, int], tuple[int, int]] = {}
    for row in ledger:
        place = (row.topic, row.partition)
        if row.newest_hash is not None and row.newest_offset > newest.get(place, (-1, 0))[0]:
            newest[place] = (row.newest_offset, row.newest_hash)
    return newest


def check_log(
    view: str, topic: str, read: Mapping[int, tuple[int, int]], ends: Mapping[int, int], hashes: Mapping[int, int]
) -> None:
    """Refuse a log that lost its tail and grew again: it has other records under the offsets that were read.

    All three mappings are by partition. `read` has the anchors (see `anchors`), and `ends` the ends of the log.
    `hashes` has the hash of the record that now lies at the anchor's offset. An anchor is not compared if retention or
    compaction has removed its record since.
    """
    for partition, (offset, then) in sorted(read.items()):
        if offset < ends[partition] and hashes.get(partition, then) == then:
            continue
        now = f"it ends at {ends[partition]}" if offset >= ends[partition] else "another record has that offset now"
        raise RunError(
            "log-rewritten",
            f"{view} has read {topic}/{partition} up to offset {offset}, and the log has lost that record: {now}",
            why="brokers lost records that they had acknowledged (power of all of them at once, an unclean election, "
            "a disk restored from a backup), and gave their offsets to others",
            state="nothing was read or written; readers see the build as it is, with the records that are lost",
            fix=f"leftfold run --fresh {view} reads the log as it is now into a new build",
        )


def check_history(view: str, position: Offsets, starts: Offsets) -> None:
    """Refuse to continue if retention has removed records that the view has not read, such as while it was stopped."""
    gone = [
        (topic, p, read, first)
        for topic, parts in position.items()
        for p, read in sorted(parts.items())
        if (first := starts[topic].get(p, 0)) > read
    ]
    if gone:
        gaps = ", ".join(f"{topic}/{p}: {read} to {first - 1} ({first - read:,})" for topic, p, read, first in gone)
        raise RunError(
            "log-overtaken",
            f"{view} has not read offsets that the log no longer has: {gaps}",
            why="the topic's retention, or somebody, deleted records faster than the view read them",
            state="nothing was skipped: the view stands where it stood, and readers see it so",
            fix=f"leftfold run --fresh {view} starts over with what the log still has; a longer retention avoids this",
        )


# A repair: fill a store again from history, up to where the checkpoint stands, while the stream waits.


def history(
    session: SparkSession, view: str, job: Job, source: Source, admin: Admin, *, newest_event: int, begins: Offsets
) -> Offsets:
    """The offsets from which history must be read to recompute everything that a read can still reach.

    Raise an error if that history is gone. `begins` is where the build began: a repair restores what the build held,
    not what was imported or archived before it.
    """
    since = needed_since(job.definition, newest_event, store_reach(job.definition)) if newest_event else None
    starts, lacking = starts_since(session, source, admin, since, begins)
    if _kept_for_ever(job):
        lacking = []
    if lacking:
        raise RunError(
            "repair-needs-history",
            f"{view} cannot be computed again: {', '.join(lacking)} no longer hold all that it needs",
            why="the log's oldest records were deleted, and its rows reach "
            + ("all of it" if since is None else f"{text(newest_event - since)} back"),
            state="the store is as it was found; nothing was committed",
            fix=f"leftfold run --fresh {view} starts over with what the log still has; or restore a newer dump",
        )
    return starts


def _kept_for_ever(job: Job) -> bool:
    """True for a view of a compacted topic: this keeps the newest record of each key, whatever its first offset is."""
    return not job.sweeps
