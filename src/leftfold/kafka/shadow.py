"""Where a view is in its topics, as committed offsets of a consumer group: so that Kafka's own tools show its lag.

Spark keeps offsets in its checkpoint and commits none. The group has no members and nobody reads from it: it is
display, never truth, so a commit that fails stops nothing.
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

# How long a commit may take, and how long the end of a run waits for its last one; a healthy broker takes milliseconds.
_COMMIT_S = 10.0
_LAST_COMMIT_S = 5.0

_Offsets = dict[tuple[str, int], int]


class ShadowGroup:
    """Used by one thread at a time. `failure` is why the newest commit that was answered failed, if it did.

    An admin client and not a consumer: it joins nothing, and it can be let go of while no broker answers, where a
    consumer with a commit under way holds its process for most of a minute.
    """

    def __init__(self, kafka: Kafka, group: str) -> None:
        self.failure: str | None = None
        self._group = group
        self._wanted: _Offsets = {}
        self._sent: _Offsets = {}
        self._under_way: Future[Any] | None = None
        self._moving = False  # the newest commit came while the group had no coordinator
        self._client: AdminClient | None = AdminClient({**kafka.for_librdkafka(), "log_level": 0})

    def publish(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """The next offset of each partition, by the topic's name in the cluster. Sends, and does not wait.

        One commit is under way at a time; what is newer when it is answered goes with the next call, or with `close`.
        """
        self._wanted |= {(topic, p): offset for topic, offsets in ends.items() for p, offset in offsets.items()}
        self._hear()
        self._commit()

    def close(self) -> None:
        """Waits a moment for the last commit, and no longer."""
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
                time.sleep(0.1)  # the group is about to have a coordinator; nothing tells when
        self._client = None

    def _commit(self) -> None:
        """The brokers take it as long as the group has no members."""
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
        """What became of the commit under way. One that failed is sent again with the next."""
        if self._under_way is None or not wait_for([self._under_way], timeout).done:
            return
        error = _failure(self._under_way)
        self._under_way = None
        self.failure = None if error is None else error.str()
        self._moving = error is not None and error.code() in MOVING
        if error is not None:
            self._sent = {}


def _failure(answer: Future[Any]) -> KafkaError | None:
    error = answer.exception()
    if error is None:
        return next((p.error for p in answer.result().topic_partitions if p.error is not None), None)
    if isinstance(error, KafkaException):
        return cast(KafkaError, error.args[0])
    raise error
