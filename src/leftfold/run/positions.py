"""The offsets of a view, under both names of a topic.

Spark and the brokers name a topic as the cluster does. Receipts and ledger rows name it as it was declared.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from leftfold.errors import LogError
from leftfold.fold.definition import Origin
from leftfold.kafka.admin import Admin
from leftfold.offsets import Offsets
from leftfold.run.receipts import Receipt
from leftfold.run.watermark import Place
from leftfold.spark.checkpoint import batch_offsets
from leftfold.spark.source import Source

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession


class Positions:
    """The topics of one view, and its offsets in them as checkpoint, log and receipts state them."""

    def __init__(
        self, origins: Sequence[Origin], source: Source, admin: Admin, session: SparkSession, checkpoint: str
    ) -> None:
        declared = [origin.topic for origin in origins]
        # The declared name, the name in the cluster, and the number of partitions.
        self.topics = list(zip(declared, source.topics, source.partitions, strict=True))
        self._admin = admin
        self._session = session
        self._checkpoint = checkpoint

    def after(self, batch: int) -> Offsets:
        """The offsets at which a batch ends, as the checkpoint states them."""
        return batch_offsets(self._session, self._checkpoint, batch)

    def declared(self, offsets: Offsets) -> Offsets:
        """The same offsets under the declared names. A topic that is missing has none."""
        return {declared: offsets.get(topic, {}) for declared, topic, _ in self.topics}

    def ranges(self, starts: Offsets, ends: Offsets) -> dict[str, dict[int, tuple[int, int]]]:
        """The ranges between two positions, as a receipt states them. A partition without a start begins at 0."""
        first, last = self.declared(starts), self.declared(ends)
        return {t: {p: (first[t].get(p, 0), end) for p, end in parts.items()} for t, parts in last.items()}

    def begins(self, receipts: Sequence[Receipt]) -> Offsets:
        """The offsets at which a build began, by the cluster's names: the first that any receipt has of a partition."""
        begins: dict[str, dict[int, int]] = {topic: {} for _, topic, _ in self.topics}
        for declared, topic, _ in self.topics:
            for receipt in receipts:  # a partition may have been added in between
                for p, (start, _) in receipt.ranges.get(declared, {}).items():
                    begins[topic].setdefault(p, start)
        return begins

    def topic_ids(self) -> dict[str, str]:
        """The ids that the cluster gave to the topics, by declared name. A topic that does not exist is left out."""
        ids = self._admin.topic_ids([topic for _, topic, _ in self.topics])
        return {declared: ids[topic] for declared, topic, _ in self.topics if topic in ids}

    def firsts(self) -> Offsets:
        """The first offset that the log still has of each partition."""
        return {topic: self._admin.start_offsets(topic, partitions) for _, topic, partitions in self.topics}

    def unread(self, ends: Offsets, read: Container[Place]) -> list[Place]:
        """The partitions that have records after these offsets, each with its declared topic.

        `read` are the partitions of which records were read. If a leader is being elected, the ends of a topic are not
        known, and each of its partitions in `read` is taken to have records to come.
        """
        unread: list[Place] = []
        for declared, topic, partitions in self.topics:
            try:
                latest = self._admin.end_offsets(topic, partitions)
                unread += [(declared, p) for p, end in latest.items() if end > ends.get(topic, {}).get(p, 0)]
            except LogError:
                unread += [(declared, p) for p in range(partitions) if (declared, p) in read]
        return unread
