"""Small JSON documents in a compacted topic. All of one scope are in one partition; the newest of a key is valid.

They are written by an idempotent producer, and acknowledged by all in-sync replicas before `append` returns.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from leftfold.errors import LogError
from leftfold.kafka.admin import TIMEOUT_S
from leftfold.kafka.failures import Heard, failed, quiet, refused
from leftfold.kafka.log_reader import scan
from leftfold.kafka.producer import SETTINGS
from leftfold.settings import Kafka

_AT_ONCE = 1_000


@dataclass(frozen=True)
class Kept:
    """A document, and its offset in its partition."""

    offset: int
    document: dict[str, Any]


class DocumentLog:
    """The documents of one topic. `purpose` says what the topic is for, to a user who has not applied it."""

    purpose: ClassVar[str]

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
            raise refusal or self._not_written(scope, why)
        return offsets

    def _not_written(self, scope: str, why: str) -> LogError:
        """Return the error for documents that no broker acknowledged."""
        raise NotImplementedError

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
                why=self.purpose,
                fix="leftfold apply",
            )
        return len(topic.partitions)

    def _partition(self, scope: str) -> int:
        return zlib.crc32(scope.encode()) % self._partitions

    def follow(self, scope: str) -> Followed:
        """Return what the log holds for a scope, kept up to date by calls of its `look`."""
        return Followed(self._kafka, self._topic, scope, self._partition(scope))


class Followed:
    """The documents of a scope by key, as far as they have arrived. One thread owns it."""

    def __init__(self, kafka: Kafka, topic: str, scope: str, partition: int) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self._prefix = f"{scope}/"
        self._consumer = Consumer(
            {
                **kafka.for_librdkafka(),
                "group.id": kafka.reading_group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **quiet(Heard(kafka)),
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])

    def look(self) -> None:
        """Take what has arrived. Does not wait."""
        for message in self._consumer.consume(_AT_ONCE, timeout=0):
            name = (message.key() or b"").decode()
            if message.error() is not None or not name.startswith(self._prefix):
                continue
            key, value = name.removeprefix(self._prefix), message.value()
            if value is None:
                self.documents.pop(key, None)
            else:
                self.documents[key] = json.loads(value)

    def close(self) -> None:
        self._consumer.close()
