"""One partition and its replicas: appends, copies, the high-water mark, elections, truncation, retention of the head.

It is deterministic. What brokers decide by timing, such as how far a follower has copied when a broker dies, is an
argument. It never looks at keys or values, except for compaction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

from leftfold.testing.log.compaction import compacted

Acks = Literal["0", "1", "all"]
Isolation = Literal["read_uncommitted", "read_committed"]
Kind = Literal["data", "commit", "abort"]


class LogEntry(NamedTuple):
    """A record, or the marker that ends a transaction. A marker takes an offset too."""

    offset: int
    epoch: int  # the leader's, when it was appended
    key: bytes | None
    value: Any
    kind: Kind = "data"
    producer: int = -1  # the id of an idempotent producer
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    log_us: int = 0


@dataclass(frozen=True)
class Draft:
    """A record before it has an offset."""

    key: bytes | None
    value: Any
    producer: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    kind: Kind = "data"
    log_us: int = 0


class RefusedAppend(Exception):  # noqa: N818 # brokers refuse, which is an answer
    """A leader's refusal. `reason` is Kafka's name for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class ReplicaModel:
    """The copy of a partition on one broker. Compaction leaves gaps, so offsets are not indexes.

    Deleting the head moves `start`. The records stay on disk for a while, as does the note of an earlier start.
    """

    entries: list[LogEntry] = field(default_factory=list)
    start: int = 0
    end: int = 0
    earlier: tuple[int, ...] = ()  # starts before this one, which a killed broker may fall back to

    def index(self, offset: int) -> int:
        """Return the index of the first entry at or after this offset."""
        if self.entries and self.entries[-1].offset < offset:
            return len(self.entries)
        return bisect_left(self.entries, offset, key=_offset)

    def end_of(self, epoch: int) -> int:
        """Return the offset at which this replica's records of later epochs begin."""
        return next((entry.offset for entry in self.entries if entry.epoch > epoch), self.end)

    def truncate_to(self, leader: ReplicaModel) -> None:
        """Cut what the leader does not have: entries beyond the leader's end of their epoch."""
        cut = next((e.offset for e in self.entries if e.offset >= leader.end_of(e.epoch)), self.end)
        self.entries = self.entries[: self.index(cut)]
        self.end = min(cut, leader.end)

    def copy_from(self, leader: ReplicaModel, end: int) -> None:
        """Copy the leader's entries up to an offset."""
        self.entries += leader.entries[leader.index(self.end) : leader.index(end)]
        self.end = max(self.end, end)
        self.delete_before(leader.start)

    def delete_before(self, offset: int) -> None:
        if offset > self.start:
            self.earlier = (*self.earlier, self.start)
            self.start = offset
            self.end = max(self.end, offset)


