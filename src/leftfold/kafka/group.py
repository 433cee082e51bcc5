"""A member of a consumer group, by the protocol of KIP-848: the broker assigns partitions and fences stale members."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from leftfold import clock
from leftfold.errors import LogError
from leftfold.kafka.admin import TIMEOUT_S, passes
from leftfold.kafka.assignment_check import AssignmentCheck
from leftfold.kafka.failures import Heard, failed, refused, unreachable
from leftfold.settings import Kafka

SETTINGS: dict[str, Any] = {
    "group.protocol": "consumer",  # KIP-848
    # A member gets the same partitions of each topic, so a key and its re-driven records are in one process.
    "group.remote.assignor": "range",
    "enable.auto.commit": False,  # a position is committed when its records are settled, not when a timer fires
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # a position that the log does not have is reported, never replaced
    "isolation.level": "read_committed",
    "enable.partition.eof": True,  # the end of a partition is an event: offsets before it may hold no record
    "max.poll.interval.ms": 300_000,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 65_536,
    "fetch.wait.max.ms": 100,  # a handler waits for a record at most that long
    "fetch.error.backoff.ms": 100,
    "log_level": 0,  # what a user must know arrives as an error of ours
}
# Without any broker for so long, the member ends: a process that looks alive and does nothing is found by nobody.
_PATIENCE_S = 120.0
_AGAIN_S = 0.2  # between two tries while a coordinator is being chosen; no event says when it is
# A commit that is answered with one of these was sent by a member that no longer owns the partition, or for a moment
# does not. The new owner begins at the last position that was accepted.
_STALE = frozenset(
    (
        *(KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH, KafkaError.UNKNOWN_MEMBER_ID),
        *(KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._ASSIGNMENT_LOST),
    )
)
_GONE = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE))


class LogPartition(NamedTuple):
    """A partition of a topic in the cluster."""

    topic: str
    partition: int


class Position(NamedTuple):
    """A committed position: the next offset, and the metadata that was committed with it."""

    offset: int
    metadata: str


class GroupEvents:
    """The calls by which a member informs its owner, always inside of `Member.poll` or `Member.close`."""

    def assigned(self, parts: list[LogPartition]) -> dict[LogPartition, int]:
        """Return the offset at which each new partition begins."""
        raise NotImplementedError

    def revoked(self, parts: list[LogPartition]) -> None:
        """Partitions are to be given up. They belong to this member until this returns."""
        raise NotImplementedError

    def lost(self, parts: list[LogPartition]) -> None:
        """Partitions belong to another member already."""
        raise NotImplementedError

    def committed(self, offsets: dict[LogPartition, int]) -> None:
        """The broker has accepted these positions."""
        raise NotImplementedError

    def not_committed(self) -> None:
        """The broker has not accepted the positions that were sent last."""
        raise NotImplementedError


class Member:
    """A member of a group. One thread owns it."""

    def __init__(self, kafka: Kafka, group: str, topics: list[str], events: GroupEvents) -> None:
        self.stale = 0  # commits that were refused, because the partition belongs to another member
        self.rejoined = 0  # times that the coordinator had assigned other partitions than this member read
        self._kafka = kafka
        self._group = group
        self._events = events
        self._heard = Heard(kafka)
        self._trouble: Exception | None = None  # raised in a callback; raised again by `poll`
        self._fatal: KafkaError | None = None
        self._away_since: float | None = None  # since when no broker answers
        self._committing = self._closing = self._paused = False
        self._starts: dict[LogPartition, int] = {}  # partitions that were assigned during the present call
        self._topics = topics
        self._check = AssignmentCheck(kafka, group)
        self._client = Consumer(
            {
                **kafka.for_librdkafka(),
                **SETTINGS,
                "group.id": group,
                "error_cb": self._on_error,
                "on_commit": self._on_commit,
            }
        )
        self._subscribe()

    def _subscribe(self) -> None:
        on = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
        self._client.subscribe(self._topics, **on)

    # Records ---------------------------------------------------------------------------------------------------------

    def poll(self, most: int, timeout: float) -> list[Message]:
        """Return the next messages: records, and ends of partitions. Waits for the first one only."""
        first = self._client.poll(timeout)
        messages = [] if first is None else self._with_those_that_wait(first, most)
        if self._trouble is not None:
            raise self._trouble
        if self._fatal is not None:
            raise self._ended(self._fatal)
        if self._check.has_parted(self._client):
            self._join_again()
            return []
        if messages:
            self._away_since = None
        elif self._away_since is not None and clock.monotonic() - self._away_since > _PATIENCE_S:
            self._probe()
        return messages

    def _with_those_that_wait(self, first: Message, most: int) -> list[Message]:
        """Return a message and those that have arrived, without any of an assignment that has ended meanwhile.

        A partition that was assigned during this call begins at its start. A message of it that was fetched for an
        assignment before would hide the records between. So such a partition is fetched again from its start.
        """
        self._starts.clear()
        messages = [first, *(self._client.consume(most - 1, timeout=0) if most > 1 else ())]
        if not self._starts:
            return messages
        places = [TopicPartition(*part, offset) for part, offset in self._starts.items()]
        self._client.incremental_unassign(places)
        self._client.incremental_assign(places)
        return [m for m in messages if LogPartition(cast(str, m.topic()), cast(int, m.partition())) not in self._starts]

    def _join_again(self) -> None:
        """Give up all partitions, leave the group, and join it. Messages that were fetched are fetched again."""
        self.rejoined += 1
        self._client.unsubscribe()
        while self._client.assignment():  # given up in a callback, as at any other change of the assignment
            self._client.poll(_AGAIN_S)
        if self._trouble is not None:
            raise self._trouble
        self._subscribe()

    def ended(self, message: Message) -> bool:
        """Return whether a message says that a partition has no more records at the moment; raise for other errors."""
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.fatal() or error.code() == KafkaError._MAX_POLL_EXCEEDED:
            raise self._ended(error)
        if error.code() in _GONE:
            raise LogError(
                "log-overtaken",
                f"group {self._group} has come to an offset of {message.topic()}/{message.partition()} that is gone",
                why=error.str(),
                state="what was handled is committed",
                fix="leftfold position show tells where the group and the log are",
            )
        refusal = refused(self._kafka, error, topic=cast(str, message.topic()), group=self._group)
        if refusal is not None:
            raise refusal
        return False  # the client tries again by itself

    def end(self, part: LogPartition) -> int | None:
        """The end of a partition, as the newest answer of a broker told it; None if there was none yet."""
        _, high = self._client.get_watermark_offsets(TopicPartition(*part), cached=True)
        return high if high >= 0 else None

    def pause(self) -> None:
        """Fetch no records, also of partitions that are assigned later."""
        self._paused = True
        self._client.pause(self._client.assignment())

    def resume(self) -> None:
        self._paused = False
        self._client.resume(self._client.assignment())

    # Positions -------------------------------------------------------------------------------------------------------

    def committed(self, parts: Iterable[LogPartition]) -> dict[LogPartition, Position]:
        """The committed positions of those partitions that have one. Waits for a coordinator that is being chosen."""
        asked = [TopicPartition(*part) for part in parts]
        deadline = clock.monotonic() + TIMEOUT_S
        while True:
            try:
                answers = self._client.committed(asked, timeout=TIMEOUT_S) if asked else []
                break
            except KafkaException as error:
                if not passes(error.args[0]) or clock.monotonic() > deadline:
                    raise failed(self._kafka, self._heard.instead_of(error.args[0]), group=self._group) from error
                time.sleep(_AGAIN_S)
        for answer in answers:
            if answer.error is not None:
                raise failed(self._kafka, answer.error, topic=answer.topic, group=self._group)
        return {
            LogPartition(a.topic, a.partition): Position(a.offset, a.metadata or "")
            for a in answers
            if a.offset != OFFSET_INVALID
        }

    def metadata(self) -> Any:
        """The identity of this member at the moment, with its epoch: for a transaction that commits its positions."""
        return self._client.consumer_group_metadata()

    def commit(self, positions: Mapping[LogPartition, Position], patience_s: float = 0.0) -> bool:
        """Commit positions, and wait. Returns False if it may not have taken effect, or another member owns them now.

        With patience, it waits so long for a coordinator that is being chosen, or for the member's new epoch.
        """
        deadline = clock.monotonic() + patience_s
        while True:
            try:
                answers = self._client.commit(offsets=places_of(positions), asynchronous=False)
                errors = [place.error for place in answers or () if place.error is not None]
            except KafkaException as error:
                errors = [error.args[0]]
            if not errors:
                return True
            self._refused_commit(errors[0])
            if not _may_be_taken_again(errors[0]) or clock.monotonic() > deadline:
                return False
            time.sleep(_AGAIN_S)

    def commit_soon(self, positions: Mapping[LogPartition, Position]) -> bool:
        """Commit positions without waiting. Returns False if another such commit is not answered yet."""
        if self._committing:
            return False
        self._committing = True
        try:
            self._client.commit(offsets=places_of(positions), asynchronous=True)
        except KafkaException as error:
            self._committing = False
            return self._refused_commit(error.args[0])
        return True

    def _refused_commit(self, error: KafkaError) -> bool:
        if (refusal := refused(self._kafka, error, group=self._group)) is not None:
            raise refusal
        self.stale += error.code() in _STALE
        return False

    def _on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._committing = False
        if error is not None:
            self.stale += error.code() in _STALE
            self._events.not_committed()
            return
        self._away_since = None
        self._events.committed({LogPartition(p.topic, p.partition): p.offset for p in places if p.error is None})

    def close(self) -> None:
        """Leave the group. Partitions that are still assigned are revoked first."""
        self._closing = True
        # If a change of the assignment waits for a poll, librdkafka's `close` leaves the group at once. The calls that
        # revoke partitions come after that: their commit is refused, and `incremental_unassign` may never return.
        # Without a subscription no change comes any more, and those that wait are served here.
        with suppress(KafkaException):  # the brokers have ended this member already
            self._client.unsubscribe()
        while self._client.poll(0) is not None:
            pass
        self._client.close()
        if self._trouble is not None:
            raise self._trouble

    # Callbacks -------------------------------------------------------------------------------------------------------

    def _on_assign(self, client: Consumer, places: list[TopicPartition]) -> None:
        if self._closing:
            return  # a member that is about to leave may still be given partitions; questions would not be answered now
        parts = [LogPartition(p.topic, p.partition) for p in places]
        try:
            starts = self._events.assigned(parts)
        except Exception as error:  # noqa: BLE001 # it would be lost in librdkafka; `poll` raises it
            self._trouble = error
            starts = {}
        self._starts |= starts
        assigned = [TopicPartition(*part, offset) for part, offset in starts.items()]
        client.incremental_assign(assigned)
        # librdkafka keeps a partition paused that was given up while it was paused, and is assigned again.
        (client.pause if self._paused else client.resume)(assigned)

    def _on_revoke(self, client: Consumer, places: list[TopicPartition]) -> None:
        try:
            self._events.revoked([LogPartition(p.topic, p.partition) for p in places])
        except Exception as error:  # noqa: BLE001 # it would be lost in librdkafka; `poll` raises it
            self._trouble = error
        _unassign(client, places)

    def _on_lost(self, client: Consumer, places: list[TopicPartition]) -> None:
        self._events.lost([LogPartition(p.topic, p.partition) for p in places])
        _unassign(client, places)

    def _on_error(self, error: KafkaError) -> None:
        self._heard(error)
        if error.fatal():
            self._fatal = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self._away_since is None:
            self._away_since = clock.monotonic()

    def _probe(self) -> None:
        """Ask once whether a broker is there. The client reports that brokers are away, but not that they are back."""
        try:
            self._client.list_topics(timeout=5)
        except KafkaException as error:
            raise self._heard.refusal() or unreachable(
                self._kafka.bootstrap, f"none has answered for {_PATIENCE_S:g} s"
            ) from error
        self._away_since = None

    def _ended(self, error: KafkaError) -> LogError:
        if error.code() == KafkaError.UNSUPPORTED_VERSION:
            return LogError(
                "group-protocol",
                f"the brokers at {self._kafka.bootstrap} do not know the group protocol of KIP-848",
                why=error.str(),
                fix="use brokers of Kafka 4.0 or newer",
            )
        return refused(self._kafka, error, group=self._group) or LogError(
            "member-refused",
            f"the brokers ended this member of group {self._group}",
            why=error.str(),
            state="what was handled and not committed is handled again by the next member",
            fix="start it again",
            retriable=error.retriable() or passes(error),
        )


def _unassign(client: Consumer, places: list[TopicPartition]) -> None:
    """Give up partitions. Those that were refused when they were assigned are not in the client's assignment."""
    held = {(place.topic, place.partition) for place in client.assignment()}
    client.incremental_unassign([place for place in places if (place.topic, place.partition) in held])


def _may_be_taken_again(error: KafkaError) -> bool:
    """Return whether the same commit may be accepted a moment later.

    A member with an old epoch learns the new one by its next heartbeat. It may still own the partitions. librdkafka
    sends other commits again by itself then, but not those that a program waits for.
    """
    return passes(error) or error.code() == KafkaError.STALE_MEMBER_EPOCH


def places_of(positions: Mapping[LogPartition, Position]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition, at.offset, at.metadata) for p, at in positions.items()]
