"""A typed producer: nothing is lost without the caller knowing.

Idempotent, acknowledged by all in-sync replicas, the same partition for a key whoever writes it. A full buffer makes
the caller wait; a failed delivery is raised at the next call, and by `flush` at the latest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError
from confluent_kafka import Producer as Client

from leftfold.errors import DeclarationError, DeliveryError, LogError
from leftfold.fold.expressions import to_micros
from leftfold.fold.values import entity_text
from leftfold.kafka.encode import MISFITS, Encode, avro_encoder, json_encoder
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.settings import Kafka
from leftfold.spec.event import Event, fields_of
from leftfold.spec.schema import avro_schema
from leftfold.spec.topic import Topic

SETTINGS: dict[str, Any] = {
    "acks": "all",  # an acknowledged record is on at least min.insync.replicas brokers
    "enable.idempotence": True,  # a retry is neither a duplicate nor a change of order
    "partitioner": "murmur2_random",  # Java's: one partition per key, whoever writes it
    "compression.type": "lz4",  # the cheapest that still halves typical events
    "linger.ms": 20,  # fuller batches; a feature is seconds fresh, not milliseconds
    "delivery.timeout.ms": 120_000,  # as the Java client: outlasts an election, not a person's patience
    "delivery.report.only.error": True,  # a success costs no call into Python
    "log_level": 0,  # what a person must know arrives as an error of ours
}
# Reports of failures are served this often while sending; a power of two, so that the test is one AND.
_POLL_EVERY = 1_024
_NAMED_FAILURES = 5
_TOMBSTONE: Any = None  # to a compacted topic, no value means that the key is gone


class Producer:
    """Made by `App.producer`. Use it in a `with` block: leaving it flushes, or raises if anything was not delivered."""

    def __init__(self, topic: Topic[Any], name: str, kafka: Kafka, registry: SchemaRegistry) -> None:
        self.name = name
        self.sent = 0
        self._topic = topic
        self._keys = tuple(k.name for k in topic.key)
        self._encode = encoder_of(topic, name, registry)
        self._failures: list[tuple[str, bytes | None]] = []
        self._client = Client({**kafka.for_librdkafka(), **SETTINGS, "on_delivery": self._on_failure})
        self._produce = self._client.produce  # looked up once: this is the hot path

    def send(self, event: Event, *, log_time: datetime | None = None) -> None:
        """Send one event, validated when it was made."""
        if type(event) is not self._topic.event:
            raise DeclarationError(
                "wrong-event",
                f"topic {self._topic.name} holds {self._topic.event.__name__}, not {type(event).__name__}",
                why="a topic holds one type of event",
                fix=f"send it to the topic of {type(event).__name__}",
                source=self._topic.source,
            )
        self.send_dict(event.__dict__, log_time=log_time)

    def send_dict(self, record: Mapping[str, Any], *, log_time: datetime | None = None) -> None:
        """Send a record given as a dict of its fields: types are checked, the event's rules are left to the readers."""
        self.send_encoded(self.key_of(record), self.encode(record), log_time=log_time)

    def send_encoded(self, key: bytes, value: bytes, *, log_time: datetime | None = None) -> None:
        """Send bytes that `encode` made, here or earlier. `log_time` is for topics that believe their producers."""
        try:
            if log_time is None:
                self._produce(self.name, value, key)
            else:
                self._produce(self.name, value, key, timestamp=self._stamp(log_time))
        except BufferError:
            self._wait_for_room(key, value, 0 if log_time is None else self._stamp(log_time))
        self.sent += 1
        if not self.sent & (_POLL_EVERY - 1):
            self._client.poll(0)
            if self._failures:
                raise self._failed()

    def delete(self, /, **key: Any) -> None:
        """Send a tombstone: the row of this key is gone, and compaction will forget it."""
        topic = self._topic
        if not topic.compacted:
            raise DeclarationError(
                "delete-not-compacted",
                f"topic {topic.name} keeps what happened; nothing can be deleted from it",
                why="a record without a value means that a key is gone, and only to a compacted topic",
                fix="declare the topic with compacted=True, or send an event that says what happened",
                source=topic.source,
            )
        kinds = {k.name: {"string": str, "int": int}[k.kind] for k in topic.key}
        if {name: type(value) for name, value in key.items()} != kinds:
            raise DeclarationError(
                "wrong-key",
                f"{topic.name} was asked to delete {', '.join(f'{n}={v!r}' for n, v in key.items()) or 'no key'}",
                why=f"its records are keyed by ({', '.join(f'{k.name}: {k.kind}' for k in topic.key)})",
                fix="give exactly " + ", ".join(f"{name}=..." for name in kinds),
                source=topic.source,
            )
        self.send_encoded(self.key_of(key), _TOMBSTONE)

    def key_of(self, record: Mapping[str, Any]) -> bytes:
        try:
            if len(self._keys) == 1:
                return str(record[self._keys[0]]).encode()
            return entity_text([record[k] for k in self._keys]).encode()
        except KeyError as error:
            raise self._misfit(f"{error.args[0]} is missing") from error

    def encode(self, record: Mapping[str, Any]) -> bytes:
        try:
            return self._encode(record)
        except MISFITS as error:
            raise self._misfit(str(error)) from error

    def flush(self, timeout: float = 150.0) -> None:
        """Wait until everything sent is in the log. The default outlasts delivery.timeout.ms, so nothing stays open."""
        remaining = self._client.flush(timeout)
        if self._failures:
            raise self._failed()
        if remaining:
            raise DeliveryError(
                "not-delivered-yet",
                f"{remaining:,} of {self.sent:,} records to {self.name} were not acknowledged within {timeout:g} s",
                why="the brokers are slow or fewer than min.insync.replicas are in sync",
                state="these records are still being sent",
                fix="flush again, or look at leftfold status",
                retriable=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        else:
            self._client.flush(5)  # the error that is on its way says more than this one would

    def _stamp(self, log_time: datetime) -> int:
        """In milliseconds, as Kafka has it; there 0 means "now", so it is no moment to send."""
        if self._topic.log_time != "producer":
            raise DeclarationError(
                "log-time-not-ours",
                f"topic {self._topic.name} stamps records with the broker's time, so log_time= would be lost",
                why="late is judged by when the log got a record, whatever its producer's clock says",
                state=f"{self.sent:,} records were sent before it; it was not",
                fix='leave log_time= out, or declare the topic with log_time="producer"',
                source=self._topic.source,
            )
        if log_time.tzinfo is None:
            raise self._misfit("log_time has no time zone")
        if (stamp := to_micros(log_time) // 1_000) <= 0:
            raise self._misfit("log_time is not after 1970")
        return stamp

    def _misfit(self, reason: str) -> DeclarationError:
        fields = ", ".join(f"{f.name}: {f.kind}" for f in fields_of(self._topic.event).values())
        return DeclarationError(
            "record-does-not-fit",
            f"a record does not fit {self._topic.event.__name__}: {reason}",
            why=f"its fields are {fields}",
            state=f"{self.sent:,} records were sent before it; it was not",
            fix="correct the record; datetimes need a time zone",
            source=self._topic.source,
        )

    def _wait_for_room(self, key: bytes, value: bytes, stamp: int) -> None:
        while True:
            self._client.poll(0.1)
            if self._failures:
                raise self._failed()
            try:
                self._produce(self.name, value, key, timestamp=stamp)
            except BufferError:
                continue
            return

    def _on_failure(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failures.append((error.str(), message.key()))

    def _failed(self) -> DeliveryError:
        failures, self._failures = self._failures, []
        keys = ", ".join(repr((key or b"").decode(errors="replace")) for _, key in failures[:_NAMED_FAILURES])
        more = " …" if len(failures) > _NAMED_FAILURES else ""
        return DeliveryError(
            "not-delivered",
            f"{len(failures):,} of {self.sent:,} records to {self.name} were not delivered",
            why=failures[0][0],
            state=f"they are not in the log; their keys: {keys}{more}",
            fix="correct the cause and send them again",
        )


def encoder_of(topic: Topic[Any], name: str, registry: SchemaRegistry) -> Encode:
    """As the topic has its records; `name` is the cluster's."""
    if topic.format == "json":
        return json_encoder(topic.event)
    schema_id = registry.id_of(subject_of(name), avro_schema(topic.event))
    if schema_id is None:
        raise not_registered(topic, name)
    return avro_encoder(topic.event, schema_id)


def not_registered(topic: Topic[Any], name: str) -> LogError:
    return LogError(
        "schema-not-registered",
        f"the schema of {topic.event.__name__} is not registered for topic {name}",
        why="a record is written under a registered schema, so that every reader can decode it",
        fix="leftfold apply --yes",
        source=topic.source,
    )
