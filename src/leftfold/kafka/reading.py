"""Looking at ranges of a topic, record by record: for questions about single keys, not for views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message, TopicPartition

from leftfold.errors import LogError
from leftfold.kafka.admin import TIMEOUT_S, unreachable
from leftfold.kafka.scan import arrived
from leftfold.settings import Kafka
from leftfold.spec.first_log import header_of, log_time_of

_NONE_THAT_LATE = -1  # librdkafka's word for "the end"


@dataclass(frozen=True, slots=True)
class Logged:
    """A record where it lies. Times in microseconds."""

    topic: str
    partition: int
    offset: int
    log_us: int
    by_broker: bool
    key: bytes | None
    value: bytes | None


class LogReader:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        settings: dict[str, Any] = {
            **kafka.for_librdkafka(),
            "group.id": "leftfold.why",  # the client wants a name; nothing is joined and nothing committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,  # the last offsets may hold no record: markers of a transaction, compaction
            "auto.offset.reset": "earliest",  # where retention has just overtaken a start
            "log_level": 0,
        }
        self._consumer = Consumer(settings)

    def firsts(self, topic: str, partitions: Iterable[int], since_us: int | None = None) -> dict[int, int | None]:
        """The first offset of each partition, or the first that was logged since a moment; None if there is none.

        All records before it are older than that moment, whether or not log times ever step back.
        """
        moment = 0 if since_us is None else max(0, since_us // 1_000)
        asked = [TopicPartition(topic, p, moment) for p in partitions]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=TIMEOUT_S) if asked else []
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        for place in found:
            if place.error is not None:
                raise self._failed(place.error)
        return {place.partition: None if place.offset == _NONE_THAT_LATE else place.offset for place in found}

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]], *, first_log: bool = False) -> Iterator[Logged]:
        """Records of each partition's range, its end excluded; in order within a partition.

        With `first_log` a copied record's log time is the one that its header says.
        """
        left = {p: end for p, (start, end) in ranges.items() if start < end}
        self._consumer.assign([TopicPartition(topic, p, ranges[p][0]) for p in left])
        while left:
            for message in arrived(self._consumer, self._kafka, topic):
                partition = cast(int, message.partition())
                ended = self._ended(message)
                if partition not in left:
                    continue
                offset = cast(int, message.offset())
                if not ended and offset < left[partition]:
                    yield _logged(topic, message, first_log=first_log)
                if ended or offset + 1 >= left[partition]:
                    del left[partition]
                    self._consumer.incremental_unassign([TopicPartition(topic, partition)])
        self._consumer.unassign()

    def close(self) -> None:
        self._consumer.close()

    def _ended(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        raise self._failed(error)

    def _failed(self, error: KafkaError) -> LogError:
        return unreachable(self._kafka.bootstrap, error.str())


def _logged(topic: str, message: Message, *, first_log: bool) -> Logged:
    kind, log_ms = message.timestamp()
    log_us, by_broker = log_ms * 1_000, kind == TIMESTAMP_LOG_APPEND_TIME
    if first_log:
        log_us, by_broker = log_time_of(header_of(headers_of(message)), log_us, by_broker=by_broker)
    return Logged(
        topic,
        cast(int, message.partition()),
        cast(int, message.offset()),
        log_us,
        by_broker,
        message.key(),
        message.value(),
    )


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    found: Any = message.headers() or []  # its annotation allows forms that only a producer takes
    return list(found)


def partition_of(key: bytes, partitions: int) -> int:
    """Where a producer that partitions as Java's does puts a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's own variant: seed and arithmetic of org.apache.kafka.common.utils.Utils, in 32 bits."""
    mixer, bits = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * mixer & bits
        k = (k ^ k >> 24) * mixer & bits
        h = (h * mixer & bits) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * mixer & bits
    h = (h ^ h >> 13) * mixer & bits
    return h ^ h >> 15
