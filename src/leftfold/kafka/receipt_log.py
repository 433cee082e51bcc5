"""Receipts in their topic: JSON documents. All of one build are in one partition; the newest of a key is valid.

They are written by an idempotent producer, and acknowledged by all in-sync replicas before `append` returns. Fencing is
not needed: two writers of one key write the same offsets and counts. Only the time of writing, and how often they
wrote, may differ.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from leftfold.errors import LogError
from leftfold.kafka.admin import TIMEOUT_S
from leftfold.kafka.failures import Heard, failed, quiet, refused
from leftfold.kafka.log_reader import scan
from leftfold.kafka.producer import SETTINGS
from leftfold.settings import Kafka


@dataclass(frozen=True)
class Kept:
    """A document, and its offset in its partition."""

    offset: int
    document: dict[str, Any]


class ReceiptLog:
    """The receipts of one namespace."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._heard = Heard(kafka)

    def append(self, scope: str, documents: Iterable[tuple[str, dict[str, Any] | None]]) -> list[int]:
        """Write documents under their keys, in their order; None removes a document. Durable when this returns.

        Returns the offset of each document. It is 0 if the broker has not reported it, for example for a duplicate that
        the broker already had.
        """
        failures: list[KafkaError] = []
        offsets: list[int] = []

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            offsets.append(max(0, message.offset() or 0))  # in order, because all go to one partition

        partition = self._partition(scope)
        for key, document in documents:
            value = None if document is None else json.dumps(document, separators=(",", ":"))
            self._producer.produce(
                self._topic, value=value, key=f"{scope}/{key}", partition=partition, on_delivery=told
            )
        waiting = self._producer.flush(TIMEOUT_S)
        if failures or waiting:
            why = failures[0].str() if failures else f"no broker acknowledged them within {TIMEOUT_S:g} s"
            refusal = refused(self._kafka, failures[0], topic=self._topic) if failures else self._heard.refusal()
            raise refusal or LogError(
                "receipt-not-written",
                f"the receipt of {scope} was not acknowledged by {self._topic}",
                why=why,
                state="the batch is written but not committed; it runs again with the same records and writes the same "
                "receipt, whether this one is in the topic or not",
                fix="leftfold status shows whether the brokers run",
                retriable=True,
            )
        return offsets

    def broker_time(self, scope: str) -> int | None:
        """Return the time (µs) of the broker that leads the scope's partition; None if it does not stamp records.

        It asks by appending a tombstone, which compaction removes later.
        """
        stamps: list[int] = []

        def told(error: KafkaError | None, message: Message) -> None:
            kind, stamp = message.timestamp()
            if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
                stamps.append(stamp * 1_000)

        self._producer.produce(self._topic, key=f"{scope}/clock", partition=self._partition(scope), on_delivery=told)
        self._producer.flush(TIMEOUT_S)
        return stamps[0] if stamps else None

    def read(self, scope: str, *, since: int = 0, only: Collection[str] | None = None) -> dict[str, Kept]:
        """Return the documents that the log holds for a scope now, by key, in the order of writing.

        `since` leaves out documents that were written before that offset. With `only`, reading stops as soon as each of
        these keys has a document, so a document may be older than the key's newest one.
        """
        documents: dict[str, Kept] = {}
        prefix, partition = f"{scope}/", self._partition(scope)
        records = scan(self._kafka, self._topic, [partition], {partition: since} if since else None)
        with closing(records):
            for record in records:
                name = (record.key or b"").decode()
                key = name.removeprefix(prefix)
                if not name.startswith(prefix) or (only is not None and key not in only):
                    continue
                documents.pop(key, None)
                if record.value is not None:
                    documents[key] = Kept(record.offset, json.loads(record.value))
                if only is not None and len(documents) == len(only):
                    break
        return documents

    @cached_property
    def _producer(self) -> Producer:
        ours = {"linger.ms": 0, "delivery.report.only.error": False}  # a success reports offset and time
        return Producer({**self._kafka.for_librdkafka(), **SETTINGS, **ours, **quiet(self._heard)})

    @cached_property
    def _partitions(self) -> int:
        try:
            topic = self._producer.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
        except KafkaException as error:
            self._producer.poll(0)  # calls `Heard` with the errors that arrived meanwhile
            raise failed(self._kafka, self._heard.instead_of(error.args[0]), topic=self._topic) from error
        if topic.error is not None and (refusal := refused(self._kafka, topic.error, topic=self._topic)) is not None:
            raise refusal
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
