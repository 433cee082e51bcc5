"""Copies one topic to another, record by record: keys, headers and each key's order are kept, and no record is doubled.

The partitions of the source are merged by log time, so the copy is nearly in the order of the records' first log times.
Each slice of the merge is one transaction. The transaction also commits how far every partition of the source has been
copied, as offsets of a consumer group. A new copier's `init_transactions` aborts what a dead copier left open, and
fences a copier that is not dead. Only then does it read the offsets, so it continues exactly after what is committed.
Readers of the copy must be read-committed.

The group's offsets carry the ids of both topics: a copy does not continue with a topic that was deleted and created
again. Brokers forget offsets that were not committed for `offsets.retention.minutes`, so they are committed again while
no records arrive. If they are lost all the same, a target that holds records is refused, because it could be filled
twice.
"""

from __future__ import annotations

import heapq
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as Client

from leftfold import clock
from leftfold.declare.first_log import HEADER, UNKNOWN, header_of, log_time_of
from leftfold.errors import LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.failures import Heard, refused
from leftfold.kafka.log_reader import headers_of
from leftfold.kafka.partitioner import partition_of
from leftfold.settings import Kafka

# Limits for the records that wait to be merged, over all partitions together. A partition that has used its share is
# not fetched until half of it is free.
WAITING = 60_000
_WAITING_BYTES = 256 * 1_024 * 1_024
_AT_ONCE = 10_000
# How long the consumer may wait for records. A stop takes up to this long.
_POLL_S = 0.2
# The longest wait for any one answer. It includes waiting for transactions of the source and for elections.
_ANSWER_S = 60.0
_ABORT_S = 2.0  # the next copier aborts what this one could not
# Far below the week after which brokers forget a group's offsets.
_COMMITTED_AGAIN_S = 3_600.0
# How long a partition that is added to the source may stay unnoticed.
_PARTITIONS_AGAIN_S = 30.0
# The brokers decide which size they accept. The client's own default limits are below theirs.
_LARGEST_MESSAGE = 64 * 1_024 * 1_024
_SILENT = logging.Logger("leftfold.copy")
_SILENT.addHandler(logging.NullHandler())
_QUIET: dict[str, Any] = {"log_level": 0, "logger": _SILENT}
_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "transaction.timeout.ms": 60_000,  # a slice takes seconds; readers wait this long after a copier died
    "delivery.timeout.ms": 50_000,  # must be below the transaction's; outlasts an election
    "message.max.bytes": _LARGEST_MESSAGE,
    **_QUIET,
}
_CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,  # the merge does not wait for a partition without records
    "auto.offset.reset": "error",  # retention that overtakes the copy must stop it: it must not skip records
    "queued.min.messages": _AT_ONCE,  # fetched ahead, per partition
    **_QUIET,
}
_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


@dataclass(frozen=True)
class CopySide:
    """A topic of a copy (source or target), as the cluster reports it."""

    name: str
    partitions: int
    id: str
    log_time: Literal["broker", "producer", "header"]


Watch = Callable[[int, int | None], None]  # records copied, and offsets left; None: the copy has no end


