"""A typed producer: no record is lost without the caller knowing.

It is idempotent and waits for all in-sync replicas. A key always goes to the same partition, whoever writes it. A full
buffer makes the caller wait. Records that were not acknowledged are raised as an error by a later `send`, by `flush`,
or at the latest at the end of the `with` block. The error says how many records failed (they are not in the log) and
how many are unknown (they may be in the log).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from leftfold import clock
from leftfold.declare.event import Event, fields_of
from leftfold.declare.keys import longest_key
from leftfold.declare.schema import avro_schema
from leftfold.declare.synthetic import synthetic
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, DeliveryError, LogError
from leftfold.fold.expressions import to_micros
from leftfold.fold.values import entity_text
from leftfold.kafka.delivery import OnFailure, Undelivered
from leftfold.kafka.encode import MISFITS, Encode, avro_encoder, json_encoder
from leftfold.kafka.failures import Heard, refused, remedy
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.kafka.synthetic import avro_synthetic
from leftfold.settings import Kafka

SETTINGS: dict[str, Any] = {
    "acks": "all",  # an acknowledged record is on at least min.insync.replicas brokers
    "enable.idempotence": True,  # a retry is neither a duplicate nor a change of order
    "partitioner": "murmur2_random",  # as Java's client: one partition per key, whoever writes it
    "compression.type": "lz4",  # the cheapest that still halves typical events
    "linger.ms": 20,  # fuller batches; a feature is seconds fresh, not milliseconds
    "delivery.timeout.ms": 120_000,  # as Java's client: longer than an election, but not too long for a user
    "delivery.report.only.error": True,  # a success costs no call into Python
    "log_level": 0,  # what a user must know arrives as an error of ours
}
# For records that are passed on as they are. The client itself refuses larger messages, and its default limit is below
# that of a broker.
LARGEST_MESSAGE = 64 * 1_024 * 1_024
# How often reports of failures are handled while sending. It is a power of two, so that the test is one AND.
_POLL_EVERY = 1_024
_SHOWN = 20  # characters shown of a key that is too long
# Longer than delivery.timeout.ms, so that no record is open after it.
_FLUSH_S = 150.0
_FLUSH_SLICE_S = 0.5
# A user who interrupts waits this long for acknowledgements that are on their way.
_INTERRUPTED_S = 2.0
# Records that were given up are reported at once. This long wait is only for a very busy machine.
_GIVEN_UP_S = 10.0
# A search for records in the log begins this long before the producer was opened: brokers have their own clocks.
_CLOCKS_DIFFER = timedelta(minutes=1)
# How long a producer waits at its start for access. A broker that refuses a connection does so within a second or two.
_KNOCKS_S = (1.0, 4.0)
_TOMBSTONE: Any = None  # in a compacted topic, a record without a value deletes its key


class Producer:
    """A producer for one topic, made by `App.producer`. Use it in a `with` block.

    Leaving the block waits until all records are acknowledged, or raises. `sent` counts the records that the producer
    was given. An `on_failure` callback is called with "failed" or "unknown" if its record was not acknowledged. The
    call happens in the thread that calls the producer.
    """

    def __init__(self, topic: Topic[Any], name: str, kafka: Kafka, registry: SchemaRegistry) -> None:
        self.name = name
        self.sent = 0
        self._topic = topic
        keys = tuple(k.name for k in topic.key)
        self._longest_key = longest_key(topic.rules, keys)
        self._key = key_encoder(keys)
        self._schema_id = _schema_id(topic, name, registry)
        self._encode = _encoder(topic, self._schema_id)
        self._opened = clock.now()
        self._undelivered = Undelivered()
        self._told = 0  # how many of these were reported to the caller
        self._settled = 0  # value of `sent` when no record was under way
        self._broken: KafkaError | None = None  # why the client accepts no more records
        self._kafka = kafka
        heard = Heard(kafka)
        # Not a method of this object: a reference cycle through the client would keep its threads alive until Python's
        # garbage collector runs.
        ours = {"on_delivery": self._undelivered.report, "error_cb": heard}
        self._client = Client({**kafka.for_librdkafka(), **SETTINGS, **ours})
        _knock(self._client, name, kafka, heard)
        self._produce = self._client.produce  # looked up once: this is the hot path

    # No bare * in the next three methods: Python calls a function with keyword-only arguments more slowly, by 50 ns a
    # record.

    def send(self, event: Event, log_time: datetime | None = None, on_failure: OnFailure | None = None) -> None:
        """Send one event. The event was validated when it was created."""
        if type(event) is not self._topic.event:
            raise DeclarationError(
                "wrong-event",
                f"topic {self._topic.name} holds {self._topic.event.__name__}, not {type(event).__name__}",
                why="a topic holds one type of event",
                fix=f"send it to the topic of {type(event).__name__}",
                source=self._topic.source,
            )
        self.send_dict(event.__dict__, log_time, on_failure)

    def send_dict(
        self, record: Mapping[str, Any], log_time: datetime | None = None, on_failure: OnFailure | None = None
    ) -> None:
        """Send a record given as a dict of its fields.

        Types are checked. The event's rules are not checked here; the readers check them.
        """
        try:
            key, value = self._key(record), self._encode(record)
        except MISFITS as error:
            raise self._misfit(error) from error
        self.send_encoded(key, value, log_time, on_failure)

    def send_encoded(
        self, key: bytes, value: bytes, log_time: datetime | None = None, on_failure: OnFailure | None = None
    ) -> None:
        """Send bytes that `encode` made, now or earlier. `log_time` is only for topics with log_time="producer".

        If this raises, this record was not sent. The error may also be about earlier records.
        """
        if len(key) > self._longest_key:
            self.check_key(key)
        try:
            if not self.sent & (_POLL_EVERY - 1):
                self._client.poll(0)
                self._tell()
            if log_time is None and on_failure is None:
                self._produce(self.name, value, key)
            else:
                self._produce(self.name, value, key, **self._options(log_time, on_failure))
        except BufferError:
            self._wait_for_room(key, value, log_time, on_failure)
        except KafkaException as refused:
            raise self._not_taken(refused, key, on_failure) from refused
        self.sent += 1  # last: an interrupt before it can make the acknowledged count too low, never too high

    def delete(self, /, **key: Any) -> None:
        """Send a tombstone: the row of this key is deleted, and compaction will remove it."""
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
            return self._key(record)
        except MISFITS as error:
            raise self._misfit(error) from error

    def encode(self, record: Mapping[str, Any]) -> bytes:
        try:
            return self._encode(record)
        except MISFITS as error:
            raise self._misfit(error) from error

    def synthetic(self, count: int, *, seed: int) -> Iterator[tuple[bytes, bytes]]:
        """Make the keys and values of `count` synthetic records, for `send_encoded`."""
        if self._schema_id is not None:
            return avro_synthetic(self._topic, count, seed=seed, schema_id=self._schema_id, key=self._key)
        return ((self.key_of(r), self.encode(r)) for r in synthetic(self._topic, count, seed=seed))

    def flush(self, timeout: float = _FLUSH_S) -> None:
        """Wait until every sent record is acknowledged, or raise.

        The default timeout is longer than delivery.timeout.ms.
        """
        remaining = self._flush(timeout)
        self._tell()
        if remaining:
            raise DeliveryError(
                "not-delivered-yet",
                f"{remaining:,} of {self.sent:,} records to {self.name} were not acknowledged within {timeout:g} s",
                why="the brokers are slow or fewer than min.insync.replicas are in sync",
                state=f"they are still being sent, and may be in the log already; {self._counts()}",
                fix="flush again, and do not send them again: they could be in the log twice",
                retriable=True,
                details=self._details(),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the outcome of the records under way, report it, and stop sending.

        This holds for every way in which the block can end. An interrupt waits only a short time.
        """
        if error is None:
            self._settle(_FLUSH_S)
            self._tell()
            return
        if isinstance(error, Exception):
            self._settle(_FLUSH_S)
            if isinstance(error, DeliveryError) and error.details.get("under_way"):
                self._told = 0  # their outcome was not known when that error was raised
            self._tell(error)
        else:  # a user or the system wants it to end now
            self.give_up()
        error.add_note(f"of {self.sent:,} records to {self.name}: {self._counts()}")

    def give_up(self) -> None:
        """Wait a short time for acknowledgements, then stop sending.

        Every `on_failure` that is due has been called when this returns.
        """
        self._settle(_INTERRUPTED_S)

    def _flush(self, seconds: float) -> int:
        """Flush in slices, and return how many records remain.

        Signals are handled between slices, because librdkafka's own wait does not handle them.
        """
        remaining = self._flush_slice(seconds)
        while remaining and (seconds := seconds - _FLUSH_SLICE_S) > 0:
            remaining = self._flush_slice(seconds)
        if not remaining:
            self._settled = self.sent
        return remaining

    def _flush_slice(self, seconds: float) -> int:
        try:
            return self._client.flush(min(seconds, _FLUSH_SLICE_S))
        except KafkaException as broken:  # raised once; outcomes of records under way are still reported
            self._broken = broken.args[0]
            return len(self._client)
        except SystemError as lost:  # confluent-kafka 2.16 loses the interrupt that a signal raised while it waited
            raise KeyboardInterrupt from lost

    def _settle(self, seconds: float) -> None:
        """Wait until the outcome of each record is known.

        Records that are still open after that are given up, so their outcome is unknown.
        """
        remaining = -1
        try:
            remaining = self._flush(seconds)
        finally:
            if remaining:
                self._client.purge()
                self._flush(_GIVEN_UP_S)

    def _stamp(self, log_time: datetime) -> int:
        """Return the log time in milliseconds, as Kafka needs it.

        In Kafka's client 0 means "now", so 0 cannot be sent as a time.
        """
        if self._topic.log_time != "producer":
            raise DeclarationError(
                "log-time-not-ours",
                f"topic {self._topic.name} stamps records with the broker's time, so log_time= would be lost",
                why="late is judged by when the log got a record, whatever its producer's clock says",
                state=self._not_sent(),
                fix='leave log_time= out, or declare the topic with log_time="producer"',
                source=self._topic.source,
            )
        if log_time.tzinfo is None:
            raise self._misfit("log_time has no time zone")
        if (stamp := to_micros(log_time) // 1_000) <= 0:
            raise self._misfit("log_time is not after 1970")
        return stamp

    def _misfit(self, reason: Exception | str) -> DeclarationError:
        if isinstance(reason, KeyError):
            reason = f"{reason.args[0]} is missing"
        fields = ", ".join(f"{f.name}: {f.kind}" for f in fields_of(self._topic.event).values())
        return DeclarationError(
            "record-does-not-fit",
            f"a record does not fit {self._topic.event.__name__}: {reason}",
            why=f"its fields are {fields}",
            state=self._not_sent(),
            fix="correct the record; datetimes need a time zone",
            source=self._topic.source,
        )

    def check_key(self, key: bytes) -> None:
        """Raise for a key that is so long that every view would reject it."""
        if len(key) <= self._longest_key:
            return
        raise DeclarationError(
            "key-too-long",
            f"a record for {self._topic.name} has a key of {len(key):,} bytes, "
            f"which begins with {key[:_SHOWN].decode(errors='replace')!r}",
            why=f"views reject a key of more than {self._longest_key:,} bytes: each holds it once for every tile",
            state=self._not_sent(),
            fix="correct the key; Field(max_length=...) of its field allows longer ones",
            source=self._topic.source,
        )

    def _not_sent(self) -> str:
        if not self.sent:
            return "it was not sent, nor was any before it"
        return (
            f"it was not sent; flush, or the end of the block, says whether the {self.sent:,} before it are in the log"
        )

    # Outcomes --------------------------------------------------------------------------------------------------------

    def _options(self, log_time: datetime | None, on_failure: OnFailure | None) -> dict[str, Any]:
        """Return extra options for librdkafka's call, if it needs more than the record.

        A timestamp of 0 means "now" to librdkafka.
        """
        options: dict[str, Any] = {"timestamp": 0 if log_time is None else self._stamp(log_time)}
        if on_failure is not None:
            options["on_delivery"] = partial(self._undelivered.report, on_failure=on_failure)
        return options

    def _wait_for_room(self, key: bytes, value: bytes, log_time: datetime | None, on_failure: OnFailure | None) -> None:
        options = self._options(log_time, on_failure)
        while True:
            try:
                self._client.poll(0.1)
                self._tell()
                self._produce(self.name, value, key, **options)
            except BufferError:
                continue
            except KafkaException as refused:
                raise self._not_taken(refused, key, on_failure) from refused
            return

    def _not_taken(self, refused: KafkaException, key: bytes, on_failure: OnFailure | None) -> DeliveryError:
        """Count a record that librdkafka refused at once, and return the error.

        The record is too large, the topic does not exist, or the client is broken. A client that may not write at all
        breaks for good; the next call that polls it learns of it.
        """
        if refused.args[0].fatal():
            self._broken = self._broken or refused.args[0]
        self.sent += 1
        self._undelivered.failed.add(refused.args[0], key)
        if on_failure is not None:
            on_failure("failed")
        return self._error()

    def _tell(self, cause: Exception | None = None) -> None:
        """Raise if there are undelivered records that the caller does not know of yet."""
        if len(self._undelivered) != self._told:
            raise self._error() from cause

    def _error(self) -> DeliveryError:
        self._told = len(self._undelivered)
        failed, unknown = self._undelivered.failed, self._undelivered.unknown
        of = f"of {self.sent:,} records to {self.name}"
        if not unknown.records:
            cause = self._broken or failed.error
            assert cause is not None, "called where records failed or are unknown"
            if (denied := refused(self._kafka, cause, topic=self.name)) is not None:
                return DeliveryError(
                    "kafka-denied",
                    denied.what,
                    why=denied.why,
                    state=self._counts(),
                    fix=f"{denied.fix}; then send again what failed",
                    details=self._details(),
                )
            return DeliveryError(
                "not-delivered",
                f"{failed.records:,} {of} failed",
                why=cause.str(),
                state=self._counts(),
                fix=f"{self.remedy}; then send those {failed.records:,} again: none of them is in the log",
                details=self._details(),
            )
        what = f"{unknown.records:,} {of} may be in the log or not"
        reason = unknown.reason if self._broken is None else self._broken.str()
        why = f"{reason}: they were given up without an answer, and a broker may have written them"
        fix = self.look
        if failed.records:
            what += f", and {failed.records:,} failed"
            why += f"; {failed.reason}"
            fix += f"; {self.remedy}, then send again what failed"
        return DeliveryError("delivery-unknown", what, why=why, state=self._counts(), fix=fix, details=self._details())

    @property
    def remedy(self) -> str | None:
        """Instructions that remove the cause for which brokers refused records; None if they refused none."""
        cause = self._broken or self._undelivered.failed.error
        if cause is None:
            return None
        return "let this user write to the topic" if refused(self._kafka, cause) is not None else remedy(cause)

    @property
    def look(self) -> str:
        """Instructions with which a user finds out whether an unknown record is in the log."""
        since = (self._opened - _CLOCKS_DIFFER).isoformat(timespec="seconds")
        moment = f" --from {since}" if self._topic.log_time == "broker" else ""
        return (
            "read what is in the log once all brokers are well: "
            f"leftfold replay {self._topic.name}{moment} --out DIR --format jsonl; "
            "of the unknown send only what is missing there: any other would be in the log twice"
        )

    def outcomes(self) -> dict[str, int]:
        """Count the records that were sent, by outcome. After the `with` block none is under way."""
        # The client's count also includes reports that wait to be handled, even errors of connections. So it is never
        # too low.
        under_way = len(self._client) if self.sent != self._settled else 0
        return {
            "acknowledged": max(0, self.sent - len(self._undelivered) - under_way),
            "failed": self._undelivered.failed.records,
            "unknown": self._undelivered.unknown.records,
            "under_way": under_way,
        }

    def _details(self) -> dict[str, Any]:
        failed, unknown = self._undelivered.failed, self._undelivered.unknown
        return {
            **self.outcomes(),
            "failed_keys": list(failed.keys),
            "unknown_keys": list(unknown.keys),
        }

    def _counts(self) -> str:
        counted, failed, unknown = self.outcomes(), self._undelivered.failed, self._undelivered.unknown
        parts = [f"{counted['acknowledged']:,} are acknowledged"]
        if failed.records:
            parts.append(f"{failed.records:,} failed and are not in the log, of the keys {failed}")
        if unknown.records:
            parts.append(f"{unknown.records:,} are unknown and may be in the log, of the keys {unknown}")
        if counted["under_way"]:
            parts.append(f"{counted['under_way']:,} are under way")
        return "; ".join(parts)


def produce(client: Client, topic: str, value: Any, key: bytes | None, **options: Any) -> None:
    """Hand a record to a client; wait for acknowledgements while its buffer is full. `value` None is a tombstone."""
    while True:
        try:
            client.produce(topic, value, key, **options)
        except BufferError:
            client.poll(0.1)
            continue
        return


def key_encoder(names: tuple[str, ...]) -> Encode:
    """Return a function that makes the key's bytes of a record. It raises KeyError if a key field is missing."""
    if len(names) > 1:
        return lambda record: entity_text([record[name] for name in names]).encode()
    (only,) = names
    return lambda record: str(record[only]).encode()


def _knock(client: Client, name: str, kafka: Kafka, heard: Heard) -> None:
    """Raise before the first record if login, TLS or a missing right would let no record through.

    Brokers that do not answer are not a reason to raise: records wait for them.
    """
    for seconds in _KNOCKS_S:
        try:
            metadata = client.list_topics(name, timeout=seconds).topics[name]
        except KafkaException as error:
            client.poll(0)  # calls `heard` with the errors that arrived meanwhile
            if (refusal := heard.refusal()) is not None:
                raise refusal from error
        else:
            if metadata.error is not None and (refusal := refused(kafka, metadata.error, topic=name)) is not None:
                raise refusal
            return


def encoder_of(topic: Topic[Any], name: str, registry: SchemaRegistry) -> Encode:
    """Return an encoder for the topic's format. `name` is the topic's name in the cluster."""
    return _encoder(topic, _schema_id(topic, name, registry))


def _encoder(topic: Topic[Any], schema_id: int | None) -> Encode:
    return json_encoder(topic.event) if schema_id is None else avro_encoder(topic.event, schema_id)


def _schema_id(topic: Topic[Any], name: str, registry: SchemaRegistry) -> int | None:
    """Return the id under which records are written; None if their format has no schema."""
    if topic.format == "json":
        return None
    schema_id = registry.id_of(subject_of(name), avro_schema(topic.event))
    if schema_id is None:
        raise not_registered(topic, name)
    return schema_id


def not_registered(topic: Topic[Any], name: str) -> LogError:
    return LogError(
        "schema-not-registered",
        f"the schema of {topic.event.__name__} is not registered for topic {name}",
        why="a record is written under a registered schema, so that every reader can decode it",
        fix="leftfold apply",
        source=topic.source,
    )
