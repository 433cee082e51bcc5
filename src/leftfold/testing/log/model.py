"""The log as a model: topics of declared events, brokers that die, and consumers that run with crashes.

Pure Python and deterministic: the same seed gives the same history. No server, no thread, and no clock but its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal, TypeVar

from leftfold.declare.consumer import Consumer
from leftfold.declare.event import Event
from leftfold.declare.topic import Topic
from leftfold.fold.expressions import from_micros, to_micros
from leftfold.fold.values import entity_text
from leftfold.kafka.partitioner import partition_of
from leftfold.testing.log.assignment import AssignorName, Part
from leftfold.testing.log.crashes import Crash
from leftfold.testing.log.database import Database
from leftfold.testing.log.groups import CommittedOffset, GroupModel
from leftfold.testing.log.outcome import Consumed
from leftfold.testing.log.replicas import Acks, Draft, Isolation, LogEntry, PartitionModel
from leftfold.testing.log.running import GroupRun
from leftfold.testing.log.transactions import TransactionModel

E = TypeVar("E", bound=Event)
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)  # any moment will do: the clock moves by the events' own times


class Log:
    """A log in memory. `send` writes declared events, `consume` runs a declared consumer, `read` shows a topic.

    `now` is its clock. An event with a later time moves it there, so only an event that is sent after newer ones is
    late. `unclean` allows elections that lose records.
    """

    def __init__(self, seed: int = 0, *, brokers: int = 3, unclean: bool = False) -> None:
        self.seed = seed
        self.now = _EPOCH
        self.brokers = range(1, brokers + 1)
        self.transactions = TransactionModel()
        self.groups: dict[str, GroupModel] = {}
        self._chance = random.Random(seed)
        self._unclean = unclean
        self._down: set[int] = set()
        self._topics: dict[str, Topic[Any]] = {}
        self._partitions: dict[str, list[PartitionModel]] = {}
        self._numbers = count(1)  # of processes

    # Topics ----------------------------------------------------------------------------------------------------------

    def partitions(self, topic: Topic[Any]) -> list[PartitionModel]:
        """Return the partitions of a topic, which is created on first use."""
        if topic.name not in self._topics:
            copies = min(topic.replication, len(self.brokers))
            self._topics[topic.name] = topic
            self._partitions[topic.name] = [
                PartitionModel.of(
                    [self.brokers[(number + n) % len(self.brokers)] for n in range(copies)],
                    min_in_sync=2 if copies > 2 else 1,
                    unclean=self._unclean,
                    compacts=topic.compacted,
                )
                for number in range(topic.partitions)
            ]
            for partition in self._partitions[topic.name]:
                for broker in self._down:
                    partition.kill(broker)
                self._elect(partition)
        return self._partitions[topic.name]

    def partition(self, topic: str, number: int) -> PartitionModel:
        return self._partitions[topic][number]

    # Records ---------------------------------------------------------------------------------------------------------

    def send(self, topic: Topic[E], *events: E, acks: Acks = "all") -> list[str]:
        """Append events by key, and return the id of each record. Raises RefusedAppend if a leader refuses."""
        sent = []
        for event in events:
            partition, draft = self.draft(topic, event)
            offset = partition.append([draft], acks=acks)
            sent.append(f"{topic.name}/{self._partitions[topic.name].index(partition)}/{offset}")
        return sent

    def delete(self, topic: Topic[E], *key: Any) -> None:
        """Append a tombstone for a key of a compacted topic."""
        text = entity_text(key).encode()
        partitions = self.partitions(topic)
        draft = Draft(text, None, log_us=to_micros(self.now))
        partitions[partition_of(text, len(partitions))].append([draft])

    def draft(self, topic: Topic[Any], event: Event) -> tuple[PartitionModel, Draft]:
        """Return the partition of an event, and its record before it has an offset."""
        partitions = self.partitions(topic)
        if topic.time is not None:
            self.now = max(self.now, getattr(event, topic.time.name))
        key = entity_text([getattr(event, field.name) for field in topic.key]).encode()
        return partitions[partition_of(key, len(partitions))], Draft(key, event, log_us=to_micros(self.now))

    def fetch(self, part: Part, since: int) -> list[LogEntry]:
        """Return committed records from an offset on, as a consumer gets them. A partition without leader has none."""
        partition = self._partitions[part[0]][part[1]]
        if partition.leader is None:
            return []
        log = partition.log
        if partition.high_water < log.end:
            partition.catch_up(partition.in_sync)
        if since >= log.end:
            return []
        return [entry for entry in partition.read("read_committed", since=since) if entry.value is not None]

    def judged(self, topic: str, entry: LogEntry) -> Literal["accepted", "late"]:
        """Return whether a record was in time, by the rule of its topic."""
        declared = self._topics[topic]
        if declared.time is None:
            return "accepted"
        event_us = to_micros(getattr(entry.value, declared.time.name))
        return "late" if event_us < entry.log_us - declared.lateness else "accepted"

    def read(self, topic: Topic[E], isolation: Isolation = "read_committed") -> list[E]:
        """Return the events that a reader of the whole topic sees, partition by partition. Tombstones are left out."""
        found: list[E] = []
        for partition in self.partitions(topic):
            if partition.leader is not None:
                partition.catch_up(partition.in_sync)
                found += [entry.value for entry in partition.read(isolation) if entry.value is not None]
        return found

    def compact(self, topic: Topic[Any]) -> None:
        """Clean all partitions of a compacted topic, as far as brokers may."""
        for partition in self.partitions(topic):
            if partition.leader is not None:
                partition.compact()

    def retain(self, topic: Topic[Any]) -> None:
        """Delete what is older than the topic's retention, by the log's clock."""
        if topic.retention is None:
            return
        oldest = to_micros(self.now) - topic.retention
        for partition in self.partitions(topic):
            if partition.leader is not None:
                young = (entry.offset for entry in partition.log.entries if entry.log_us >= oldest)
                partition.delete_before(next(young, partition.log.end))

    # Brokers ---------------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """Kill a broker. Followers have copied a part of what was not yet acknowledged by all, by chance."""
        self._down.add(broker)
        for partitions in self._partitions.values():
            for partition in partitions:
                if partition.leader is not None:
                    for follower in partition.in_sync - {partition.leader}:
                        end = partition.replicas[follower].end
                        partition.copy_to(follower, self._chance.randint(end, partition.log.end))
                partition.kill(broker)
                self._elect(partition)

    def restart(self, broker: int) -> None:
        """Start a broker again. It cuts what the leaders do not have, copies the rest, and is in sync."""
        self._down.discard(broker)
        for partitions in self._partitions.values():
            for partition in partitions:
                partition.restart(broker)
                self._elect(partition)
                if partition.leader is not None and broker in partition.replicas:
                    partition.rejoin(broker)

    def _elect(self, partition: PartitionModel) -> None:
        """Elect a leader if there is none: cleanly if somebody can, else uncleanly if that is allowed."""
        if partition.leader is not None:
            return
        for kind in ("clean", "unclean"):
            able = [broker for broker in sorted(partition.alive) if partition.can_lead(broker) == kind]
            if able:
                partition.elect(self._chance.choice(able))
                return

    # Consumers -------------------------------------------------------------------------------------------------------

    def consume(
        self,
        consumer: Consumer[..., Any],
        *,
        crash_at: Crash | None = None,
        crashes: Sequence[Crash] = (),
        members: int = 1,
        rebalances: int = 0,
        into: Database | None = None,
        assignor: AssignorName = "range",
    ) -> Consumed:
        """Run a consumer until it has handled all there is, and return what came of it.

        A process that dies is started again. `crash_at` is one death, which must happen. `crashes` are several, one
        after the other, as far as the run comes to them.
        `rebalances` are joins, departures and members that are stopped beyond their session, by chance. `into` is the
        database of a consumer that is declared with one; it holds the positions too.
        """
        if consumer.failure == "park":
            raise ValueError(f"{consumer.name} parks keys until they are re-driven, which the model does not have")
        if into is None and consumer.into is not None:
            raise ValueError(f"{consumer.name} books into a database: give it one, into=InMemoryDatabase(schema)")
        if into is not None and consumer.into is None:
            raise ValueError(f"{consumer.name} is declared without into=: its handler takes no database")
        parts = [(topic.name, n) for topic in consumer.topics for n in range(len(self.partitions(topic)))]
        group = self.groups.setdefault(consumer.name, GroupModel(parts))
        group.assignor = assignor
        for part in parts:
            if part not in group.committed:
                group.committed[part] = CommittedOffset(self._first_position(consumer, part))
        if consumer.to is not None:
            self.partitions(consumer.to)
        outcome = Consumed(expected=self._expected(parts, group, consumer, into))
        run = GroupRun(
            self,
            consumer,
            group=group,
            into=into,
            chance=self._chance,
            outcome=outcome,
            crashes=[*([] if crash_at is None else [crash_at]), *crashes],
            numbers=self._numbers,
        )
        run.until_caught_up(members, rebalances)
        if crash_at is not None and not outcome.crashes:
            raise AssertionError(f"{consumer.name} never came to {crash_at[0]!r} for the {crash_at[1]}. time: no crash")
        return outcome

    def _first_position(self, consumer: Consumer[..., Any], part: Part) -> int:
        log = self.partition(*part).log
        if consumer.start == "beginning":
            return log.start
        if consumer.start == "now":
            return log.end
        return next((e.offset for e in log.entries if from_micros(e.log_us) >= consumer.start), log.end)

    def _expected(
        self, parts: list[Part], group: GroupModel, consumer: Consumer[..., Any], into: Database | None
    ) -> frozenset[str]:
        """Return the ids of all records that this group has not settled yet."""
        ids = []
        for part in parts:
            at = group.committed[part]
            stored = None if into is None else into.position(consumer.name, part)
            since = at.offset if stored is None else stored
            ids += [f"{part[0]}/{part[1]}/{e.offset}" for e in self.fetch(part, since) if e.offset not in at.beyond]
        return frozenset(ids)

    def advance(self, by: timedelta) -> None:
        """Move the clock."""
        self.now += by
