"""Reads and sets the committed offsets of a group from outside, without being its member."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from leftfold import clock
from leftfold.errors import LogError
from leftfold.kafka.admin import MOVING, TIMEOUT_S, Admin
from leftfold.kafka.failures import failed
from leftfold.kafka.group import LogPartition, Position, places_of
from leftfold.settings import Kafka

# How brokers say that a group has members.
_IN_USE = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.STALE_MEMBER_EPOCH)


def group_offsets(
    kafka: Kafka, admin: Admin, group: str, parts: Iterable[LogPartition]
) -> dict[LogPartition, Position]:
    """Return the committed positions of a group in those partitions where it has one."""
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(*part) for part in parts])]
    try:
        answer = _answered(lambda: admin.client.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[group])
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise failed(kafka, error.args[0], group=group) from error
    places = answer.topic_partitions or []
    for place in places:
        if place.error is not None:
            raise failed(kafka, place.error, topic=place.topic, group=group)
    return {
        LogPartition(place.topic, place.partition): Position(place.offset, place.metadata or "")
        for place in places
        if place.offset != OFFSET_INVALID
    }


def set_group_offsets(kafka: Kafka, admin: Admin, group: str, positions: Mapping[LogPartition, Position]) -> None:
    """Set the committed positions of a group that has no members."""
    asked = [ConsumerGroupTopicPartitions(group, places_of(positions))]
    try:
        answer = _answered(lambda: admin.client.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[group])
    except KafkaException as error:
        raise _refused(kafka, group, error.args[0]) from error
    for place in answer.topic_partitions or []:
        if place.error is not None:
            raise _refused(kafka, group, place.error)


def _answered(ask: Callable[[], Any]) -> Any:
    """Return a broker's answer. The admin client does not wait for a group's coordinator, so this asks again."""
    deadline = clock.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask().result()
        except KafkaException as error:
            if error.args[0].code() not in MOVING or clock.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _refused(kafka: Kafka, group: str, error: KafkaError) -> LogError:
    if error.code() not in _IN_USE:
        return failed(kafka, error, group=group)
    return LogError(
        "group-has-members",
        f"group {group} has members",
        why="each of them goes on from its own position, and would commit over a new one",
        fix="stop the consumer first; a member that died is forgotten after its session timeout",
        retriable=True,
    )
