"""Tools for a topic: read it back with the tests' own consumer, count its records, delete its oldest records, or it.

Records come with their position, log time and plain fields. Deletion of records works as retention does.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import fastavro
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.engine.projects import await_true


@dataclass(frozen=True)
class Logged:
    partition: int
    offset: int
    log_us: int
    by_broker: bool
    record: dict[str, Any] | None  # None if it cannot be decoded


def read_topic(bootstrap: str, topic: str, schemas: dict[int, str]) -> Iterator[Logged]:
    """Read all records of the topic, up to the end offsets that it has now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle", "enable.auto.commit": False})
    parsed = {schema_id: fastavro.parse_schema(json.loads(text)) for schema_id, text in schemas.items()}
    partitions = sorted(consumer.list_topics(topic, timeout=120).topics[topic].partitions)
    spans = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=120) for p in partitions}
    ends = {p: end for p, (start, end) in spans.items() if end > start}
    consumer.assign([TopicPartition(topic, p, spans[p][0]) for p in ends])
    left = set(ends)
    while left:
        for message in consumer.consume(10_000, timeout=0.2):  # waits for 10,000 messages or for the whole timeout
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if offset + 1 >= ends[partition]:
                left.discard(partition)
            kind, log_ms = message.timestamp()
            record = _decode(message.value(), parsed)
            yield Logged(partition, offset, log_ms * 1_000, kind == 2, record)  # 2: stamped by the broker
    consumer.close()


def count_records(bootstrap: str, topic: str) -> int:
    """Count the records that a reader really gets. In a compacted topic, offsets do not show that."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counting", "enable.partition.eof": True})
    partitions = sorted(consumer.list_topics(topic, timeout=120).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    records = ended = 0
    while ended < len(partitions):
        for message in consumer.consume(10_000, timeout=0.2):
            if message.error() is None:
                records += 1
            else:
                ended += 1
    consumer.close()
    return records


def delete_topics(bootstrap: str, prefix: str = "") -> None:
    """Delete all topics whose names begin with this, but not those of the brokers themselves."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [n for n in admin.list_topics(timeout=60).topics if n.startswith(prefix) and not n.startswith("__")]
    for deleted in (admin.delete_topics(names) if names else {}).values():
        try:
            deleted.result(timeout=120)
        except KafkaException as error:  # a test deleted it, and the asked broker did not know yet
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


def delete_before(bootstrap: str, topic: str, offsets: dict[int, int]) -> None:
    """Delete the oldest records at once, as retention does later. `offsets` gives the first offset to keep."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def is_deleted(place: TopicPartition) -> bool:
        try:
            admin.delete_records([place])[place].result(timeout=240)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False  # its leader does not know the new cleanup.policy yet
        return True

    for partition, offset in offsets.items():
        place = TopicPartition(topic, partition, offset)
        await_true(partial(is_deleted, place), timeout=240, what=f"records of {place} to go")


def _decode(value: bytes | None, schemas: dict[int, Any]) -> dict[str, Any] | None:
    if value is None or len(value) < 6 or value[0] != 0:
        return None
    schema = schemas.get(int.from_bytes(value[1:5]))
    if schema is None:
        return None
    try:
        record = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema)
    except (EOFError, ValueError, IndexError, OverflowError, MemoryError, UnicodeDecodeError):
        return None
    assert isinstance(record, dict)
    return record


def avro_long(number: int) -> bytes:
    """Encode a number that is not negative as an Avro long."""
    number, out = number << 1, bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
