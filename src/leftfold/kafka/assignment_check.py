"""Finds out that a member of a group reads other partitions than the group's coordinator has assigned to it.

It never changes anything: a member that has parted from its coordinator joins the group again by itself.

librdkafka waits for the answer to a heartbeat for one interval (5 s by default), and then sends the same heartbeat
again. The coordinator writes a change of the assignment into one answer only, unless it is asked for everything. If
that answer comes late, the member continues with its old assignment: its heartbeats succeed, nobody reads the
partitions that were given to it, and those that it should give up are kept from their new owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from leftfold import clock
from leftfold.kafka.failures import Heard, quiet
from leftfold.settings import Kafka

_EVERY_S = 10.0
# A member hears of a change by its next heartbeat. The longest interval that brokers allow by default is 15 s, and
# three looks are 20 s apart.
_IN_A_ROW = 3
_ASK_S = 5.0


class _View(NamedTuple):
    """The partitions that a member reads, those that its coordinator says it reads now, and those it is to read."""

    reads: frozenset[tuple[str, int]]
    assigned: frozenset[tuple[str, int]]
    target: frozenset[tuple[str, int]]

    @property
    def has_parted(self) -> bool:
        return self.reads != self.assigned or not self.reads <= self.target


class AssignmentCheck:
    """The coordinator's side of one member's assignment, asked for every ten seconds without waiting for the answer."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        self._settings = {**kafka.for_librdkafka(), **quiet(Heard(kafka))}
        self._group = group
        self._admin: AdminClient | None = None
        self._answer: Future[Any] | None = None
        self._next = clock.monotonic() + _EVERY_S
        self._seen: list[_View] = []

    def has_parted(self, client: Consumer) -> bool:
        """Return whether a member has read other partitions than the coordinator says, unchanged over three looks."""
        if self._answer is None:
            if clock.monotonic() >= self._next:
                self._ask()
            return False
        if not self._answer.done():
            return False
        view = self._view(client, self._answer)
        self._answer, self._next = None, clock.monotonic() + _EVERY_S
        if view is None or not view.has_parted:
            self._seen.clear()
            return False
        if self._seen and self._seen[-1] != view:
            self._seen.clear()
        self._seen.append(view)
        if len(self._seen) < _IN_A_ROW:
            return False
        self._seen.clear()
        return True

    def _ask(self) -> None:
        if self._admin is None:
            self._admin = AdminClient(self._settings)
        self._answer = self._admin.describe_consumer_groups([self._group], request_timeout=_ASK_S)[self._group]

    def _view(self, client: Consumer, answer: Future[Any]) -> _View | None:
        """Return what was answered; None if there was no answer, or the coordinator does not know the member."""
        try:
            members = answer.result().members
        except KafkaException:
            self._admin = None  # it keeps the coordinator that it knows for a quarter of an hour, also a wrong one
            return None
        for one in members:
            if one.member_id == client.memberid() and one.target_assignment is not None:
                target = one.target_assignment.topic_partitions
                return _View(_names(client.assignment()), _names(one.assignment.topic_partitions), _names(target))
        return None


def _names(places: Iterable[TopicPartition]) -> frozenset[tuple[str, int]]:
    return frozenset((place.topic, place.partition) for place in places)