class Copier:
    """One run of a copy; every run makes a new one. `group` names the copy: its offsets and its transactions."""

    def __init__(self, kafka: Kafka, admin: Admin, source: CopySide, target: CopySide, group: str) -> None:
        self.copied = 0
        self.resumed = False
        self._kafka = kafka
        self._admin = admin
        self._source = source
        self._target = target
        self._group = group
        self._heard = Heard(kafka)
        self._places: dict[int, int] = {}  # committed positions by partition
        self._fetching: set[int] = set()
        self._place_of = lru_cache(100_000)(lambda key: partition_of(key, target.partitions))

    def run(
        self,
        starts: Mapping[int, int],
        ends: Mapping[int, int] | None,
        *,
        stopped: Callable[[], bool],
        watch: Watch,
    ) -> int:
        """Copy from `starts` up to `ends`, and return how many records were copied.

        A copy that has committed offsets continues from them instead of `starts`. Without `ends` it runs until it is
        stopped.
        """
        with self._explained():
            common = {**self._kafka.for_librdkafka(), "error_cb": self._heard}
            # One producer for all partitions: a slice holds records of each.
            producer = Client({**common, **_PRODUCER, "transactional.id": self._group})
            consumer = Consumer({**common, **_CONSUMER, "group.id": self._group})
            try:
                producer.init_transactions(_ANSWER_S)
                lanes = self._lanes(consumer, starts, ends)
                if not self.resumed:  # before the first record: from here on a restart has offsets to continue from
                    self._commit(producer, consumer, lanes, [])
                self._copy(producer, consumer, lanes, stopped, watch)
            except BaseException:
                with suppress(KafkaException):
                    producer.abort_transaction(_ABORT_S)
                raise
            finally:
                producer.purge()
                consumer.close()
        return self.copied

    def _copy(
        self,
        producer: Client,
        consumer: Consumer,
        lanes: dict[int, Lane],
        stopped: Callable[[], bool],
        watch: Watch,
    ) -> None:
        committed = looked = clock.monotonic()
        while not stopped() and not all(lane.done for lane in lanes.values()):
            self._fetch(consumer, lanes)
            records = next_slice(lanes)
            late = clock.monotonic() - committed > _COMMITTED_AGAIN_S
            if late or positions(lanes) != self._places:
                self._commit(producer, consumer, lanes, records)
                committed = clock.monotonic()
                self.copied += len(records)
            watch(self.copied, self._left(lanes))
            if clock.monotonic() - looked > _PARTITIONS_AGAIN_S:
                self._check_partitions()
                looked = clock.monotonic()

    def _left(self, lanes: Mapping[int, Lane]) -> int | None:
        if any(lane.end is None for lane in lanes.values()):
            return None
        return sum((lane.end or 0) - lane.position for lane in lanes.values())

    # Reading -----------------------------------------------------------------------------------------------------

    def _lanes(self, consumer: Consumer, starts: Mapping[int, int], ends: Mapping[int, int] | None) -> dict[int, Lane]:
        asked = [TopicPartition(self._source.name, p) for p in range(self._source.partitions)]
        committed = consumer.committed(asked, timeout=_ANSWER_S)
        places: dict[int, int] = {}
        for place in committed:
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset >= 0:
                places[place.partition] = place.offset
                self._check_ids(place.metadata)
        self.resumed = bool(places)
        self._check_place(places)
        if places:  # a partition that was added to the source later is copied from its start
            starts = self._admin.start_offsets(self._source.name, self._source.partitions)
        self._places = places
        return {
            p: Lane(p, places.get(p, starts[p]), None if ends is None else ends[p])
            for p in range(self._source.partitions)
        }

    def _fetch(self, consumer: Consumer, lanes: Mapping[int, Lane]) -> None:
        self._assign(consumer, lanes)
        first = consumer.poll(_POLL_S)
        for message in () if first is None else (first, *consumer.consume(_AT_ONCE, timeout=0)):
            lane = lanes[cast(int, message.partition())]
            error = message.error()
            if error is None:
                lane.add(self._log_us(message)[0], message)
            elif error.code() == KafkaError._PARTITION_EOF:
                lane.reach(cast(int, message.offset()))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._check_place(positions(lanes))
                raise KafkaException(error)
            elif not error.retriable():
                raise KafkaException(error)

    def _assign(self, consumer: Consumer, lanes: Mapping[int, Lane]) -> None:
        """Fetch those partitions that have room for more waiting records.

        It assigns explicit offsets and does not use pause and resume. So it does not depend on the position that the
        client assumes for a partition that it has fetched ahead.
        """
        room, room_bytes = WAITING // len(lanes), _WAITING_BYTES // len(lanes)
        for p, lane in lanes.items():
            if p in self._fetching:
                if lane.done or len(lane.waiting) > room or lane.bytes > room_bytes:
                    consumer.incremental_unassign([TopicPartition(self._source.name, p)])
                    self._fetching.remove(p)
            elif not lane.done and len(lane.waiting) <= room // 2 and lane.bytes <= room_bytes // 2:
                consumer.incremental_assign([TopicPartition(self._source.name, p, lane.fetched)])
                self._fetching.add(p)

    def _log_us(self, message: Message) -> tuple[int, bool]:
        """Return when the record reached its first log (µs), and whether that time can be trusted."""
        kind, log_ms = message.timestamp()
        log_us = log_ms * 1_000
        if self._source.log_time == "producer":
            return log_us, True
        header = header_of(headers_of(message)) if self._source.log_time == "header" else None
        return log_time_of(header, log_us, by_broker=kind == TIMESTAMP_LOG_APPEND_TIME)

    # Writing -----------------------------------------------------------------------------------------------------

    def _commit(self, producer: Client, consumer: Consumer, lanes: Mapping[int, Lane], records: list[Message]) -> None:
        """Commit one transaction: the records, and the position of every partition after them."""
        producer.begin_transaction()
        for message in records:
            self._produce(producer, message)
        ids = json.dumps({"source": self._source.id, "target": self._target.id})
        offsets = [TopicPartition(self._source.name, p, lane.position, ids) for p, lane in lanes.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _ANSWER_S)
        producer.commit_transaction(_ANSWER_S)
        self._places = positions(lanes)

    def _produce(self, producer: Client, message: Message) -> None:
        key = message.key()
        log_us, known = self._log_us(message)
        headers: list[tuple[str, str | bytes | None]] = [
            *((name, value) for name, value in headers_of(message) if name != HEADER),
            (HEADER, str(log_us).encode() if known else UNKNOWN),
        ]
        # Records without a key that were in one partition stay together.
        partition = cast(int, message.partition()) % self._target.partitions if key is None else self._place_of(key)
        value: Any = message.value()  # None for a tombstone
        while True:
            try:
                producer.produce(self._target.name, value, key, partition, headers=headers)
            except BufferError:
                producer.poll(0.1)
                continue
            return

    # Refusing ----------------------------------------------------------------------------------------------------

    def _check_ids(self, metadata: str | None) -> None:
        then = json.loads(metadata or "{}")
        for which, log in (("source", self._source), ("target", self._target)):
            if then.get(which) != log.id:
                raise LogError(
                    "copy-other-topic",
                    f"{log.name} is not the topic that {self._source.name} was copied "
                    + ("from" if which == "source" else "to"),
                    why=f"it was deleted and recreated: its id was {then.get(which, 'not noted')}, and is {log.id}",
                    fix=f"delete the group {self._group} to copy from the start, into a target without records",
                )

    def _check_partitions(self) -> None:
        try:
            partitions = self._admin.partitions([self._source.name]).get(self._source.name)
        except LogError:
            return  # the brokers may be away only for a moment; if not, the copy itself fails
        if partitions != self._source.partitions:
            raise LogError(
                "copy-partitions",
                f"{self._source.name} had {self._source.partitions} partitions when its copy began, and now has "
                + ("none" if partitions is None else str(partitions)),
                why="partitions were added to it: a key's records may lie in two of them now, without an order between",
                state="all that was committed is copied, once",
                fix="run the same command again, which copies the new partitions too",
                retriable=True,
            )

    def _check_place(self, places: Mapping[int, int]) -> None:
        if not places:
            ends = self._admin.end_offsets(self._target.name, self._target.partitions)
            if any(ends.values()):
                raise LogError(
                    "copy-place-lost",
                    f"{self._target.name} holds records, and how far {self._source.name} was copied is not known",
                    why=f"the group {self._group} has no offsets: brokers forget them a week after the last, or the "
                    "records are somebody else's; copying from the start would double what is there",
                    fix="declare another target, without records, and copy there",
                )
            return
        firsts = self._admin.start_offsets(self._source.name, self._source.partitions)
        gone = [(p, at, firsts[p]) for p, at in sorted(places.items()) if firsts[p] > at]
        if gone:
            gaps = ", ".join(f"{self._source.name}/{p}: {at} to {first - 1}" for p, at, first in gone)
            raise LogError(
                "copy-overtaken",
                f"{self._source.name} no longer has offsets that were not copied: {gaps}",
                why="its retention, or somebody, deleted records faster than they were copied",
                state=f"{self._target.name} holds all that came before these",
                fix="declare another target and copy what is left there; a longer retention avoids this",
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            fenced = error.args[0].code() in _FENCED
            raise refused(self._kafka, self._heard.instead_of(error.args[0]), group=self._group) or LogError(
                "copy-fenced" if fenced else "copy-failed",
                f"{self._source.name} is copied to {self._target.name} by another process"
                if fenced
                else f"copying {self._source.name} to {self._target.name} failed",
                why="it was started later, and goes on where this one stopped" if fenced else error.args[0].str(),
                state="the transaction at hand is aborted, or committed as a whole: what is copied is there once",
                fix="leave it to the other one" if fenced else "run the same command again, which goes on from there",
                retriable=not fenced,
            ) from error


# Merging the partitions of a topic by log time, as far as the next records are known. Nothing below opens a connection.


# Limits of one transaction. A commit costs some tens of milliseconds, and readers wait for it.
SLICE = 5_000
_SLICE_BYTES = 16 * 1_024 * 1_024


@dataclass
class Lane:
    """A partition of the source: the records that wait to be merged, and how far it has been copied."""

    partition: int
    position: int  # the next offset to copy
    end: int | None  # None: the copy has no end
    waiting: deque[tuple[int, Message]] = field(default_factory=deque)  # log time and message
    bytes: int = 0  # total size of the waiting records
    fetched: int = -1  # the next offset to fetch
    at_end: bool = False  # the log holds no further record at the moment

    def __post_init__(self) -> None:
        self.fetched = max(self.fetched, self.position)

    @property
    def done(self) -> bool:
        return self.end is not None and self.position >= self.end

    @property
    def ready(self) -> bool:
        """True if the lane's next record is known, or if it has none at the moment."""
        return self.done or self.at_end or bool(self.waiting)

    def take(self) -> Message:
        _, message = self.waiting.popleft()
        self.bytes -= len(message)
        self.position = cast(int, message.offset()) + 1
        self._finish()
        return message

    def add(self, log_us: int, message: Message) -> None:
        offset = cast(int, message.offset())
        if offset < self.fetched:
            return  # it was in flight when fetching paused, and arrived again when it resumed
        self.fetched = offset + 1
        self.at_end = self.end is not None and offset >= self.end
        if self.at_end:
            self._finish()
        else:
            self.waiting.append((log_us, message))
            self.bytes += len(message)

    def reach(self, offset: int) -> None:
        """Note that there are no records between the last fetched one and `offset`, where the log ends for now."""
        if offset >= self.fetched:  # else the end belongs to an earlier fetch
            self.fetched = offset
            self.at_end = True
            self._finish()

    def _finish(self) -> None:
        """Move the position to the end if all is copied: the last offsets before the end may hold no record."""
        if self.end is not None and not self.waiting and self.at_end and self.fetched >= self.end:
            self.position = self.end


def merged(lanes: Mapping[int, Lane], most: int) -> Iterator[Message]:
    """Yield the oldest waiting records of all lanes by log time, at most `most`.

    It stops when a lane becomes empty and its next record is not known. Records of one lane stay in their own order,
    whatever their log times are.
    """
    if not all(lane.ready for lane in lanes.values()):
        return
    heads = [(lane.waiting[0][0], number) for number, lane in lanes.items() if lane.waiting]
    heapq.heapify(heads)
    while heads and most:
        lane = lanes[heads[0][1]]
        yield lane.take()
        most -= 1
        if lane.waiting:
            heapq.heapreplace(heads, (lane.waiting[0][0], lane.partition))
        else:
            heapq.heappop(heads)
            if not lane.ready:
                return


def next_slice(lanes: Mapping[int, Lane]) -> list[Message]:
    """Return the records that one transaction copies."""
    messages: list[Message] = []
    size = 0
    for message in merged(lanes, SLICE):
        messages.append(message)
        size += len(message)
        if size > _SLICE_BYTES:
            break
    return messages


def positions(lanes: Mapping[int, Lane]) -> dict[int, int]:
    return {p: lane.position for p, lane in lanes.items()}
