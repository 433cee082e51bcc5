"""Reads ranges of a topic record by record: for questions about single keys, not for views."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from leftfold.declare.first_log import header_of, log_time_of
from leftfold.errors import LogError
from leftfold.kafka.admin import TIMEOUT_S
from leftfold.kafka.failures import Heard, failed, quiet, unreachable
from leftfold.settings import Kafka

_NONE_THAT_LATE = -1  # librdkafka's value for "the end"
_SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",  # used if retention has just deleted the start
    "enable.partition.eof": True,  # the last offsets may hold no record: transaction markers, compaction
    # librdkafka knows that a partition ends there once a broker has waited that long for more. It comes with 500 ms.
    "fetch.wait.max.ms": 50,
}


class Logged(NamedTuple):
    """A record and its place in the log. Times are in microseconds. A tuple, which is the fastest to make."""

    topic: str
    partition: int
    offset: int
    log_us: int
    by_broker: bool
    key: bytes | None
    value: bytes | None


def _consumer(kafka: Kafka, heard: Heard) -> Consumer:
    return Consumer({**kafka.for_librdkafka(), "group.id": kafka.reading_group, **_SETTINGS, **quiet(heard)})


class LogReader:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._heard = Heard(kafka)
        self._consumer = _consumer(kafka, self._heard)

    def firsts(self, topic: str, partitions: Iterable[int], since_us: int | None = None) -> dict[int, int | None]:
        """Return each partition's first offset, or its first one logged since `since_us`; None if there is none.

        All records before that offset are older than that moment, even if log times step back somewhere.
        """
        moment = 0 if since_us is None else max(0, since_us // 1_000)
        asked = [TopicPartition(topic, p, moment) for p in partitions]
        try:
            places = self._consumer.offsets_for_times(asked, timeout=TIMEOUT_S) if asked else []
        except KafkaException as error:
            raise self._failed(self._heard.instead_of(error.args[0]), topic) from error
        for place in places:
            if place.error is not None:
                raise self._failed(place.error, topic)
        return {place.partition: None if place.offset == _NONE_THAT_LATE else place.offset for place in places}

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]], *, first_log: bool = False) -> Iterator[Logged]:
        """Yield the records of each partition's range, its end excluded; in order within a partition.

        With `first_log`, the log time of a copied record is the time in its header.
        """
        left = {p: end for p, (start, end) in ranges.items() if start < end}
        self._consumer.assign([TopicPartition(topic, p, ranges[p][0]) for p in left])
        while left:
            message: Any  # its annotations allow for None in all that a record has
            for message in arrived(self._consumer, self._kafka, self._heard, topic):
                partition, error = message.partition(), message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise self._failed(error, topic)
                end = left.get(partition)
                if end is None:
                    continue
                offset = message.offset()
                if error is None and offset < end:
                    yield _logged(topic, partition, offset, message, first_log=first_log)
                if error is not None or offset + 1 >= end:
                    del left[partition]
                    self._consumer.incremental_unassign([TopicPartition(topic, partition)])
        self._consumer.unassign()

    def follow(self, topic: str, starts: Mapping[int, int], *, first_log: bool = False) -> Iterator[Logged]:
        """Yield the records of each partition from its start on, without an end. Waits for brokers that are away."""
        self._consumer.assign([TopicPartition(topic, p, start) for p, start in starts.items()])
        while True:
            for message in self._consumer.consume(_AT_ONCE, timeout=_FOLLOWED_S):
                error = message.error()
                if error is None:
                    partition, offset = cast(int, message.partition()), cast(int, message.offset())
                    yield _logged(topic, partition, offset, message, first_log=first_log)
                elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                    raise self._failed(error, topic)

    def close(self) -> None:
        self._consumer.close()

    def _failed(self, error: KafkaError, topic: str) -> LogError:
        return failed(self._kafka, error, topic=topic, group=self._kafka.reading_group)


def _logged(topic: str, partition: int, offset: int, message: Message, *, first_log: bool) -> Logged:
    kind, log_ms = message.timestamp()
    log_us, by_broker = log_ms * 1_000, kind == TIMESTAMP_LOG_APPEND_TIME
    if first_log:
        log_us, by_broker = log_time_of(header_of(headers_of(message)), log_us, by_broker=by_broker)
    return Logged(topic, partition, offset, log_us, by_broker, message.key(), message.value())


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or []  # its annotation allows forms that only a producer takes
    return list(headers)


# Reading a small topic once, from its start or a given offset to its current ends.


@dataclass(frozen=True)
class Scanned:
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    offset: int = 0
    log_us: int = 0


# Messages per call. `consume` alone would wait until it has that many, or for its whole timeout.
_AT_ONCE = 10_000
_FOLLOWED_S = 0.2  # how long records may wait for more before a follower gets them


def arrived(consumer: Consumer, kafka: Kafka, heard: Heard, topic: str) -> list[Message]:
    """Wait for the next message, and return it with the messages that have already arrived."""
    first = consumer.poll(TIMEOUT_S)
    if first is None:
        raise heard.refusal() or unreachable(kafka.bootstrap, f"no record of {topic} came within {TIMEOUT_S:g} s")
    return [first, *consumer.consume(_AT_ONCE, timeout=0)]


def scan(
    kafka: Kafka, topic: str, partitions: Collection[int], since: Mapping[int, int] | None = None
) -> Generator[Scanned]:
    """Yield every record of a topic once, up to the ends that its partitions have now.

    It holds nothing in memory except what librdkafka has fetched ahead. `since` are the offsets to begin at, by
    partition. If a partition does not have its offset, it is read from its start. A partition is finished at its first
    end: while other partitions are still read, a partition that is written to reaches an end again and again.
    """
    heard = Heard(kafka)
    consumer = _consumer(kafka, heard)
    try:
        begins = since or {}
        consumer.assign([TopicPartition(topic, p, begins.get(p, OFFSET_BEGINNING)) for p in partitions])
        left = set(partitions)
        while left:
            for message in arrived(consumer, kafka, heard, topic):
                error = message.error()
                if error is None:
                    if message.partition() in left:
                        headers: Any = message.headers() or ()  # its annotation allows forms that only a producer takes
                        log_us = message.timestamp()[1] * 1_000
                        yield Scanned(message.key(), message.value(), dict(headers), message.offset() or 0, log_us)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(cast(int, message.partition()))
                elif not error.retriable():
                    raise failed(kafka, error, topic=topic, group=kafka.reading_group)
    except KafkaException as error:
        cause = heard.instead_of(error.args[0])
        raise failed(kafka, cause, topic=topic, group=kafka.reading_group) from error
    finally:
        consumer.close()
