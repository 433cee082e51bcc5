"""kafka-python's admin client, for the few questions that librdkafka cannot ask."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from leftfold.kafka.failures import in_python
from leftfold.kafka.observed import ObservedDisk
from leftfold.settings import Kafka

_TIMEOUT_MS = 20_000


def python_admin(kafka: Kafka) -> Any:
    """Open an admin client. The caller must close it."""
    from kafka import KafkaAdminClient  # type: ignore[import-untyped] # it has no types

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its event loop's notes are not for a user's terminal
    return KafkaAdminClient(**kafka.for_kafka_python(), request_timeout_ms=_TIMEOUT_MS)


def raise_unless_denied(kafka: Kafka, error: Exception) -> None:
    """Raise if the error is a refused login or TLS connection.

    Other errors are ignored: the answer was denied or did not arrive, and the caller can work without it.
    """
    refusal = in_python(kafka, error)
    if refusal is not None and refusal.code != "kafka-denied":
        raise refusal from error


# Sizes of partitions, and how full the brokers' disks are. librdkafka cannot ask for it, so kafka-python does: one call
# to each broker.


@dataclass(frozen=True)
class LogDirs:
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)  # bytes of each partition's largest copy
    disks: dict[int, tuple[ObservedDisk, ...]] = field(default_factory=dict)  # by broker


def log_dirs(kafka: Kafka, topics: Collection[str] | None = None) -> LogDirs:
    """Return partition sizes and disks, for all topics or only for `topics`.

    Returns an empty result if the brokers deny the question. It needs Describe on the cluster.
    """
    from kafka.errors import KafkaError  # type: ignore[import-untyped] # it has no types

    try:
        client = python_admin(kafka)
        try:
            answers = client.describe_log_dirs(None if topics is None else list(topics))
        finally:
            client.close()
    except KafkaError as error:
        raise_unless_denied(kafka, error)
        return LogDirs()
    sizes: dict[tuple[str, int], int] = {}
    disks: dict[int, tuple[ObservedDisk, ...]] = {}
    for answer in answers:
        readable = [directory for directory in answer["log_dirs"] if directory["error_code"] == 0]
        disks[answer["broker"]] = tuple(
            ObservedDisk(directory["log_dir"], directory["total_bytes"], directory["usable_bytes"])
            for directory in readable
            if directory["total_bytes"] >= 0  # brokers before 3.3 do not report it
        )
        for directory in readable:
            for topic in directory["topics"]:
                for part in topic["partitions"]:
                    place = (topic["name"], part["partition_index"])
                    sizes[place] = max(sizes.get(place, 0), part["partition_size"])
    return LogDirs(sizes, disks)


# The idempotent producers that a partition's leader remembers. librdkafka cannot ask for them, so kafka-python does.


class IdempotentProducers:
    """A client that asks about idempotent producers, for any number of questions.

    If brokers deny a question, its answer is empty. It needs Read on the topic.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._client: Any = None

    def last_times(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the newest log time (µs) of the producers' last batches, by partition; 0 if none is remembered.

        It leaves out partitions in which a transaction has ended. There the remembered time is that of the marker. A
        marker carries the broker's clock, even where records carry their producers' clocks.
        """
        from kafka import TopicPartition
        from kafka.errors import KafkaError

        places = [TopicPartition(topic, p) for p in partitions]
        if not places:
            return {}
        try:
            if self._client is None:
                self._client = python_admin(self._kafka)
            states = self._client.describe_producers(places)
        except KafkaError as error:
            raise_unless_denied(self._kafka, error)
            return {}
        return {
            place.partition: max((1_000 * p.last_timestamp for p in state.active_producers), default=0)
            for place, state in states.items()
            if all(p.coordinator_epoch < 0 for p in state.active_producers)
        }

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
