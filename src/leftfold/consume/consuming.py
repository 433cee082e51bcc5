"""One consumer in this process: takes records, has them handled, settles them, commits positions.

One thread owns the client and every decision. Each turn of `run` does the following, in this order:

1. Collect what workers reported: settle handled records; retry failed ones, or write them as dead letters.
2. Commit the lowest offset that is not settled, if a commit is due (at least once).
3. Poll: partitions are assigned and revoked inside of this call only.
4. Judge and decode what came. At most once: commit the position after these records, and wait for the answer.
5. Hand the records to the workers.

A consumer with a database (`into`) has its records booked in step 5, with the position: see `sql_threads`. Step 2 then
tells the group what is booked, and passes over settled records that left nothing to book.

A death after step 3 leaves nothing behind. At least once, a death after step 5 and before the next commit means that
records are handled again. At most once, a death after step 4 means that records are never handled.
"""

from __future__ import annotations

import heapq
import random
import secrets
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from leftfold import clock
from leftfold.consume.booking import SLICE, DatabaseAway, PartitionOvertaken, RecordAtFault, RejectedRecord
from leftfold.consume.breaker import Breaker, Budget
from leftfold.consume.clients import ConsumerNames, LogClients
from leftfold.consume.judging import EventJudge
from leftfold.consume.lanes import Lanes, Work
from leftfold.consume.progress import ConsumerProgress
from leftfold.consume.settled import Committed, Settled, encoded
from leftfold.consume.slices import Slice, SliceWriter
from leftfold.consume.starts import Starts
from leftfold.consume.workers import Tasks, Threads
from leftfold.declare.consumer import Consumer
from leftfold.declare.first_log import header_of, log_time_of
from leftfold.declare.record import NotNow, Record, Unprocessable
from leftfold.errors import LeftfoldError, LogError, RunError
from leftfold.fold.expressions import from_micros
from leftfold.kafka.consumer_log import PAUSED
from leftfold.kafka.dead_letters import DeadLetter, DeadLetterWriter, FirstPlace, RecordPlace, redriven_from
from leftfold.kafka.group import GroupEvents, LogPartition, Member, Position
from leftfold.kafka.log_reader import headers_of

if TYPE_CHECKING:
    from pydantic import SecretStr

    from leftfold.consume.sql_rows import SqlRows

_COMMIT_EVERY_S = 1.0
_COMMIT_EVERY = 1_000  # records
_COMMIT_IDLE_S = 3_600.0  # brokers forget positions that are not committed for a week
_LAST_COMMIT_S = 5.0  # how long giving up a partition waits for a coordinator
_TURN_S = 0.1
_BUSY_TURN_S = 0.01
_UNSERVED_S = 1.0  # how long the group may wait for this member to poll while it has no room for records
_MOST_AT_ONCE = 1_000
_MOST_BYTES = 64 * 1_024 * 1_024  # of records in flight
_WIDEST = 20_000  # offsets between the committed position and the newest record that was taken
_DATABASE_S = 120.0  # how long an assignment waits for the consumer's database, and for its row
_REGISTRY_S = 1.0  # between two questions to a registry that does not answer


