"""Receipts in their topic: JSON documents, those of one build in one partition, the newest of a key is the valid one.

Written by an idempotent producer, acknowledged by all in-sync replicas before `append` returns. Nothing has to be
fenced: two writers of one key tell of the same offsets and counts; only when, and how often, they wrote may differ.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from leftfold.errors import LogError
from leftfold.kafka.admin import TIMEOUT_S, unreachable
from leftfold.kafka.producer import SETTINGS
from leftfold.kafka.scan import scan
from leftfold.settings import Kafka


class ReceiptLog:
    """The books of one namespace."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic

    def append(self, scope: str, documents: Iterable[tuple[str, dict[str, Any] | None]]) -> None:
        """Write documents under their keys, in their order; None removes one. Durable when this returns."""
        failures: list[KafkaError] = []

        def told(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        partition = self._partition(scope)
        for key, document in documents:
            value = None if document is None else json.dumps(document, separators=(",", ":"))
            self._producer.produce(
                self._topic, value=value, key=f"{scope}/{key}", partition=partition, on_delivery=told
            )
        waiting = self._producer.flush(TIMEOUT_S)
        if failures or waiting:
            why = failures[0].str() if failures else f"no broker acknowledged them within {TIMEOUT_S:g} s"
            raise LogError(
                "receipt-not-written",
                f"the receipt of {scope} is not in {self._topic}",
                why=why,
                state="the batch is written but not committed; it runs again with the same records",
                fix="leftfold status shows whether the brokers run",
                retriable=True,
            )

    def read(self, scope: str) -> dict[str, dict[str, Any]]:
        """What the books hold of a scope now, by key, in the order of writing."""
        found: dict[str, dict[str, Any]] = {}
        prefix = f"{scope}/"
        for record in scan(self._kafka, self._topic, [self._partition(scope)]):
            key = (record.key or b"").decode()
            if key.startswith(prefix):
                found.pop(key.removeprefix(prefix), None)
                if record.value is not None:
                    found[key.removeprefix(prefix)] = json.loads(record.value)
        return found

    @cached_property
    def _producer(self) -> Producer:
        return Producer({**self._kafka.for_librdkafka(), **SETTINGS, "linger.ms": 0})

    @cached_property
    def _partitions(self) -> int:
        try:
            topic = self._producer.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
        except KafkaException as error:
            raise unreachable(self._kafka.bootstrap, error.args[0].str()) from error
        if topic.error is not None or not topic.partitions:
            raise LogError(
                "not-applied",
                f"topic {self._topic} does not exist",
                why="every batch leaves a receipt there",
                fix="leftfold apply --yes",
            )
        return len(topic.partitions)

    def _partition(self, scope: str) -> int:
        return zlib.crc32(scope.encode()) % self._partitions
