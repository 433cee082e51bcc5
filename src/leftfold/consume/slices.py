"""Exactly once from Kafka to Kafka: a slice of records is handled, then all that came of it is one transaction.

1. Records are polled, and the group's identity is taken in the same moment. A later identity would let a member commit
   what it has lost meanwhile: brokers do not ask for the owner of a partition if the member's epoch is the newest.
2. Handlers run. What they return, and dead letters, are kept in memory; no transaction is open.
3. Once all records of the slice are settled, a transaction begins: returned events in the order of the log, dead
   letters, the positions. It lasts milliseconds, however slow handlers are.

A death before the end of step 3 leaves nothing that a read-committed reader sees, and the next owner handles the slice.
If the outcome of a transaction is unknown, the positions of the group tell it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from leftfold import clock
from leftfold.consume.clients import ConsumerNames, LogClients
from leftfold.consume.lanes import Work
from leftfold.consume.settled import encoded
from leftfold.declare.consumer import Consumer
from leftfold.errors import LeftfoldError, RunError
from leftfold.kafka.dead_letters import DeadLetter
from leftfold.kafka.group import LogPartition, Member, Position
from leftfold.kafka.transactions import Outgoing, Transactions

_PATIENCE_S = 60.0  # how long one slice is tried before the consumer ends


@dataclass
class Slice:
    """Records that are handled together. `works` are in the order of the log within a partition."""

    group: Any  # the identity of the member, with its epoch, when the records were taken
    works: list[Work] = field(default_factory=list)
    letters: list[tuple[Work, DeadLetter]] = field(default_factory=list)
    failing_since: float | None = None

    @property
    def is_settled(self) -> bool:
        return not any(work.part.is_open(work.offset) for work in self.works)

    def drop_lost(self) -> None:
        """Leave out what belongs to partitions that are no longer ours."""
        self.works = [work for work in self.works if work.part.owned]
        self.letters = [(work, letter) for work, letter in self.letters if work.part.owned]


class SliceWriter:
    """Writes slices of one consumer. One thread owns it."""

    def __init__(self, consumer: Consumer[..., Any], names: ConsumerNames, clients: LogClients) -> None:
        self._consumer = consumer
        self._names = names
        # A part of the id is random: two processes never fence each other by it. The group's epoch does that.
        self._transactions = Transactions(clients.kafka, f"{names.group}/{secrets.token_hex(8)}")

    def write(self, piece: Slice, member: Member) -> bool:
        """Write what came of a slice, and its positions. Returns False if it has to be tried again."""
        parts = {LogPartition(w.part.topic, w.part.partition): w.part for w in piece.works}
        token = secrets.token_hex(8)
        positions = {part: Position(s.low, encoded(s.position(), token)) for part, s in parts.items()}
        records = [record for work in piece.works for record in work.output or ()]
        records += [
            Outgoing(self._names.dead, str(letter.place).encode(), letter.value, letter.packed())
            for _, letter in piece.letters
        ]
        if self._transactions.commit(records, positions, piece.group):
            return True
        why = self._transactions.failure
        self._transactions.settle()
        if member.committed(positions) == positions:
            return True  # the commit took effect, and its answer was lost
        piece.failing_since = piece.failing_since or clock.monotonic()
        if clock.monotonic() - piece.failing_since > _PATIENCE_S:
            raise self._not_committed(why or "")
        return False

    def _not_committed(self, why: str) -> LeftfoldError:
        return RunError(
            "transaction-not-committed",
            f"{self._consumer.name} could not commit a transaction for {_PATIENCE_S:g} s",
            why=why,
            state="it is aborted: read-committed readers see nothing of it, and the next start handles the records",
            fix="leftfold topics shows whether the brokers take records; then start it again",
            retriable=True,
        )

    def close(self) -> None:
        self._transactions.close()
