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

import secrets
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leftfold import clock
from leftfold.consume.booking import SLICE, DatabaseAway, RejectedRecord
from leftfold.consume.calls import booking, encoding, forwarding, handling
from leftfold.consume.clients import ConsumerNames, LogClients
from leftfold.consume.commits import Commits
from leftfold.consume.lanes import BatchLanes, Lanes, Work
from leftfold.consume.origins import BY_BROKER, Origins
from leftfold.consume.parking import Parking
from leftfold.consume.progress import ConsumerProgress
from leftfold.consume.retries import Retries
from leftfold.consume.returned import Returned
from leftfold.consume.settled import Committed, Settled, encoded
from leftfold.consume.slices import Slice, SliceWriter
from leftfold.consume.starts import Starts
from leftfold.consume.workers import Tasks, Threads
from leftfold.declare.consumer import Consumer
from leftfold.declare.delivery import Order
from leftfold.declare.event import trusted
from leftfold.declare.topic import Topic
from leftfold.errors import LeftfoldError, LogError
from leftfold.kafka.consumer_log import PAUSED
from leftfold.kafka.dead_letters import (
    PARKED,
    DeadLetterWriter,
    FollowedLetters,
    RecordPlace,
    first_place_of,
    redriven_from,
)
from leftfold.kafka.group import GroupEvents, LogPartition, Member, Position
from leftfold.kafka.judge import RecordJudge
from leftfold.kafka.log_reader import scan
from leftfold.kafka.log_writer import LogWriter

if TYPE_CHECKING:
    from pydantic import SecretStr

    from leftfold.consume.sql_rows import SqlRows

_TURN_S = 0.1
_BUSY_TURN_S = 0.01
_SHORT_TURN_S = 0.002
_UNSERVED_S = 1.0  # how long the group may wait for this member to poll while it has no room for records
_MOST_AT_ONCE = 1_000
_MOST_IN_A_SHORT_TURN = 200
_MOST_BYTES = 64 * 1_024 * 1_024  # of records in flight
_WIDEST = 20_000  # offsets between the committed position and the newest record that was taken
_REGISTRY_S = 1.0  # between two questions to a registry that does not answer
_PATIENCE_S = 120.0  # how long an assignment waits for brokers, or for a database, that are away
_MEASURE_EVERY_S = 0.1


