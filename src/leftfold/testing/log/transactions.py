"""The transaction coordinator: producer ids and epochs, open transactions, markers, positions in a transaction.

A transaction ends by a marker in every partition that it wrote to. Positions take effect together with the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from leftfold.testing.log.assignment import Part
from leftfold.testing.log.groups import CommittedOffset, Fenced, GroupModel
from leftfold.testing.log.replicas import Draft, PartitionModel


@dataclass(frozen=True)
class ProducerIdentity:
    """The id and epoch of one producer. A later process with the same transactional id has a larger epoch."""

    transactional_id: str
    producer: int
    epoch: int


@dataclass
class _Open:
    partitions: list[PartitionModel] = field(default_factory=list)
    positions: list[tuple[GroupModel, Mapping[Part, CommittedOffset]]] = field(default_factory=list)


class TransactionModel:
    """The coordinator of all transactional ids."""

    def __init__(self) -> None:
        self._newest: dict[str, ProducerIdentity] = {}
        self._open: dict[str, _Open] = {}
        self._sequences: dict[tuple[int, int, int], int] = {}  # of a producer, its epoch, and a partition

    def init(self, transactional_id: str) -> ProducerIdentity:
        """Give a process its identity. What an earlier process left open is aborted, and that process is fenced."""
        known = self._newest.get(transactional_id)
        identity = ProducerIdentity(transactional_id, len(self._newest) if known is None else known.producer, 0)
        if known is not None:
            identity = replace(identity, epoch=known.epoch + 1)
        if transactional_id in self._open:
            self._end(identity, "abort")
        self._newest[transactional_id] = identity
        return identity

    def begin(self, identity: ProducerIdentity) -> None:
        self._check(identity)
        self._open[identity.transactional_id] = _Open()

    def write(self, identity: ProducerIdentity, partition: PartitionModel, drafts: Sequence[Draft]) -> int:
        """Append records of an open transaction, and return the first offset."""
        self._check(identity)
        piece = self._open[identity.transactional_id]
        if not any(partition is known for known in piece.partitions):
            piece.partitions.append(partition)
        place = identity.producer, identity.epoch, id(partition)
        first = self._sequences.get(place, 0)
        numbered = [
            replace(
                draft,
                producer=identity.producer,
                producer_epoch=identity.epoch,
                sequence=first + number,
                transactional=True,
            )
            for number, draft in enumerate(drafts)
        ]
        offset = partition.append(numbered)
        self._sequences[place] = first + len(drafts)
        return offset

    def send_offsets(
        self,
        identity: ProducerIdentity,
        group: GroupModel,
        positions: Mapping[Part, CommittedOffset],
        *,
        member: str,
        generation: int,
    ) -> None:
        """Add positions of a group to an open transaction, on behalf of a member as it was when it took the records."""
        self._check(identity)
        group.check(member, generation)
        self._open[identity.transactional_id].positions.append((group, dict(positions)))
        group.hold(positions)

    def commit(self, identity: ProducerIdentity) -> None:
        self._check(identity)
        for group, positions in self._open[identity.transactional_id].positions:
            group.committed.update(positions)
        self._end(identity, "commit")

    def abort(self, identity: ProducerIdentity) -> None:
        self._check(identity)
        self._end(identity, "abort")

    def expire(self, transactional_id: str) -> None:
        """Abort a transaction whose process is silent, and fence that process."""
        if transactional_id in self._open:
            self.init(transactional_id)

    def is_open(self, transactional_id: str) -> bool:
        return transactional_id in self._open

    def _check(self, identity: ProducerIdentity) -> None:
        newest = self._newest[identity.transactional_id]
        if identity.epoch != newest.epoch:
            raise Fenced(f"{identity.transactional_id} of epoch {identity.epoch}; the newest is {newest.epoch}")

    def _end(self, identity: ProducerIdentity, kind: Literal["commit", "abort"]) -> None:
        ended = self._open.pop(identity.transactional_id)
        for partition in ended.partitions:
            marker = Draft(None, None, identity.producer, identity.epoch, transactional=True, kind=kind)
            partition.append([marker])
        for group, positions in ended.positions:
            group.release(positions)
