"""The outcomes that brokers may show: the model as an oracle for histories of real brokers.

Some things no client can see: how far a follower had copied when a broker died, whether a record without an
acknowledgement is there. `Allowed` keeps every world that fits what was observed so far. An observation that fits no
world is not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from leftfold.kafka.partitioner import partition_of
from leftfold.testing.log.compaction import compacted
from leftfold.testing.log.replicas import Acks, Draft, Isolation, PartitionModel, RefusedAppend

Answer = Literal["acknowledged", "refused", "unknown"]
Operation = Sequence[Any]


class NotAllowed(AssertionError):  # noqa: N818 # the verdict of an oracle
    """An observation that no world of the model explains."""


@dataclass
class World:
    """One way in which it may be. The partition's high-water mark is what is certain; the true one may be higher."""

    partition: PartitionModel
    ceiling: int | None = None  # the high-water mark stands somewhere below it: too few replicas are in sync
    elected: bool = False  # a new leader learns the high-water mark late, and may show less for a while
    on_the_way: tuple[Draft, ...] = ()  # records without an answer, which may arrive later, in this order

    def copy(self) -> World:
        return World(self.partition.copy(), self.ceiling, self.elected, self.on_the_way)

    def arrivals(self) -> Iterator[World]:
        """Yield the worlds in which none, some or all of the records on the way have arrived."""
        yield self
        if self.partition.leader is None:
            return
        for number in range(1, len(self.on_the_way) + 1):
            new = self.copy()
            for draft in self.on_the_way[:number]:
                new.partition.append([draft], acks="1")
            new.on_the_way = self.on_the_way[number:]
            yield new

    @property
    def most(self) -> int:
        """The highest that the high-water mark may be."""
        end = self.partition.log.end
        return end if self.ceiling is None else min(end, self.ceiling)

    def note_in_sync(self) -> None:
        """Stop the high-water mark if too few replicas are in sync, and let it go on if they are enough."""
        partition = self.partition
        if len(partition.in_sync) >= partition.min_in_sync:
            self.ceiling = None
        elif partition.leader is not None:
            self.ceiling = self.most

    def reach(self, end: int) -> None:
        """Note that readers have seen the log up to an offset: all in-sync replicas have it."""
        for broker in self.partition.in_sync:
            if self.partition.replicas[broker].end < end:
                self.partition.copy_to(broker, end)
        self.partition.high_water = max(self.partition.high_water, end)
        self.elected = self.elected and end < self.partition.high_water

    def fingerprint(self) -> Any:
        p = self.partition
        replicas = tuple((b, r.start, r.end, r.earlier, tuple(r.entries)) for b, r in sorted(p.replicas.items()))
        who = (p.leader, p.last_leader, frozenset(p.in_sync), frozenset(p.alive), frozenset(p.eligible))
        return replicas, who, p.high_water, self.ceiling, self.elected, self.on_the_way


