"""One process that runs a consumer in the model, as a generator of steps.

It yields the name of each step after it was done. Whoever runs it may drop it at any step: that is a crash. The steps
of each delivery are those of the table in docs/guide/delivery.md.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leftfold.declare.consumer import Consumer
from leftfold.declare.event import Event
from leftfold.declare.record import NotNow, Record, Unprocessable
from leftfold.errors import LogError
from leftfold.fold.expressions import from_micros
from leftfold.testing.log.assignment import Part
from leftfold.testing.log.database import Database, DatabaseSession
from leftfold.testing.log.groups import CommittedOffset, Fenced, GroupModel
from leftfold.testing.log.outcome import Consumed
from leftfold.testing.log.replicas import LogEntry

if TYPE_CHECKING:
    from leftfold.testing.log.model import Log

IDLE = "idle"  # not a step: there is nothing to do for this process now
_MOST_AT_ONCE = 5  # records of a poll: few, so that many commits lie between few records
_MOST_NOT_NOW = 1_000  # a handler that never takes a record would run for ever
_COMMIT_SHARE = 0.25  # at least once: how often a commit is due after a record


@dataclass
class _Taken:
    """A record in hand."""

    part: Part
    entry: LogEntry
    record: Record
    event: Any
    output: list[Event] = field(default_factory=list)
    reason: str | None = None  # exactly once: it is a dead letter of the transaction


@dataclass
class _Reading:
    """A partition that this process has: where it began, what it fetches next, and what is not settled."""

    began: int
    next: int
    beyond: frozenset[int]
    open: dict[int, None] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)

    def position(self) -> CommittedOffset:
        low = next(iter(self.open), self.next)
        return CommittedOffset(low, frozenset(n for n in self.settled | self.beyond if n > low))


class Process:
    """A member of a group. `steps` runs it; `die` leaves nothing behind but what brokers and databases have."""

    def __init__(
        self,
        name: str,
        consumer: Consumer[..., Any],
        *,
        log: Log,
        group: GroupModel,
        into: Database | None,
        chance: random.Random,
        outcome: Consumed,
    ) -> None:
        self.name = name
        self.half_call: tuple[list[_Taken], Callable[[], Any]] | None = None
        self._consumer = consumer
        self._log = log
        self._group = group
        self._into = into
        self._chance = chance
        self._outcome = outcome
        self._generation = -1
        self._parts: dict[Part, _Reading] = {}
        self._session: DatabaseSession | None = None
        self._uncommitted = False
        self._busy = False
        self._is_async = consumer.is_async
        self._once = consumer.delivery == "exactly_once"
        self._at_most_once = consumer.delivery == "at_most_once"

    @property
    def transactional_id(self) -> str:
        return f"{self._consumer.name}/{self.name}"

    @property
    def has_work(self) -> bool:
        """True if records are in hand, or settled and not committed. A process without work may leave the group."""
        return self._busy or self._uncommitted

    def die(self) -> None:
        """End the process: a database ends its session. Brokers notice later."""
        if self._session is not None:
            self._session.rollback()

    def overtaken(self) -> None:
        """Let the sessions of this process expire, while it is stopped."""
        self._group.leave(self.name)
        if self._session is not None:
            self._session.rollback()

    # The loop --------------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[str]:
        self._group.enter(self.name)
        while True:
            try:
                if self._must_rejoin():
                    yield from self._rejoin()
                taken = self._poll()
                if taken:
                    self._busy = True
                    yield "polled"
                    yield from self._deliver(taken)
                    self._busy = False
                elif self._uncommitted:
                    yield from self._commit()
                else:
                    yield IDLE
            except Fenced:
                self._outcome.fenced += 1
                self._forget()

    def _deliver(self, taken: list[_Taken]) -> Iterator[str]:
        if self._into is not None:
            return self._into_database(taken, self._into)
        if self._once:
            return self._to_topic(taken)
        return self._at_most(taken) if self._at_most_once else self._at_least(taken)

    # The group -------------------------------------------------------------------------------------------------------

    def _must_rejoin(self) -> bool:
        group = self._group
        return group.rebalancing or self._generation != group.generation or self.name not in group.assignment

    def _rejoin(self) -> Iterator[str]:
        """Commit what is settled, give partitions up, and wait for the next generation."""
        group = self._group
        if self.name not in group.assignment:
            self._forget()
            group.enter(self.name)
        if self._uncommitted:
            yield from self._commit()
        while True:
            while group.rebalancing:
                if not group.is_cooperative:
                    self._parts.clear()
                group.join(self.name)
                while self.name in group.waiting:
                    yield IDLE
                mine = group.assignment.get(self.name, set())
                self._parts = {part: reading for part, reading in self._parts.items() if part in mine}
            if self.name not in group.assignment:
                raise Fenced(f"{self.name} waited too long")
            if not group.pending.keys() & group.assignment[self.name]:
                break
            yield IDLE  # the positions of an open transaction are not known yet
        self._generation = group.generation
        mine = group.assignment[self.name]
        self._parts = {part: self._parts.get(part) or self._reading(part) for part in sorted(mine)}

    def _forget(self) -> None:
        self._parts.clear()
        self._uncommitted = self._busy = False
        self._generation = -1
        if self._session is not None:
            self._session.rollback()
            self._session = None
        self._log.transactions.expire(self.transactional_id)

    def _reading(self, part: Part) -> _Reading:
        committed = self._group.committed[part]
        if self._into is not None:
            stored = self._into.position(self._consumer.name, part)
            committed = committed if stored is None else CommittedOffset(stored)
        log = self._log.partition(*part).log
        if not log.start <= committed.offset <= log.end:
            raise self._not_there(part, committed.offset, log.start, log.end)
        return _Reading(committed.offset, committed.offset, committed.beyond)

    def _not_there(self, part: Part, offset: int, start: int, end: int) -> LogError:
        return LogError(
            "log-overtaken" if offset < start else "position-beyond-log",
            f"{part[0]}/{part[1]} holds offsets {start:,} to {end:,}, and the position of {self._consumer.name} is "
            f"{offset:,}",
            why="retention deleted records that were not handled"
            if offset < start
            else "acknowledged records are lost",
            fix="real consumers refuse this too; give the test a longer retention, or no unclean election",
            source=self._consumer.source,
        )

    # Taking records --------------------------------------------------------------------------------------------------

    def _poll(self) -> list[_Taken]:
        most = self._chance.randrange(1, _MOST_AT_ONCE + 1)
        taken: list[_Taken] = []
        parts = list(self._parts)
        self._chance.shuffle(parts)
        for part in parts:
            if len(taken) >= most:
                break
            reading = self._parts[part]
            for entry in self._log.fetch(part, reading.next)[: most - len(taken)]:
                reading.next = entry.offset + 1
                if entry.offset in reading.beyond:
                    continue
                one = self._taken(part, entry)
                if one.record.outcome != "accepted" and self._consumer.late == "skip":
                    self._outcome.skipped.add(one.record.id)
                    continue
                reading.open[entry.offset] = None
                taken.append(one)
        return taken

    def _taken(self, part: Part, entry: LogEntry) -> _Taken:
        record = Record(
            topic=part[0],
            partition=part[1],
            offset=entry.offset,
            key=entry.key,
            log_time=from_micros(entry.log_us),
            outcome=self._log.judged(part[0], entry),
        )
        return _Taken(part, entry, record, entry.value)

    def _calls(self, taken: list[_Taken]) -> Iterator[list[_Taken]]:
        """Yield the records of each call of the handler, in an order that the declaration allows."""
        consumer = self._consumer
        if consumer.batch is not None:
            for part in dict.fromkeys(one.part for one in taken):
                mine = [one for one in taken if one.part == part]
                for at in range(0, len(mine), consumer.batch.most):
                    yield mine[at : at + consumer.batch.most]
            return
        if consumer.parallel == 1:
            yield from ([one] for one in taken)
            return
        lanes: dict[Any, list[_Taken]] = {}
        for one in taken:
            keyed = consumer.order == "key" and one.entry.key is not None
            lane = one.record.id if consumer.order == "none" else one.entry.key if keyed else one.part
            lanes.setdefault(lane, []).append(one)
        while lanes:
            lane = self._chance.choice(list(lanes))
            yield [lanes[lane].pop(0)]
            if not lanes[lane]:
                del lanes[lane]

    # Calling the handler ---------------------------------------------------------------------------------------------

    def _call(self, works: list[_Taken]) -> Iterator[str]:
        """Call the handler until it returns, or the record is given up. `reason` says so then."""
        consumer = self._consumer
        attempt = not_now = 0
        while True:
            attempt += 1
            call = self._bound(works, attempt)
            self.half_call = works, call
            yield "handler half done"
            if self._session is not None:
                self._session.savepoint()
            try:
                returned = call()
            except Fenced:
                raise
            except NotNow:
                attempt, not_now = attempt - 1, not_now + 1
                if not_now >= _MOST_NOT_NOW:
                    raise
                self._undo()
            except Exception as error:
                self._undo()
                final = isinstance(error, Unprocessable) or self._at_most_once
                if not final and attempt < consumer.retry.attempts:
                    continue
                if consumer.failure == "stop":
                    raise
                for one in works:
                    one.reason = f"{type(error).__name__}: {error}"
                return
            else:
                for one in works:
                    self._outcome.calls[one.record.id] += 1
                    if not self._once:
                        self._outcome.effects[one.record.id] += 1
                works[0].output = _events(returned) if consumer.to is not None else []
                yield "handler done"
                return

    def _undo(self) -> None:
        if self._session is not None:
            self._session.undo()

    def _bound(self, works: list[_Taken], attempt: int) -> Callable[[], Any]:
        """Return a call of the handler in the form that it has."""
        consumer = self._consumer
        arguments: list[Any] = [works[0].event] if consumer.batch is None else [[one.event for one in works]]
        if consumer.wants_record:
            records = [_at(one.record, attempt) for one in works]
            arguments.append(records[0] if consumer.batch is None else records)
        if self._session is not None:
            arguments.append(self._session)
        handler: Callable[..., Any] = consumer.function
        if self._is_async:
            return lambda: asyncio.run(handler(*arguments))
        return lambda: handler(*arguments)

    def _settle(self, one: _Taken) -> None:
        reading = self._parts[one.part]
        reading.open.pop(one.entry.offset)
        reading.settled.add(one.entry.offset)

    # Deliveries ------------------------------------------------------------------------------------------------------

    def _at_most(self, taken: list[_Taken]) -> Iterator[str]:
        touched = {one.part for one in taken}
        yield from self._commit_positions({p: CommittedOffset(self._parts[p].next) for p in touched})
        yield "position committed"
        yield from self._handle(taken)

    def _handle(self, taken: list[_Taken]) -> Iterator[str]:
        for works in self._calls(taken):
            yield from self._call(works)
            yield from self._bury(works)
            for one in works:
                self._settle(one)
            yield "settled"

    def _at_least(self, taken: list[_Taken]) -> Iterator[str]:
        for works in self._calls(taken):
            yield from self._call(works)
            yield from self._bury(works)
            for one in works:
                self._settle(one)
            self._uncommitted = True
            yield "settled"
            if self._chance.random() < _COMMIT_SHARE:
                yield from self._commit()

    def _bury(self, works: list[_Taken]) -> Iterator[str]:
        for one in works:
            if one.reason is not None:
                self._outcome.dead[one.record.id] = one.reason
        if works[0].reason is not None:
            yield "dead letter acknowledged"

    def _to_topic(self, taken: list[_Taken]) -> Iterator[str]:
        """Handle a slice; then what came of it and its positions are one transaction."""
        generation = self._generation  # as it was when the records were taken
        for works in self._calls(taken):
            yield from self._call(works)
            for one in works:
                self._settle(one)
            yield "settled"
        transactions, to = self._log.transactions, self._consumer.to
        assert to is not None
        identity = transactions.init(self.transactional_id)
        transactions.begin(identity)
        for event in (event for one in taken for event in one.output):
            partition, draft = self._log.draft(to, event)
            transactions.write(identity, partition, [draft])
        yield "records written"
        positions = {part: self._parts[part].position() for part in {one.part for one in taken}}
        transactions.send_offsets(identity, self._group, positions, member=self.name, generation=generation)
        yield "commit due"

        def commit() -> None:
            transactions.commit(identity)
            self._took_effect(taken)

        yield from self._sent(commit)
        yield "committed"

    def _into_database(self, taken: list[_Taken], database: Database) -> Iterator[str]:
        """Handle a slice in one transaction of a database, which holds the positions too."""
        while (session := database.begin()) is None:
            yield IDLE
        self._session = session
        yield "position locked"
        yield from self._handle(taken)
        for part in {one.part for one in taken}:
            reading = self._parts[part]
            session.move(self._consumer.name, part, expected=reading.began, to=reading.next)
        yield "position moved"

        def commit() -> None:
            session.commit()
            self._session = None
            self._took_effect(taken)

        yield from self._sent(commit)
        for part in {one.part for one in taken}:
            self._parts[part].began = self._parts[part].next
        yield "committed"

    def _took_effect(self, taken: list[_Taken]) -> None:
        for one in taken:
            if one.reason is None:
                self._outcome.effects[one.record.id] += 1
            else:
                self._outcome.dead[one.record.id] = one.reason

    # Positions -------------------------------------------------------------------------------------------------------

    def _commit(self) -> Iterator[str]:
        """At least once: commit the lowest offset that is not settled, and what is settled beyond it."""
        positions = {part: reading.position() for part, reading in self._parts.items()}
        self._uncommitted = False
        yield from self._commit_positions(positions)

    def _commit_positions(self, positions: dict[Part, CommittedOffset]) -> Iterator[str]:
        yield "commit due"
        yield from self._sent(lambda: self._group.commit(self.name, self._generation, positions))
        yield "committed"

    def _sent(self, commit: Callable[[], None]) -> Iterator[str]:
        """Send a commit. A process that dies before the answer does not know whether it took effect."""
        early = self._chance.random() < 0.5
        if early:
            commit()
        yield "commit sent"
        if not early:
            commit()


def _at(record: Record, attempt: int) -> Record:
    return record if attempt == 1 else replace(record, attempt=attempt)


def _events(returned: Any) -> list[Event]:
    """Return what a handler returned as a list: an event, several, or None."""
    if returned is None:
        return []
    several = isinstance(returned, Iterable) and not isinstance(returned, Event)  # an event can be iterated over
    return list(returned) if several else [returned]