class _Source(NamedTuple):
    """A topic that the consumer reads: how its records are judged, and how events are made of them."""

    judge: Callable[[bytes | None, bytes | None, int, bool], Any]
    make: Callable[[Any], Any]
    first_log: bool  # a record may carry the log time of the log that it was copied from

    @classmethod
    def of(cls, topic: Topic[Any], clients: LogClients) -> _Source:
        judge = RecordJudge(topic, clients.registry.schema)
        return cls(judge.record, trusted(topic.event), topic.log_time == "header")


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
        self._writer: LogWriter | None = None  # at least once into a topic
        self._stop = threading.Event()
        self._parts: dict[LogPartition, Settled] = {}
        self._ended: set[LogPartition] = set()  # partitions of which every record was fetched
        self._goals: dict[LogPartition, int] = {}  # for `until_caught_up`: where the log ended at the start
        self._in_flight = self._in_flight_bytes = 0
        self._drained = False
        self._last_poll = clock.monotonic()
        self._not_yet: list[Any] = []  # messages that wait for the registry
        self._ask_again = 0.0
        self._last_look = float("-inf")  # at the positions of other members
        self._last_measure = float("-inf")
        self._token = secrets.token_hex(8)
        self._to_commit: list[Work] = []  # at most once: records whose position is not committed yet
        self._stalled = False
        self._paused = False
        self._starts = Starts(consumer, names, clients, self._rows)
        self._commits = Commits(self._rows)
        self._sources = {name: _Source.of(topic, clients) for name, topic in names.sources.items()}
        self._origins = Origins(names.again, {name for name, source in self._sources.items() if source.first_log})
        self._lane = _lane_by(consumer.order)
        batch = consumer.batch
        # Records are taken, and results collected, in pieces: a turn of the loop costs as much as many records.
        self._least_room = max(1, consumer.in_flight // 4)
        if batch is not None:
            self._lanes: Lanes = BatchLanes(batch.most, batch.within_s, report_at=self._least_room)
        elif self._rows is not None:
            self._lanes = BatchLanes(SLICE, 0.0, whole=False, report_at=self._least_room)
        else:
            self._lanes = Lanes(report_at=self._least_room)
        self._turn_s = _TURN_S if batch is None or batch.within is None else min(_TURN_S, batch.within_s)
        self._parking: Parking | None = None  # for failure="park"
        self._retries = Retries(
            consumer,
            self._lanes,
            self.progress,
            bury=self._bury,
            forget=self._forget,
            has_all=self._has_all,
            rows=self._rows,
        )

    def _start_workers(self) -> Threads | Tasks:
        consumer, number, name = self._consumer, self._consumer.parallel, self._consumer.name
        if self._rows is not None:
            from leftfold.consume.sql_threads import SqlThreads

            return SqlThreads(self._lanes, self._rows, booking(consumer, self._origins), number=number, name=name)
        batches = consumer.batch is not None
        if consumer.to is None:
            call = handling(consumer, self._origins)
        else:
            returned = Returned(consumer, self._names, self._clients)
            if self._slices is not None:
                call = encoding(consumer, self._origins, returned)
            else:
                self._writer = LogWriter(self._clients.kafka)
                call = forwarding(consumer, self._origins, returned, self._writer)
        if consumer.is_async:
            return Tasks(self._lanes, call, number=number, batches=batches, timeout_s=consumer.timeout_s, name=name)
        return Threads(self._lanes, call, number=number, batches=batches, name=name)

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
                self._measure()
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
        if self._consumer.delivery == "exactly_once" and self._consumer.to is not None:
            self._slices = SliceWriter(self._consumer, self._names, self._clients)
        if self._rows is not None:
            self._rows.open()
        if self._until_caught_up:
            self._goals = self._ends(topics)
        self._letters = DeadLetterWriter(self._clients.kafka, self._names.dead)
        self._followed = self._clients.notes.follow(self._consumer.name)
        if self._consumer.failure == "park":
            letters = FollowedLetters(self._clients.kafka, self._names.dead)
            self._parking = Parking(letters, self._park, most=max(1, self._consumer.in_flight // 4))
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
            if self._parking is not None:
                self._parking.close()
            if self._slices is not None:
                self._slices.close()
            if self._writer is not None:
                self._writer.close()

    def _turn(self) -> None:
        self._collect()
        self._look_at_pause()
        self._lanes.tick()
        self._workers.watch(self._consumer.timeout_s)
        self._retries.hand_over_due()
        if self._parking is not None:
            self._lanes.put(self._parking.look())
        if self._to_commit:
            self._commit_slice()
        elif self._slice is not None:
            self._write_slice()
        elif self._follows or not self._in_flight:
            self._commits.if_due(self._parts, self._member, at_once=self._commit_makes_room())
        if self._not_yet and clock.monotonic() >= self._ask_again:
            self._take([])
        room = self._room()
        if room <= 0:
            self._wait_for_room()
            return
        if self._stalled:
            self._stalled = False
            self._member.resume()
        self._last_poll = clock.monotonic()
        # While workers are busy, their failures and successes are not to wait for records that do not come. A lane with
        # a record that failed waits for two turns at least, so these are short.
        if self._retries.holds_any and not self._retries.is_outage:
            most, wait_s = _MOST_IN_A_SHORT_TURN, _SHORT_TURN_S
        else:
            most, wait_s = _MOST_AT_ONCE, _BUSY_TURN_S if self._in_flight else self._turn_s
        self._take(self._member.poll(min(room, most), wait_s))
        if self._last_poll - self._last_measure >= _MEASURE_EVERY_S:
            self._measure()

    def _room(self) -> int:
        """Return how many records may be taken now."""
        if self._paused or self._to_commit or self._not_yet or self._slice is not None:
            return 0
        if self._is_too_wide():
            return 0
        if self._in_flight_bytes >= _MOST_BYTES:
            return 0
        room = self._consumer.in_flight - self._in_flight
        if self._retries.lacks_new:
            return room + self._consumer.in_flight
        if self._in_flight and room < self._least_room:
            return 0
        # After a stall, fetching begins again only when there is room for many: each pause drops what was fetched.
        return 0 if self._stalled and room < self._consumer.in_flight // 2 else room

    def _is_too_wide(self) -> bool:
        """Return whether too many offsets lie between a committed position and the newest record that was taken."""
        if self._at_most_once:
            return False
        return any(part.next - part.committed > _WIDEST for part in self._parts.values())

    def _commit_makes_room(self) -> bool:
        return self._is_too_wide() and all(part.next - part.low <= _WIDEST for part in self._parts.values())

    def _has_all(self) -> bool:
        """Return whether no record can be taken now that is not at hand: the log has no more, or there is no room."""
        return self._ended.issuperset(self._parts) or self._room() <= 0

    def _wait_for_room(self) -> None:
        """Wait for workers. The group is served inside of `poll` only, so it is called with everything paused."""
        self._lanes.hurry()
        # No worker tells when a record that failed is due again, or when the dead letter is there that a partition of a
        # database waits for.
        if self._retries.is_outage:
            wait_s = self._turn_s
        elif self._retries.holds_any:
            wait_s = _SHORT_TURN_S
        else:
            wait_s = self._turn_s if self._rows is None else _BUSY_TURN_S
        self._lanes.wait(wait_s)
        if clock.monotonic() - self._last_poll > _UNSERVED_S:
            if not self._stalled:
                self._stalled = True
                self._member.pause()
            self._last_poll = clock.monotonic()
            self._take(self._member.poll(_MOST_AT_ONCE, 0))
            self._measure()

    def _look_at_pause(self) -> None:
        self._followed.look()
        paused = PAUSED in self._followed.documents
        if paused != self._paused:
            self._paused = paused
            self._retries.pause(paused)

    # Taking records --------------------------------------------------------------------------------------------------

    def _take(self, messages: list[Any]) -> None:
        works: list[Work] = []
        if self._slices is not None and self._slice is None:
            # Right after the poll, which has served all changes of the assignment that came before these records.
            self._slice = Slice(self._member.metadata())
        if self._not_yet:
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
        self._in_flight += len(works)
        self._in_flight_bytes += sum([len(work.message) for work in works])
        if self._parking is not None:
            works = self._not_parked(works, self._parking)
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

    def _not_parked(self, works: list[Work], parking: Parking) -> list[Work]:
        """Return the records that may be handled now, with those that waited for a re-driven one of their key."""
        go_on: list[Work] = []
        for work in works:
            if (first := self._origins.first(work)) is not None:
                go_on += [work, *parking.came_back(work.message.key(), first.place)]
            elif parking.may_go_on(work):
                go_on.append(work)
        return go_on

    def _park(self, work: Work) -> RecordPlace:
        self._retries.give_up(work, PARKED, "an earlier record of its key is a dead letter")
        return self._origins.place(work)

    def _note_end(self, message: Any) -> None:
        part = LogPartition(message.topic(), message.partition())
        if self._member.ended(message) and part in self._parts:
            self._ended.add(part)
            self._parts[part].reach(message.offset())

    def _judged(self, message: Any) -> Work | None:
        """Return a record as work for the handler; None if it is settled, or on its way into the dead letters.

        Most of a consumer's own time is spent here.
        """
        topic, offset = message.topic(), message.offset()
        part = self._parts.get((topic, message.partition()))  # type: ignore[call-overload] # an equal tuple, made in half the time
        if part is None or offset < part.next:
            return None  # of an assignment that is over, or fetched a second time after a pause
        source, first = self._sources.get(topic), None
        if source is None and (first := redriven_from(message)) is not None:
            source = self._sources.get(first.place.topic)
        if source is None:  # Leftfold did not write it
            part.reach(offset + 1)
            return None
        kind, log_ms = message.timestamp()
        log_us, by_broker = log_ms * 1_000, kind == BY_BROKER
        if first is not None or source.first_log:
            log_us, by_broker = self._origins.log_time(message, first)
        key = message.key()
        fields, verdict = source.judge(key, message.value(), log_us, by_broker)
        if not part.take(offset, log_us):
            if first is not None and self._parking is not None:
                self._lanes.put(self._parking.came_back(key, first.place))
            return None  # settled by an earlier owner of the partition
        if verdict is None and fields is not None:
            return Work(part, offset, self._lane(key, part, message), source.make(fields), "accepted", message)
        if verdict is None or (verdict.outcome != "rejected" and self._consumer.late == "skip"):
            part.settle(offset)  # a deletion in a compacted topic, which is no event; late, or from the future
            self.progress.skipped += 1
            return None
        event = RejectedRecord(verdict.reason) if verdict.outcome == "rejected" else source.make(fields)
        work = Work(part, offset, self._lane(key, part, message), event, verdict.outcome, message)
        return work if verdict.outcome != "rejected" else self._rejected(work)

    def _rejected(self, work: Work) -> Work | None:
        """Give up a record that is no event. Into a database it stands in its lane until its dead letter is there."""
        if self._rows is not None:
            return work
        self._in_flight += 1
        self._in_flight_bytes += len(work.message)
        self._retries.give_up(work, "rejected", str(work.event))
        return None

    # Results ---------------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Settle what workers have handled and what brokers have acknowledged, and decide about failures."""
        done, failed = self._lanes.done, self._lanes.failed
        handled = 0
        while done:
            works = done.popleft()
            self._let_go(works)
            for work in works:
                if (part := work.part).owned:
                    part.settle(work.offset)
                    handled += 1
        if handled:
            self.progress.handled += handled
            self._commits.uncommitted += handled
            self._retries.handled(handled)
        while failed:
            self._retries.failed(*failed.popleft())
        self._letters.look()
        while self._letters.acknowledged:
            work = self._letters.acknowledged.popleft()
            self._let_go((work,))
            self._commits.uncommitted += 1
            self.progress.dead += 1
            if work.part.owned:
                work.part.settle(work.offset)
            if self._rows is not None:
                self._lanes.let_go([work])

    def _bury(self, work: Work, outcome: str, reason: str) -> None:
        """Write a dead letter. Its record is settled once all in-sync replicas have it."""
        letter = self._origins.letter(work, outcome, reason)
        if outcome == "failed" and self._parking is not None:
            self._parking.failed(letter.key, letter.place)
            for other in self._lanes.drop(lambda other: other.lane == work.lane):
                self._parking.park(other)
        if self._slice is None:
            self._letters.write(letter, work)
            return
        # Exactly once: it is written with the rest of the slice.
        self._slice.letters.append((work, letter))
        self._let_go((work,))
        self.progress.dead += 1
        work.part.settle(work.offset)

    def _forget(self, works: list[Work]) -> None:
        """Drop records of a partition that is no longer ours."""
        self._let_go(works)
        self._lanes.let_go(works)

    def _let_go(self, works: Sequence[Work]) -> None:
        """Count records that are no longer in flight."""
        self._in_flight -= len(works)
        self._in_flight_bytes -= sum([len(work.message) for work in works])

    # Positions -------------------------------------------------------------------------------------------------------

    def committed(self, offsets: dict[LogPartition, int]) -> None:
        for part, offset in offsets.items():
            if part in self._parts:
                self._parts[part].committed = offset

    def not_committed(self) -> None:
        self._commits.refused()

    def _commit_now(self, parts: Mapping[LogPartition, Settled]) -> None:
        """Commit what is settled of these partitions, and wait for the answer."""
        if self._follows and parts:  # else positions are committed before the handler is called, or in a transaction
            self.committed(self._commits.now(parts, self._member))

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
        if self._parking is not None:
            self._parking.begin(self._coming_back())
        return {part: settled.next for part, settled in starts.items()}

    def _coming_back(self) -> Iterator[tuple[bytes, RecordPlace]]:
        """Yield keys and first places of re-driven records that are there and were not fetched yet."""
        since = {part.partition: s.next for part, s in self._parts.items() if part.topic == self._names.again}
        for record in scan(self._clients.kafka, self._names.again, since.keys(), since):
            place = first_place_of(record)
            if place is not None and record.key is not None:
                yield record.key, place

    def _chosen(self, parts: list[LogPartition]) -> dict[LogPartition, Settled]:
        """Choose where partitions begin. Waits for a database that is away, and for brokers that take over others."""
        deadline = clock.monotonic() + _PATIENCE_S
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
            except LogError as error:
                if not error.retriable or error.code == "position-not-committed" or clock.monotonic() > deadline:
                    raise
                if self._stop.wait(0.5):
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
            self._commits.forget(part)
            self._ended.discard(part)
            del self._parts[part]
        self._let_go(self._lanes.drop(lambda work: not work.part.owned))
        self._let_go([work for work in self._to_commit if not work.part.owned])
        self._to_commit = [work for work in self._to_commit if work.part.owned]
        if self._slice is not None:
            self._slice.drop_lost()
        if self._parking is not None:
            self._let_go(self._parking.drop_lost())
        self._retries.partitions_are_gone()
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
        if not self._until_caught_up or self._in_flight or self._to_commit or self._slice is not None:
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
        self._last_measure = clock.monotonic()
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
        progress.rejoined = self._member.rejoined
        progress.paused = self._paused
        progress.waiting = self._retries.is_outage

    def _check_applied(self, topics: list[str]) -> None:
        there = self._clients.admin.partitions(topics)
        for topic in topics:
            if topic not in there:
                raise LogError(
                    "not-applied",
                    f"topic {topic} does not exist",
                    why=f"consumer {self._consumer.name} reads or writes it",
                    fix="leftfold apply",
                    source=self._consumer.source,
                )


def _lane_by(order: Order) -> Callable[[bytes | None, Settled, Any], Hashable]:
    """Return the function that names a record's lane, by its key, its partition and itself."""
    match order:
        case "key":
            return lambda key, part, _: part if key is None else key
        case "partition":
            return lambda _, part, __: part
        case "none":
            return lambda _, __, message: message


def _rows(consumer: Consumer[..., Any], names: ConsumerNames, database: SecretStr) -> SqlRows:
    from leftfold.consume.sql_rows import SqlRows

    return SqlRows(consumer, names.group, database)