class Consuming(GroupEvents):
    """A consumer that runs in this process. `run` ends when it was stopped or has caught up; it raises if it fails."""

    def __init__(
        self,
        consumer: Consumer[..., Any],
        names: ConsumerNames,
        clients: LogClients,
        *,
        database: SecretStr | None = None,
        until_caught_up: bool = False,
    ) -> None:
        self.progress = ConsumerProgress(consumer.name)
        self._consumer = consumer
        self._names = names
        self._clients = clients
        self._until_caught_up = until_caught_up
        self._at_most_once = consumer.delivery == "at_most_once"
        self._rows = None if database is None else _rows(consumer, names, database)  # exactly once into a database
        # The group's position follows what is settled. Else it is committed before, or in a transaction of Kafka.
        self._follows = consumer.delivery == "at_least_once" or self._rows is not None
        self._slices: SliceWriter | None = None  # exactly once into a topic
        self._slice: Slice | None = None
        self._stop = threading.Event()
        self._parts: dict[LogPartition, Settled] = {}
        self._ended: set[LogPartition] = set()  # partitions of which every record was fetched
        self._goals: dict[LogPartition, int] = {}  # for `until_caught_up`: where the log ended at the start
        self._in_flight = self._in_flight_bytes = 0
        self._drained = False
        self._uncommitted = 0  # records settled since the last commit
        self._last_commit = self._last_poll = clock.monotonic()
        self._sent: dict[LogPartition, Position] = {}
        self._not_yet: list[Any] = []  # messages that wait for the registry
        self._ask_again = 0.0
        self._last_look = float("-inf")  # at the positions of other members
        self._token = secrets.token_hex(8)
        self._to_commit: list[Work] = []  # at most once: records whose position is not committed yet
        self._held: list[tuple[float, int, list[Work]]] = []
        self._holds = 0
        self._stalled = False
        self._paused = False
        self._starts = Starts(consumer, names, clients, self._rows)
        self._judges = {name: EventJudge(topic, clients.registry) for name, topic in names.sources.items()}
        batch = consumer.batch
        # Records are taken, and results collected, in pieces: a turn of the loop costs as much as many records.
        self._least_room = max(1, consumer.in_flight // 8)
        self._lanes = Lanes(
            exclusive=consumer.order != "none",
            batch=batch.most if batch is not None else None if self._rows is None else SLICE,
            whole=self._rows is None,
            within_s=0.0 if batch is None else batch.within_s,
            report_at=self._least_room,
        )
        self._turn_s = _TURN_S if batch is None else min(_TURN_S, batch.within_s)
        self._breaker, self._budget = Breaker(), Budget(consumer.most_dead)

    def _start_workers(self) -> Threads | Tasks:
        consumer = self._consumer
        if self._rows is not None:
            from leftfold.consume.sql_threads import SqlThreads

            return SqlThreads(self._lanes, self._rows, self._book(), number=consumer.parallel, name=consumer.name)
        call = self._call()
        if consumer.is_async:
            return Tasks(self._lanes, call, number=consumer.parallel, timeout_s=consumer.timeout_s, name=consumer.name)
        return Threads(
            self._lanes, call, number=consumer.parallel, batches=consumer.batch is not None, name=consumer.name
        )

    def _call(self) -> Callable[[list[Work]], Any]:
        """Return the function that calls the handler, in the form that the handler has."""
        handler: Callable[..., Any] = self._consumer.function
        if self._slices is not None:
            return self._call_and_encode(handler, self._slices)
        if self._consumer.batch is not None:
            if self._consumer.wants_record:
                return lambda works: handler([w.event for w in works], [self._record(w) for w in works])
            return lambda works: handler([w.event for w in works])
        if self._consumer.wants_record:
            return lambda works: handler(works[0].event, self._record(works[0]))
        return lambda works: handler(works[0].event)

    def _book(self) -> Callable[[Work, Any], Any]:
        """Return the function that calls the handler with a connection to its database."""
        handler: Callable[..., Any] = self._consumer.function
        if self._consumer.wants_record:
            return lambda work, connection: handler(work.event, self._record(work), connection)
        return lambda work, connection: handler(work.event, connection)

    def _call_and_encode(self, handler: Callable[..., Any], slices: SliceWriter) -> Callable[[list[Work]], Any]:
        """Return a function that calls the handler and keeps what it returns, encoded."""

        def arguments(work: Work) -> tuple[Any, ...]:
            return (work.event, self._record(work)) if self._consumer.wants_record else (work.event,)

        def call(works: list[Work]) -> None:
            works[0].output = slices.encoded(handler(*arguments(works[0])))

        async def call_async(works: list[Work]) -> None:
            works[0].output = slices.encoded(await handler(*arguments(works[0])))

        return call_async if self._consumer.is_async else call

    # The loop --------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask `run` to end: calls under way may finish, then positions are committed."""
        self._stop.set()

    def run(self) -> None:
        try:
            self._open()
            try:
                while not self._stop.is_set() and not self._is_caught_up():
                    self._turn()
                self._drain(lambda _: True)
                self._write_slice()
            except LeftfoldError as error:
                self.progress.error = error
                raise
            finally:
                self._leave()
        except LeftfoldError as error:
            self.progress.state, self.progress.error = "failed", error
            raise
        self.progress.state = "stopped" if self._stop.is_set() else "caught up"

    def _open(self) -> None:
        topics = [*self._names.sources, self._names.again]
        self._check_applied([*topics, self._names.dead, *([self._names.to] if self._names.to else ())])
        if self._consumer.to is not None:
            self._slices = SliceWriter(self._consumer, self._names, self._clients)
        if self._rows is not None:
            self._rows.open()
        if self._until_caught_up:
            self._goals = self._ends(topics)
        self._letters = DeadLetterWriter(self._clients.kafka, self._names.dead)
        self._followed = self._clients.notes.follow(self._consumer.name)
        self._workers = self._start_workers()
        self._member = Member(self._clients.kafka, self._names.group, topics, self)

    def _leave(self) -> None:
        """Commit what is settled and leave the group. An error on the way out does not hide the one before it."""
        try:
            self._commit_now(self._parts)
            self._member.close()
        except LeftfoldError:
            if self.progress.error is None:
                raise
        finally:
            self._followed.close()
            self._lanes.close()
            self._workers.close()
            if self._slices is not None:
                self._slices.close()

    def _turn(self) -> None:
        self._collect()
        self._look_at_pause()
        self._lanes.tick()
        self._workers.watch(self._consumer.timeout_s)
        self._retry_due()
        if self._to_commit:
            self._commit_slice()
        elif self._slice is not None:
            self._write_slice()
        elif self._follows or not self._in_flight:
            self._commit_if_due()
        if self._not_yet and clock.monotonic() >= self._ask_again:
            self._take([])
        room = self._room()
        if room <= 0:
            self._wait_for_room()
            return
        if self._stalled:
            self._stalled = False
            self._member.resume(self._parts)
        self._last_poll = clock.monotonic()
        # While workers are busy, their failures and successes are not to wait for records that do not come.
        wait_s = _BUSY_TURN_S if self._in_flight else self._turn_s
        self._take(self._member.poll(min(room, _MOST_AT_ONCE), wait_s))
        self._measure()

    def _room(self) -> int:
        """Return how many records may be taken now."""
        if self._paused or self._breaker.is_open or self._to_commit or self._not_yet or self._slice is not None:
            return 0
        if any(part.next - part.committed > _WIDEST for part in self._parts.values()) and not self._at_most_once:
            return 0
        room = self._consumer.in_flight - self._in_flight if self._in_flight_bytes < _MOST_BYTES else 0
        if self._in_flight and room < self._least_room:
            return 0
        # After a stall, fetching begins again only when there is room for many: each pause drops what was fetched.
        return 0 if self._stalled and room < self._consumer.in_flight // 2 else room

    def _wait_for_room(self) -> None:
        """Wait for workers. The group is served inside of `poll` only, so it is called with everything paused."""
        # Into a database, a partition waits for its dead letter, and no worker tells when that is there.
        self._lanes.wait(_BUSY_TURN_S if self._rows is not None and not self._breaker.is_open else self._turn_s)
        if clock.monotonic() - self._last_poll > _UNSERVED_S:
            if not self._stalled:
                self._stalled = True
                self._member.pause(self._parts)
            self._last_poll = clock.monotonic()
            self._take(self._member.poll(_MOST_AT_ONCE, 0))
            self._measure()

    def _look_at_pause(self) -> None:
        self._followed.look()
        paused = PAUSED in self._followed.documents
        if paused != self._paused:
            self._paused = paused
            self._lanes.halt(paused or self._breaker.is_open)

    # Taking records --------------------------------------------------------------------------------------------------

    def _take(self, messages: list[Any]) -> None:
        works: list[Work] = []
        if self._slices is not None and self._slice is None:
            # Right after the poll, which has served all changes of the assignment that came before these records.
            self._slice = Slice(self._member.metadata())
        messages, self._not_yet = [*self._not_yet, *messages], []
        for number, message in enumerate(messages):
            if message.error() is not None:
                self._note_end(message)
                continue
            try:
                work = self._judged(message)
            except LogError as error:  # the registry does not answer: no reason to reject a record
                if not error.retriable:
                    raise
                self._not_yet, self._ask_again = messages[number:], clock.monotonic() + _REGISTRY_S
                break
            if work is not None:
                works.append(work)
        if self._slice is not None:
            self._slice.works.extend(works)
            self._write_slice()
        if not works:
            return
        if self._at_most_once:
            self._to_commit.extend(works)
            self._commit_slice()
        else:
            self._lanes.put(works)

    def _note_end(self, message: Any) -> None:
        part = LogPartition(message.topic(), message.partition())
        if self._member.ended(message) and part in self._parts:
            self._ended.add(part)
            self._parts[part].reach(message.offset())

    def _judged(self, message: Any) -> Work | None:
        """Return a record as work for the handler; None if it is settled, or on its way into the dead letters."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        part = self._parts.get((topic, partition))  # type: ignore[call-overload] # an equal tuple, made in half the time
        if part is None or offset < part.next:
            return None  # of an assignment that is over, or fetched a second time after a pause
        kind, log_ms = message.timestamp()
        log_us, by_broker = log_ms * 1_000, kind == _BY_BROKER
        first = None
        if topic == self._names.again:
            first = redriven_from(message)
            if first is None or first.place.topic not in self._judges:
                part.reach(offset + 1)
                return None
            topic, log_us, by_broker = first.place.topic, first.log_us, first.by_broker
        judge = self._judges[topic]
        if first is None and judge.first_log:
            log_us, by_broker = log_time_of(header_of(headers_of(message)), log_us, by_broker=by_broker)
        key = message.key()
        event, outcome, reason = judge(key, message.value(), log_us, by_broker)
        if not part.take(offset, log_us):
            return None
        if outcome != "accepted" and self._consumer.late == "skip" and event is not None:
            part.settle(offset)
            self.progress.skipped += 1
            return None
        work = Work(part, offset, self._lane(key, topic, partition), event, outcome, message)
        work.log_us, work.by_broker = log_us, by_broker
        self._in_flight += 1
        self._in_flight_bytes += len(message)
        if event is None and self._rows is not None:
            work.event = RejectedRecord(reason or "")
        elif event is None:
            self._bury(work, "rejected", reason or "", attempts=0)
            return None
        return work

    def _lane(self, key: bytes | None, topic: str, partition: int) -> Hashable:
        if self._consumer.order == "key" and key is not None:
            return key
        return topic, partition

    # Results ---------------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Settle what workers have handled and what brokers have acknowledged, and decide about failures."""
        done, failed = self._lanes.done, self._lanes.failed
        handled = size = 0
        while done:
            work = done.popleft()
            size += len(work.message)
            self._in_flight -= 1
            if work.part.owned:
                work.part.settle(work.offset)
                handled += 1
        self._in_flight_bytes -= size
        if handled:
            self.progress.handled += handled
            self._uncommitted += handled
            self._budget.handled(handled)
            was_open = self._breaker.is_open
            self._breaker.succeeded(clock.monotonic())
            if was_open:
                self._lanes.halt(self._paused)
                self._held = [(0.0, number, works) for _, number, works in self._held]
        while failed:
            self._decide(*failed.popleft())
        self._letters.look()
        while self._letters.acknowledged:
            work = self._letters.acknowledged.popleft()
            self._let_go((work,))
            self._uncommitted += 1
            self.progress.dead += 1
            if work.part.owned:
                work.part.settle(work.offset)
            if self._rows is not None:
                self._lanes.let_go([work])

    def _decide(self, works: list[Work], error: BaseException) -> None:
        """Decide about records whose call failed: hand them over again later, or give them up."""
        first, now, retry = works[0], clock.monotonic(), self._consumer.retry
        if isinstance(error, LeftfoldError):
            raise error
        if not first.part.owned:
            self._forget(works)
            self._breaker.next_try = min(self._breaker.next_try, now)  # it may have been the one that was tried
            return
        if isinstance(error, NotNow | Unprocessable):  # if it was the one that was tried, it has told nothing
            self._breaker.next_try = min(self._breaker.next_try, now + 1.0)
        if isinstance(error, NotNow):
            self._hold(works, now + error.after_s)
            return
        if self._rows is not None and self._is_no_failure(first, error, now):
            return
        error = error.error if isinstance(error, RecordAtFault) else error
        if not isinstance(error, Unprocessable):  # that is about the record, not about what the handler calls
            self._breaker.failed(first.lane, now)
            self._lanes.halt(self._paused or self._breaker.is_open)
        for work in works:
            work.failures += 1
            work.failing_since = work.failing_since or now
        self.progress.failures += 1
        final = isinstance(error, Unprocessable) or self._at_most_once
        spent = first.failures >= retry.attempts and self._breaker.may_give_up(first.failing_since)
        if not final and not spent:
            wait = retry.wait_s(min(first.failures, retry.attempts), random.uniform(-1, 1))
            self._hold(works, now + wait)
        elif len(works) > 1 and not self._at_most_once:
            for work in works:  # which of them it was is found by handing them over one by one
                work.alone, work.failures, work.failing_since = True, 0, 0.0
            self._lanes.again(works)
        else:
            self._give_up(works, error)

    def _is_no_failure(self, work: Work, error: BaseException, now: float) -> bool:
        """Decide about a record that was not booked, and whose handler has not failed. Returns False if it has."""
        if isinstance(error, DatabaseAway):
            self._breaker.away(now)
            self._lanes.halt(True)
            self._hold([work], now)
        elif isinstance(error, PartitionOvertaken):  # the group is about to take the partition away
            work.failing_since = work.failing_since or now
            if now - work.failing_since > _DATABASE_S:
                assert self._rows is not None
                raise self._rows.overtaken(work.part)
            self._hold([work], now + 1.0)
        elif isinstance(error, RejectedRecord):
            self._bury(work, "rejected", str(error), attempts=0)
        else:
            self._breaker.back()
            if isinstance(error, RecordAtFault):
                self._breaker.succeeded(now)
            self._lanes.halt(self._paused or self._breaker.is_open)
            return False
        return True

    def _give_up(self, works: list[Work], error: BaseException) -> None:
        reason = f"{type(error).__name__}: {_first_line(error)}"
        if self._consumer.failure == "stop":
            raise RunError(
                "handler-failed",
                f"{self._consumer.name} failed for {self._place(works[0])}, at attempt {works[0].failures}",
                why=reason,
                state='nothing is committed past it; failure="stop" is declared',
                fix="correct the handler and start it again",
            ) from error
        for work in works:
            self._bury(work, "failed", reason, attempts=work.failures)
        if self._rows is None:  # else it waits for the dead letter: no position may pass it before that is there
            self._lanes.let_go(works)

    def _bury(self, work: Work, outcome: str, reason: str, *, attempts: int) -> None:
        """Write a dead letter. Its record is settled once all in-sync replicas have it."""
        if not self._budget.dead():
            raise RunError(
                "too-many-dead",
                f"{self._consumer.name} would write more dead letters than most_dead allows",
                why=f"{self._budget.recent:,} of the last 10,000 records are dead letters, the last "
                f"{self._budget.run:,} in a row; the newest reason is {reason}",
                state="nothing is committed past the record that failed",
                fix=f"leftfold dead list {self._consumer.name} shows them; correct the handler or the records, or "
                "declare a larger lf.MostDead",
            )
        message, first = work.message, self._first_place(work)
        letter = DeadLetter(
            place=self._place(work) if first is None else first.place,
            outcome=outcome,
            reason=reason,
            attempts=attempts + (0 if first is None else first.attempts),
            log_us=work.log_us,
            by_broker=work.by_broker,
            key=message.key(),
            value=message.value(),
            headers=headers_of(message) if first is None else first.headers,
        )
        if self._slice is None:
            self._letters.write(letter, work)
            return
        # Exactly once: it is written with the rest of the slice.
        self._slice.letters.append((work, letter))
        self._let_go((work,))
        self.progress.dead += 1
        work.part.settle(work.offset)

    def _first_place(self, work: Work) -> FirstPlace | None:
        """Return what is known of a re-driven record; None for any other."""
        return redriven_from(work.message) if work.part.topic == self._names.again else None

    def _place(self, work: Work) -> RecordPlace:
        return RecordPlace(work.part.topic, work.part.partition, work.offset)

    def _forget(self, works: list[Work]) -> None:
        """Drop records of a partition that is no longer ours."""
        self._let_go(works)
        self._lanes.let_go(works)

    def _let_go(self, works: Iterable[Work]) -> None:
        """Count records that are no longer in flight."""
        for work in works:
            self._in_flight -= 1
            self._in_flight_bytes -= len(work.message)

    def _hold(self, works: list[Work], due: float) -> None:
        self._holds += 1
        heapq.heappush(self._held, (due, self._holds, works))

    def _retry_due(self) -> None:
        now = clock.monotonic()
        if self._paused:
            return
        if self._breaker.is_open:
            if now >= self._breaker.next_try:
                self._try_one()
            return
        while self._held and self._held[0][0] <= now:
            works = heapq.heappop(self._held)[2]
            if works[0].part.owned:
                self._lanes.again(works)
            else:
                self._forget(works)

    def _try_one(self) -> None:
        """Hand over one record while the breaker is open: its outcome shows whether the handler works again."""
        while self._held:
            works = heapq.heappop(self._held)[2]
            if works[0].part.owned:
                self._breaker.try_one()
                self._lanes.again(works, probe=True)
                return
            self._forget(works)
        # Nothing is held back: at most once, or what failed belongs to another member now.
        self._breaker.let_through()
        self._lanes.halt(self._paused)

    def _record(self, work: Work) -> Record:
        """Return what a handler may ask about a record."""
        message = work.message
        first = self._first_place(work)
        place = self._place(work) if first is None else first.place
        headers = headers_of(message) if first is None else first.headers
        return Record(
            topic=place.topic,
            partition=place.partition,
            offset=place.offset,
            key=message.key(),
            log_time=from_micros(work.log_us),
            outcome=cast(Any, work.outcome),
            attempt=work.failures + 1 + (0 if first is None else first.attempts),
            redriven=first is not None,
            headers=dict(headers),
        )

    # Positions -------------------------------------------------------------------------------------------------------

    def _commit_if_due(self) -> None:
        now = clock.monotonic()
        waited = now - self._last_commit
        if waited < _COMMIT_EVERY_S and self._uncommitted < _COMMIT_EVERY:
            return
        self._pass_over(self._parts)
        positions = self._positions(self._parts)
        changed = {part: at for part, at in positions.items() if at != self._sent.get(part)}
        if not changed and waited < _COMMIT_IDLE_S:
            self._last_commit = now
            return
        if self._member.commit_soon(changed or positions):
            self._last_commit, self._uncommitted = now, 0
            self._sent |= changed

    def _positions(self, parts: Mapping[LogPartition, Settled]) -> dict[LogPartition, Position]:
        at = {
            part: s.position() if self._rows is None else Committed(s.booked, s.topic_id)
            for part, s in parts.items()
            if s.owned
        }
        return {part: Position(position.offset, encoded(position)) for part, position in at.items()}

    def _pass_over(self, parts: Mapping[LogPartition, Settled]) -> None:
        """Move positions in the consumer's database past settled records after which nothing was booked."""
        if self._rows is None:
            return
        try:
            for part in parts.values():
                if part.owned and not part.in_flight and part.low > part.booked:
                    self._rows.pass_over(part)
        except DatabaseAway:
            pass  # with the next commit, or by the next owner

    def committed(self, offsets: dict[LogPartition, int]) -> None:
        for part, offset in offsets.items():
            if part in self._parts:
                self._parts[part].committed = offset

    def not_committed(self) -> None:
        self._sent.clear()  # so that the next commit sends them again

    def _commit_now(self, parts: Mapping[LogPartition, Settled]) -> None:
        """Commit what is settled of these partitions, and wait for the answer."""
        if not self._follows or not parts:
            return  # their positions are committed before the handler is called, or in a transaction
        self._pass_over(parts)
        positions = self._positions(parts)
        if positions and self._member.commit(positions, patience_s=_LAST_COMMIT_S):
            self.committed({part: at.offset for part, at in positions.items()})

    def _commit_slice(self) -> None:
        """At most once: commit the position after the records in hand, and only then hand them over."""
        touched = {LogPartition(w.part.topic, w.part.partition): w.part for w in self._to_commit}
        positions = {
            part: Position(s.next, encoded(Committed(s.next, s.topic_id), self._token)) for part, s in touched.items()
        }
        if positions and not self._member.commit(positions):
            # The answer may have been lost after the commit took effect. Then the position is there with our token. An
            # offset alone could be that of another member, which handles these records.
            there = self._member.committed(positions)
            if any(there.get(part) != at for part, at in positions.items()):
                return  # tried again in the next turn, unless the partitions are revoked
        works, self._to_commit = self._to_commit, []
        self.committed({part: at.offset for part, at in positions.items()})
        if works:
            self._lanes.put(works)

    def _write_slice(self) -> None:
        """Exactly once: write what came of the slice in hand, once all of its records are settled."""
        piece = self._slice
        if piece is None or not piece.is_settled:
            return
        assert self._slices is not None
        if not piece.works and not piece.letters:
            self._slice = None
        elif self._slices.write(piece, self._member):
            self.committed({LogPartition(w.part.topic, w.part.partition): w.part.low for w in piece.works})
            self._slice = None

    # The group -------------------------------------------------------------------------------------------------------

    def assigned(self, parts: list[LogPartition]) -> dict[LogPartition, int]:
        self.progress.rebalances += 1
        starts = self._chosen(parts)
        self._parts |= starts
        self._count_partitions()
        return {part: settled.next for part, settled in starts.items()}

    def _chosen(self, parts: list[LogPartition]) -> dict[LogPartition, Settled]:
        """Choose where partitions begin. Waits for a database that is away."""
        deadline = clock.monotonic() + _DATABASE_S
        while True:
            try:
                return self._starts.choose(parts, self._member)
            except DatabaseAway as error:
                self.progress.waiting = True
                if clock.monotonic() > deadline:
                    assert self._rows is not None
                    raise self._rows.away(error) from error
                if self._stop.wait(1.0):
                    return {}

    def revoked(self, parts: list[LogPartition]) -> None:
        gone = {part: self._parts[part] for part in parts if part in self._parts}
        leaving = set(gone.values())
        self._drain(lambda work: work.part in leaving)
        self._write_slice()
        self._commit_now(gone)
        self._release(gone)

    def lost(self, parts: list[LogPartition]) -> None:
        self._release({part: self._parts[part] for part in parts if part in self._parts})

    def _release(self, gone: Mapping[LogPartition, Settled]) -> None:
        for part, settled in gone.items():
            settled.owned = False
            self._sent.pop(part, None)
            self._ended.discard(part)
            del self._parts[part]
        self._let_go(self._lanes.drop(lambda work: not work.part.owned))
        self._let_go(work for work in self._to_commit if not work.part.owned)
        self._to_commit = [work for work in self._to_commit if work.part.owned]
        if self._slice is not None:
            self._slice.drop_lost()
        if self._breaker.is_open:  # the record that was tried may be among them, and will not tell
            self._breaker.next_try = min(self._breaker.next_try, clock.monotonic())
        # A message of this assignment must not be taken in a later one: it would hide the records before it.
        self._not_yet = [m for m in self._not_yet if LogPartition(m.topic(), m.partition()) in self._parts]
        self._count_partitions()

    def _count_partitions(self) -> None:
        """Note how many partitions of its topics this member has; those of re-driven records do not count."""
        self.progress.partitions = sum(part.topic in self._names.sources for part in self._parts)
        self.progress.state = "running" if self.progress.partitions else "idle"

    def _drain(self, leaving: Callable[[Work], bool]) -> None:
        """Wait for calls under way, at most as long as `drain` allows. At least once, records that wait are dropped.

        At most once, the records that wait have a committed position: they are handled now, or never. Exactly once, a
        slice that is finished now need not be handled again.
        """
        deadline = clock.monotonic() + (0 if self._drained else self._consumer.drain_s)
        self._drained = self._stop.is_set()  # leaving the group calls this again, and must not wait once more
        if self._follows:
            self._let_go(self._lanes.drop(leaving))
        else:
            self._lanes.halt(False)
        while self._lanes.has(leaving) and clock.monotonic() < deadline:
            self._lanes.wait(0.05)
            self._lanes.tick()
            self._collect()
        self._letters.flush(max(0.1, deadline - clock.monotonic()))
        self._collect()

    # Ends, lag, and being caught up ----------------------------------------------------------------------------------

    def _ends(self, topics: list[str]) -> dict[LogPartition, int]:
        admin = self._clients.admin
        return {
            LogPartition(topic, p): offset
            for topic in topics
            for p, offset in admin.stable_offsets(topic, admin.partitions_of(topic)).items()
        }

    def _is_caught_up(self) -> bool:
        """Return whether the group's positions have reached the ends that the log had at the start."""
        if not self._until_caught_up or self._in_flight or self._held or self._to_commit or self._slice is not None:
            return False
        if any(self._parts[part].low < end for part, end in self._goals.items() if part in self._parts):
            return False
        others = [part for part in self._goals if part not in self._parts]
        if not others:
            return True
        if clock.monotonic() - self._last_look < 1.0:
            return False
        self._last_look = clock.monotonic()
        positions = self._positions_of(others)
        return all(part in positions and positions[part] >= self._goals[part] for part in others)

    def _positions_of(self, parts: list[LogPartition]) -> Mapping[LogPartition, int]:
        """Return the positions of partitions that other members have."""
        if self._rows is None:
            return {part: at.offset for part, at in self._member.committed(parts).items()}
        try:
            return self._rows.read(parts, self._clients.admin.topic_ids({part.topic for part in parts}))
        except DatabaseAway:
            return {}

    def _measure(self) -> None:
        """Note the lag: records that are not settled, and the age of the oldest of them."""
        lag, oldest = 0, None
        for part, settled in self._parts.items():
            end = self._member.end(part)
            low = settled.low
            if end is not None and (part not in self._ended or settled.in_flight or end > settled.next):
                lag += max(0, end - low)
            if (log_us := settled.oldest_us) is not None:
                oldest = log_us if oldest is None else min(oldest, log_us)
        progress = self.progress
        progress.lag = lag
        progress.lag_s = 0.0 if oldest is None else max(0.0, (clock.now_us() - oldest) / 1e6)
        progress.in_flight = self._in_flight
        progress.abandoned = self._workers.abandoned
        progress.stale = self._member.stale
        progress.paused = self._paused
        progress.waiting = self._breaker.is_open

    def _check_applied(self, topics: list[str]) -> None:
        there = self._clients.admin.partitions(topics)
        for topic in topics:
            if topic not in there:
                raise LogError(
                    "not-applied",
                    f"topic {topic} does not exist",
                    why=f"consumer {self._consumer.name} reads or writes it",
                    fix="leftfold apply --yes",
                    source=self._consumer.source,
                )


def _rows(consumer: Consumer[..., Any], names: ConsumerNames, database: SecretStr) -> SqlRows:
    from leftfold.consume.sql_rows import SqlRows

    return SqlRows(consumer, names.group, database)


_BY_BROKER = 2  # librdkafka's number for a timestamp that the broker set


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