@dataclass(eq=False)
class PartitionModel:
    """A partition: its replicas by broker, its leader, and who is in sync.

    `eligible` are replicas that left the in-sync set when it had become smaller than `min_in_sync`: from then on the
    high-water mark stands, so they have all that is below it.
    """

    replicas: dict[int, ReplicaModel]
    leader: int | None
    in_sync: set[int]
    alive: set[int]
    min_in_sync: int = 1
    unclean: bool = False
    compacts: bool = False
    epoch: int = 0
    high_water: int = 0
    eligible: set[int] = field(default_factory=set)
    last_leader: int | None = None
    transactional: bool = False  # a transaction has written to it; else nothing is ever open or aborted

    @classmethod
    def of(cls, brokers: Sequence[int], *, min_in_sync: int = 1, unclean: bool = False, compacts: bool = False) -> Self:
        return cls(
            replicas={broker: ReplicaModel() for broker in brokers},
            leader=brokers[0],
            last_leader=brokers[0],
            in_sync=set(brokers),
            alive=set(brokers),
            min_in_sync=min_in_sync,
            unclean=unclean,
            compacts=compacts,
        )

    def copy(self) -> PartitionModel:
        """Return an independent copy. Entries are shared, because they never change."""
        return replace(
            self,
            replicas={b: replace(r, entries=list(r.entries)) for b, r in self.replicas.items()},
            in_sync=set(self.in_sync),
            alive=set(self.alive),
            eligible=set(self.eligible),
        )

    @property
    def log(self) -> ReplicaModel:
        """The leader's replica, which takes all writes and serves all reads."""
        if self.leader is None:
            raise RefusedAppend("LEADER_NOT_AVAILABLE")
        return self.replicas[self.leader]

    # Writing ---------------------------------------------------------------------------------------------------------

    def append(self, drafts: Sequence[Draft], *, acks: Acks = "all") -> int:
        """Append at the leader, and return the first offset. With acks="all", all in-sync replicas have it then."""
        log = self.log
        if acks == "all" and len(self.in_sync) < self.min_in_sync:
            raise RefusedAppend("NOT_ENOUGH_REPLICAS")
        if drafts[0].producer >= 0 and drafts[0].kind == "data":
            duplicate = self._check_sequence(drafts[0])
            if duplicate is not None:
                return duplicate
        first = log.end
        self.transactional = self.transactional or drafts[0].transactional
        for draft in drafts:
            log.entries.append(
                LogEntry(
                    log.end,
                    self.epoch,
                    draft.key,
                    draft.value,
                    draft.kind,
                    draft.producer,
                    draft.producer_epoch,
                    draft.sequence,
                    draft.transactional,
                    draft.log_us,
                )
            )
            log.end += 1
        if acks == "all":
            self.catch_up(self.in_sync)
        return first

    def _check_sequence(self, draft: Draft) -> int | None:
        """Return the offset of a batch that is there already; None if it is new. The log itself is the memory."""
        mine = [e for e in self.log.entries if e.producer == draft.producer]
        if mine and mine[-1].producer_epoch > draft.producer_epoch:
            raise RefusedAppend("INVALID_PRODUCER_EPOCH")
        written = [e for e in mine if e.producer_epoch == draft.producer_epoch and e.kind == "data"]
        expected = written[-1].sequence + 1 if written else 0
        if draft.sequence == expected:
            return None
        for entry in written[-_REMEMBERED:]:
            if entry.sequence == draft.sequence:
                return entry.offset
        raise RefusedAppend("OUT_OF_ORDER_SEQUENCE_NUMBER")

    def copy_to(self, broker: int, end: int) -> None:
        """Let a follower fetch up to an offset."""
        if broker != self.leader:
            self.replicas[broker].copy_from(self.log, end)
        self._advance()

    def catch_up(self, brokers: Iterable[int]) -> None:
        """Let followers fetch all there is."""
        for broker in brokers:
            if broker != self.leader and broker in self.alive:
                self.replicas[broker].copy_from(self.log, self.log.end)
        self._advance()

    def _advance(self) -> None:
        """Raise the high-water mark to what all in-sync replicas have, if they are enough."""
        if len(self.in_sync) >= self.min_in_sync:
            self.high_water = max(self.high_water, min(self.replicas[b].end for b in self.in_sync))

    # Brokers ---------------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """End a broker's process. The controller takes it out of the in-sync set, unless nobody would be left."""
        self.alive.discard(broker)
        if self.in_sync > {broker}:
            if len(self.in_sync) <= self.min_in_sync:
                self.eligible.add(broker)
            self.in_sync.discard(broker)
        if broker == self.leader:
            self.leader = None
        if self.leader is not None:
            self._advance()

    def restart(self, broker: int, *, start: int | None = None) -> None:
        """Start a broker that was killed. Its disk has all that it had; the others no longer count on that.

        A broker notes once a minute where its log starts. So `start` may be one of the earlier ones.
        """
        self.alive.add(broker)
        self.eligible.discard(broker)
        if start is not None:
            replica = self.replicas[broker]
            replica.earlier = tuple(one for one in replica.earlier if one < start)
            replica.start = start

    def can_lead(self, broker: int) -> Literal["clean", "unclean", "no"]:
        """Return by which kind of election a broker may become leader now."""
        if broker not in self.alive or broker not in self.replicas:
            return "no"
        if broker in self.in_sync or broker in self.eligible:
            return "clean"
        # Nobody else has more than the last leader, if it comes back first.
        if broker == self.last_leader and not (self.in_sync | self.eligible) & self.alive:
            return "clean"
        return "unclean" if self.unclean else "no"

    def elect(self, broker: int) -> None:
        """Make a broker the leader, in a new epoch. Unclean: what it does not have is lost."""
        how = self.can_lead(broker)
        if how == "no":
            raise RefusedAppend("ELIGIBLE_LEADERS_NOT_AVAILABLE")
        self.epoch += 1
        self.leader = self.last_leader = broker
        log = self.log
        if how == "unclean":
            self.in_sync, self.eligible = {broker}, set()
        else:
            self.in_sync = (self.in_sync & self.alive) | {broker}
        self.high_water = min(self.high_water, log.end)
        for other in self.in_sync - {broker}:
            self.replicas[other].truncate_to(log)

    def rejoin(self, broker: int) -> None:
        """Let a replica follow the leader: it cuts what the leader does not have, copies the rest, and is in sync."""
        replica = self.replicas[broker]
        if broker != self.leader:
            replica.truncate_to(self.log)
            replica.copy_from(self.log, self.log.end)
            self.in_sync.add(broker)
        if len(self.in_sync) >= self.min_in_sync:
            self.eligible.clear()
        self._advance()

    # Reading ---------------------------------------------------------------------------------------------------------

    @property
    def first_open(self) -> int:
        """The first offset of the oldest transaction that has no marker; the end of the log if there is none."""
        if not self.transactional:
            return self.log.end
        open_at: dict[int, int] = {}
        for entry in self.log.entries:
            if entry.kind != "data":
                open_at.pop(entry.producer, None)
            elif entry.transactional:
                open_at.setdefault(entry.producer, entry.offset)
        return min(open_at.values(), default=self.log.end)

    @property
    def stable_end(self) -> int:
        """The last stable offset: read-committed readers see nothing at or beyond it."""
        return min(self.first_open, self.high_water)

    def aborted(self) -> set[int]:
        """Return the offsets of records whose transaction was aborted."""
        found: set[int] = set()
        in_hand: dict[int, list[int]] = {}
        for entry in self.log.entries:
            if entry.kind == "data" and entry.transactional:
                in_hand.setdefault(entry.producer, []).append(entry.offset)
            elif entry.kind != "data":
                offsets = in_hand.pop(entry.producer, [])
                if entry.kind == "abort":
                    found.update(offsets)
        return found

    def end_for(self, isolation: Isolation) -> int:
        return self.stable_end if isolation == "read_committed" else self.high_water

    def read(
        self, isolation: Isolation = "read_committed", *, since: int = 0, end: int | None = None
    ) -> list[LogEntry]:
        """Return the records that a reader gets, from an offset up to the end that it may see, or a given one."""
        log = self.log
        end = self.end_for(isolation) if end is None else end
        entries = log.entries[log.index(max(since, log.start)) : log.index(end)]
        if not self.transactional:
            return entries
        hidden = self.aborted() if isolation == "read_committed" else set()
        return [entry for entry in entries if entry.kind == "data" and entry.offset not in hidden]

    # Retention -------------------------------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> None:
        """Delete the head of the log, at most up to the high-water mark. Dead replicas learn of it later."""
        offset = min(offset, self.high_water)
        for broker in self.alive & self.replicas.keys():
            self.replicas[broker].delete_before(offset)

    def compact(self, end: int | None = None) -> None:
        """Clean the leader's log up to an offset, at most up to the last stable one. Followers clean for themselves."""
        end = self.stable_end if end is None else min(end, self.stable_end)
        log = self.log
        at = log.index(end)
        log.entries = [*compacted(log.entries[:at], self.aborted()), *log.entries[at:]]


_REMEMBERED = 5  # batches of a producer that a broker recognizes as sent again


def _offset(entry: LogEntry) -> int:
    return entry.offset
