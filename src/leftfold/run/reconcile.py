"""Before a build goes on: its checkpoint, its receipts and its topics must tell the same story.

A store that is merely behind is repaired. Whatever else disagrees is refused, with the way out: going on would be
silently wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from leftfold.errors import RunError
from leftfold.run.receipts import Receipt
from leftfold.spark.checkpoint import Standing
from leftfold.spark.source import Offsets


def check_topics(view: str, receipt: Receipt | None, ids: Mapping[str, str]) -> None:
    """A topic that was deleted and made again has other records under the offsets that were read."""
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


def check_receipts(view: str, standing: Standing, receipts: Sequence[Receipt], planned: Offsets | None) -> None:
    """`planned` is where the checkpoint says that the batch of the newest receipt ends; None if it does not know it."""
    fix = f"leftfold run --fresh {view} reads the log again from its start into a new build"
    newest = receipts[-1].last if receipts else -1
    if newest < standing.committed:
        raise RunError(
            "receipts-missing",
            f"{view} has receipts up to batch {newest}, and its checkpoint has committed {standing.committed}",
            why="receipts were deleted: what became of the records in between can no longer be shown",
            fix=fix,
        )
    if newest > standing.planned or (planned is not None and planned != receipts[-1].ends):
        raise RunError(
            "checkpoint-restored",
            f"{view} has receipts up to batch {newest}, and its checkpoint stands at {standing.planned}",
            why="the checkpoint was restored from a backup, or another run went on: its next batches would have the "
            "numbers of batches that the stores hold, and be taken for them",
            state="nothing was read or written; readers see the build as it is",
            fix=fix,
        )
    for before, after in pairwise(receipts):
        gap = after.first - before.last - 1
        moved = {t: {p: start for p, (start, _) in parts.items()} for t, parts in after.ranges.items()}
        if gap or any(moved.get(t, {}).get(p) != end for t, parts in before.ends.items() for p, end in parts.items()):
            raise RunError(
                "receipts-missing",
                f"{view} has receipts up to batch {before.last} and from batch {after.first}",
                why="receipts were deleted: what became of the records in between can no longer be shown",
                fix=fix,
            )


def check_history(view: str, position: Offsets, starts: Offsets) -> None:
    """Retention that overtook a stopped view took records that it has not read."""
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
