"""A small topic read once, from its start to the ends it has now."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from leftfold.kafka.admin import TIMEOUT_S, unreachable
from leftfold.settings import Kafka


@dataclass(frozen=True)
class Scanned:
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


# Messages per call. `consume` alone would wait until it has that many, or for all of its timeout.
_AT_ONCE = 10_000


def arrived(consumer: Consumer, kafka: Kafka, topic: str) -> list[Message]:
    """The next message, waited for, and those that are here already."""
    first = consumer.poll(TIMEOUT_S)
    if first is None:
        raise unreachable(kafka.bootstrap, f"no record of {topic} came within {TIMEOUT_S:g} s")
    return [first, *consumer.consume(_AT_ONCE, timeout=0)]


def scan(kafka: Kafka, topic: str, partitions: Collection[int]) -> Iterator[Scanned]:
    """Record by record: nothing is held but what librdkafka has fetched ahead."""
    consumer = Consumer(
        {
            **kafka.for_librdkafka(),
            "group.id": "leftfold",  # required by librdkafka; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,  # tells the end also where compaction or a transaction left holes before it
            "log_level": 0,  # what a person must know arrives as an error of ours
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        left = len(partitions)
        while left:
            for message in arrived(consumer, kafka, topic):
                error = message.error()
                if error is None:
                    headers: Any = message.headers() or ()  # its annotation allows forms that only a producer takes
                    yield Scanned(message.key(), message.value(), dict(headers))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left -= 1
                elif not error.retriable():
                    raise unreachable(kafka.bootstrap, error.str())
    except KafkaException as error:
        raise unreachable(kafka.bootstrap, error.args[0].str()) from error
    finally:
        consumer.close()
