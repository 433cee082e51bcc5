"""The idempotent producers that a partition's leader remembers. librdkafka cannot ask for it, so kafka-python does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leftfold.kafka.python_admin import python_admin
from leftfold.settings import Kafka


class IdempotentProducers:
    """One client for any number of questions. Where brokers do not let us ask (it takes Read on a topic), no answer."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._client: Any = None

    def last_times(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """By partition, the newest log time (µs) of the last batches that they sent; 0 if none is remembered.

        Without partitions that a transaction was ended in: the time that is then remembered is its marker's, which is
        of a broker's clock also where records carry their producers'.
        """
        from kafka import TopicPartition  # type: ignore[import-untyped] # it has no types
        from kafka.errors import KafkaError  # type: ignore[import-untyped]

        places = [TopicPartition(topic, p) for p in partitions]
        if not places:
            return {}
        try:
            if self._client is None:
                self._client = python_admin(self._kafka)
            found = self._client.describe_producers(places)
        except KafkaError:
            return {}
        return {
            place.partition: max((1_000 * p.last_timestamp for p in state.active_producers), default=0)
            for place, state in found.items()
            if all(p.coordinator_epoch < 0 for p in state.active_producers)
        }

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