class Allowed:
    """All worlds of one partition."""

    def __init__(self, brokers: Sequence[int], *, min_in_sync: int, unclean: bool, compacts: bool) -> None:
        first = PartitionModel.of(brokers, min_in_sync=min_in_sync, unclean=unclean, compacts=compacts)
        self.worlds = [World(first)]

    def _step(self, what: str, step: Callable[[World], Iterable[World]]) -> None:
        """Go on to the worlds that come after, each once."""
        now = (arrived for world in self.worlds for arrived in world.arrivals())
        after = {new.fingerprint(): new for world in now for new in step(world)}
        if not after:
            raise NotAllowed(what)
        self.worlds = list(after.values())

    def sent(self, draft: Draft, acks: Acks, answer: Answer, offset: int | None) -> None:
        """Note a record that was sent, and its answer."""

        def step(world: World) -> Iterator[World]:
            new = world.copy()
            if answer == "unknown":
                new.on_the_way = (*world.on_the_way, draft)
                yield new
                return
            try:
                found = new.partition.append([draft], acks=acks)
            except RefusedAppend:
                if answer == "refused":
                    yield world
                return
            if answer == "acknowledged" and found == offset:
                if acks == "all":
                    new.elected = False
                yield new

        self._step(f"{draft.value} with acks={acks} is {answer} at {offset}", step)

    def ended(self, draft: Draft) -> None:
        """Note the marker of a transaction."""

        def step(world: World) -> Iterator[World]:
            new = world.copy()
            new.partition.append([draft])
            new.elected = False
            yield new

        self._step(f"a transaction ends by {draft.kind}", step)

    def killed(self, broker: int) -> None:
        """Note a broker's death. A follower may have copied anything up to the leader's end."""

        def step(world: World) -> Iterator[World]:
            partition = world.partition
            follows = broker in partition.in_sync and partition.leader not in (None, broker)
            first = partition.replicas[broker].end if follows else 0
            for end in range(first, partition.log.end + 1) if follows else (None,):
                new = world.copy()
                if end is not None:
                    new.partition.replicas[broker].copy_from(new.partition.log, end)
                    if len(partition.in_sync) <= partition.min_in_sync:
                        new.ceiling = min(end, new.most)
                new.partition.kill(broker)
                new.on_the_way = ()  # what has not arrived is lost with its connection
                yield new

        self._step(f"broker {broker} dies", step)

    def restarted(self, broker: int) -> None:
        """Note that a broker was started again. A head that it had deleted may be there again."""

        def step(world: World) -> Iterator[World]:
            replica = world.partition.replicas.get(broker)
            for start in (None, *(replica.earlier if replica is not None else ())):
                new = world.copy()
                new.partition.restart(broker, start=start)
                yield new

        self._step(f"broker {broker} starts", step)

    def led(self, leader: int | None, in_sync: Iterable[int]) -> None:
        """Note who leads and who is in sync, as brokers tell."""
        expected = set(in_sync)

        def step(world: World) -> Iterator[World]:
            for new in self._elections(world, leader):
                partition = new.partition
                if leader is not None:
                    partition.in_sync &= expected
                    for broker in sorted(expected - partition.in_sync):
                        if broker not in partition.alive:
                            return
                        partition.rejoin(broker)
                    new.note_in_sync()
                yield new

        self._step(f"{leader} leads, {sorted(expected)} are in sync", step)

    def _elections(self, world: World, leader: int | None) -> Iterator[World]:
        partition = world.partition
        if leader == partition.leader:
            yield world.copy()
            return
        if leader is None or partition.can_lead(leader) == "no":
            return
        # One that was in sync and alive has copied anything up to the end of the leader before it.
        before = partition.replicas[partition.last_leader] if partition.last_leader is not None else None
        end = partition.replicas[leader].end
        follows = leader in partition.in_sync and before is not None
        for copied in range(end, before.end + 1) if follows and before is not None else (end,):
            new = world.copy()
            if follows and before is not None:
                new.partition.replicas[leader].copy_from(before, copied)
            new.partition.elect(leader)
            new.elected = True
            yield new

    def deleted(self, offset: int) -> None:
        """Note that the head of the log was deleted, up to an offset that was visible."""

        def step(world: World) -> Iterator[World]:
            if offset <= world.most:
                new = world.copy()
                new.reach(offset)
                new.partition.delete_before(offset)
                yield new

        self._step(f"what is before {offset} is deleted", step)

    def read(self, isolation: Isolation, end: int, records: Sequence[tuple[int, Any]]) -> None:
        """Note what a reader of the whole partition got, and where it came to the end."""

        def step(world: World) -> Iterator[World]:
            first_open = world.partition.first_open if isolation == "read_committed" else end
            least = 0 if world.elected else min(world.partition.high_water, first_open)
            if not least <= end <= min(world.most, first_open if isolation == "read_committed" else world.most):
                return
            if not self._fits(world, isolation, end, records):
                return
            new = world.copy()
            new.reach(end)
            yield new

        shown = ", ".join(f"{offset}:{value}" for offset, value in records)
        self._step(f"{isolation} up to {end} reads {shown}", step)

    def _fits(self, world: World, isolation: Isolation, end: int, records: Sequence[tuple[int, Any]]) -> bool:
        partition = world.partition
        there = [(entry.offset, entry.value) for entry in partition.read(isolation, end=end)]
        if not partition.compacts:
            return there == list(records)
        # The cleaner works when it likes: all that it must leave is there, and nothing that was not.
        log = partition.log
        at = log.index(min(world.most, partition.first_open))
        left = {entry.offset for entry in compacted(log.entries[:at], partition.aborted()) if entry.kind == "data"}
        left |= {entry.offset for entry in log.entries[at:]}
        seen = {offset for offset, _ in records}
        return [one for one in there if one[0] in seen] == list(records) and all(
            offset in seen for offset, _ in there if offset in left
        )


class JudgedHistory:
    """A recorded history of one topic, told to the model operation by operation.

    Each transaction is one producer's, of an epoch of its own.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.partitions = [
            Allowed(brokers, min_in_sync=settings["min"], unclean=settings["unclean"], compacts=settings["compact"])
            for brokers in settings["brokers"]
        ]
        self._transaction = 0
        self._written: dict[int, int] = {}  # records of the open transaction, by partition

    def tell(self, operation: Operation) -> None:
        """Note one operation. Raises NotAllowed if no world explains it."""
        kind, arguments = operation[0], operation[1:]
        getattr(self, f"_{kind}")(*arguments)

    def _send(self, p: int, key: str, value: Any, acks: Acks, answer: Answer, offset: int | None) -> None:
        self._check_partition(p, key)
        self.partitions[p].sent(Draft(key.encode(), value), acks, answer, offset)

    def _write(self, p: int, key: str, value: Any, offset: int) -> None:
        self._check_partition(p, key)
        sequence = self._written.get(p, 0)
        self._written[p] = sequence + 1
        draft = Draft(key.encode(), value, 0, self._transaction, sequence, transactional=True)
        self.partitions[p].sent(draft, "all", "acknowledged", offset)

    def _end(self, how: Literal["commit", "abort"]) -> None:
        for p in self._written:
            self.partitions[p].ended(Draft(None, None, 0, self._transaction, transactional=True, kind=how))
        self._transaction += 1
        self._written.clear()

    def _kill(self, broker: int) -> None:
        for partition in self.partitions:
            partition.killed(broker)

    def _restart(self, broker: int) -> None:
        for partition in self.partitions:
            partition.restarted(broker)

    def _leaders(self, found: Sequence[tuple[int | None, list[int]]]) -> None:
        for partition, (leader, in_sync) in zip(self.partitions, found, strict=True):
            partition.led(leader, in_sync)

    def _delete(self, p: int, offset: int) -> None:
        self.partitions[p].deleted(offset)

    def _read(self, isolation: Isolation, found: Sequence[tuple[int, int, list[tuple[int, Any]]]]) -> None:
        for p, end, records in found:
            self.partitions[p].read(isolation, end, [(offset, value) for offset, value in records])

    def _check_partition(self, p: int, key: str) -> None:
        if partition_of(key.encode(), len(self.partitions)) != p:
            raise NotAllowed(f"{key} is in partition {p}")
