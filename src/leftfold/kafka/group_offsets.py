"""Reads and sets the committed offsets of a group from outside, without being its member."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from leftfold import clock
from leftfold.errors import LogError
from leftfold.kafka.admin import MOVING, TIMEOUT_S, Admin
from leftfold.kafka.failures import failed, in_python, unreachable
from leftfold.kafka.group import LogPartition, Position, places_of
from leftfold.kafka.python_admin import python_admin
from leftfold.settings import Kafka

# How brokers say that a group has members.
_IN_USE = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.STALE_MEMBER_EPOCH)


class GroupOffsets:
    """A client that reads the committed offsets of groups, for any number of questions. The caller must close it.

    kafka-python asks. The same question ends a process that asks it by librdkafka with a segmentation fault, if the
    broker is no longer the group's coordinator (confluentinc/librdkafka#5040).
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._client: Any = None

    def of(self, group: str, parts: Iterable[LogPartition] | None = None) -> dict[LogPartition, Position]:
        """Return the positions of a group: all, or those in `parts`. Waits for a coordinator that is being chosen."""
        from kafka import TopicPartition as Place  # type: ignore[import-untyped] # it has no types
        from kafka.errors import GroupIdNotFoundError, KafkaError  # type: ignore[import-untyped]

        asked = None if parts is None else [Place(*part) for part in parts]
        deadline = clock.monotonic() + TIMEOUT_S
        while True:
            try:
                if self._client is None:
                    self._client = python_admin(self._kafka)
                answer = self._client.list_group_offsets({group: asked})[group]
                break
            except GroupIdNotFoundError:
                return {}
            except KafkaError as error:
                if not error.retriable or clock.monotonic() > deadline:
                    why = f"{type(error).__name__}: {error}"
                    raise in_python(self._kafka, error) or unreachable(self._kafka.bootstrap, why) from error
            time.sleep(0.1)
        return {
            LogPartition(place.topic, place.partition): Position(at.offset, at.metadata or "")
            for place, at in answer.items()
            if at.offset >= 0
        }

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def group_offsets(kafka: Kafka, group: str, parts: Iterable[LogPartition]) -> dict[LogPartition, Position]:
    """Return the committed positions of a group in those partitions where it has one."""
    with closing(GroupOffsets(kafka)) as client:
        return client.of(group, parts)


def set_group_offsets(kafka: Kafka, group: str, positions: Mapping[LogPartition, Position]) -> None:
    """Set the committed positions of a group that has no members."""
    asked = [ConsumerGroupTopicPartitions(group, places_of(positions))]
    deadline = clock.monotonic() + TIMEOUT_S
    while True:
        client = Admin(kafka).client  # a new one each time: see `admin.MOVING`
        try:
            answer = client.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[group].result()
            errors = [place.error for place in answer.topic_partitions or [] if place.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        if not errors:
            return
        if errors[0].code() not in MOVING or clock.monotonic() > deadline:
            raise _refused(kafka, group, errors[0])
        time.sleep(0.1)


def _refused(kafka: Kafka, group: str, error: KafkaError) -> LogError:
    if error.code() not in _IN_USE:
        return failed(kafka, error, group=group)
    return LogError(
        "group-has-members",
        f"group {group} has members",
        why="each of them continues from its own position, and would overwrite a new one",
        fix="stop the consumer first; a member that died is forgotten after its session timeout",
        retriable=True,
    )
