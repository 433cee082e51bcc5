"""Publishes a view's position as committed offsets of a consumer group, so that Kafka's own tools show its lag.

Spark keeps offsets in its checkpoint and commits none. The group has no members, and nothing reads from it. It is only
for display and never the source of truth, so a commit that fails stops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, cast

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from leftfold import clock
from leftfold.kafka.admin import MOVING
from leftfold.settings import Kafka

# How long a commit may take, and how long the end of a run waits for its last commit. A healthy broker takes
# milliseconds.
_COMMIT_S = 10.0
_LAST_COMMIT_S = 5.0

_Offsets = dict[tuple[str, int], int]


class LagGroup:
    """The consumer group that shows a view's position. It is used by one thread at a time.

    `failure` is the reason why the newest answered commit failed; None if it succeeded. It uses an admin client and not
    a consumer. An admin client joins no group, and it can be released while no broker answers. A consumer with a commit
    under way would block its process for most of a minute.
    """

    def __init__(self, kafka: Kafka, group: str) -> None:
        self.failure: str | None = None
        self._kafka = kafka
        self._group = group
        self._wanted: _Offsets = {}
        self._sent: _Offsets = {}
        self._under_way: Future[Any] | None = None
        self._moving = False  # the newest commit failed because the group had no coordinator
        self._client: AdminClient | None = self._connected()

    def _connected(self) -> AdminClient:
        return AdminClient({**self._kafka.for_librdkafka(), "log_level": 0})

    def publish(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Commit the next offset of each partition, by the topic's name in the cluster. Does not wait.

        One commit is under way at a time. Newer offsets are sent by the next call after it is answered, or by `close`.
        """
        self._wanted |= {(topic, p): offset for topic, offsets in ends.items() for p, offset in offsets.items()}
        self._hear()
        self._commit()

    def close(self) -> None:
        """Wait for the last commit, at most about 5 seconds, and release the client."""
        deadline = clock.monotonic() + _LAST_COMMIT_S
        while self._under_way is not None or self._wanted != self._sent:
            self._commit()
            self._hear(max(0.0, deadline - clock.monotonic()))
            if self._under_way is not None:
                self.failure = f"no broker answered within {_LAST_COMMIT_S:g} s"
                break
            if self.failure is not None and (not self._moving or clock.monotonic() > deadline):
                break
            if self._moving:
                time.sleep(0.1)  # the group will soon have a coordinator; no event says when
        self._client = None

    def _commit(self) -> None:
        """Send the wanted offsets. The brokers accept them as long as the group has no members."""
        if self._client is None or self._under_way is not None or self._wanted == self._sent:
            return
        self._sent = dict(self._wanted)
        offsets = [TopicPartition(topic, p, offset) for (topic, p), offset in self._sent.items()]
        try:
            answers = self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group, offsets)], request_timeout=_COMMIT_S
            )
        except KafkaException as error:
            self.failure = error.args[0].str()
        else:
            self._under_way = answers[self._group]

    def _hear(self, timeout: float = 0.0) -> None:
        """Take the answer of the commit under way, if there is one. A failed commit is sent again with the next."""
        if self._under_way is None or not wait_for([self._under_way], timeout).done:
            return
        error = _failure(self._under_way)
        self._under_way = None
        self.failure = None if error is None else error.str()
        self._moving = error is not None and error.code() in MOVING
        if error is not None:
            self._sent = {}
        if self._moving and self._client is not None:
            self._client = self._connected()  # the old one would ask the same broker again


def _failure(answer: Future[Any]) -> KafkaError | None:
    error = answer.exception()
    if error is None:
        return next((p.error for p in answer.result().topic_partitions if p.error is not None), None)
    if isinstance(error, KafkaException):
        return cast(KafkaError, error.args[0])
    raise error
