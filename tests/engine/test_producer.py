"""The producer against real brokers: partitions as Java chooses them, failures that reach the caller, back-pressure."""

from __future__ import annotations

import secrets
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import leftfold
from leftfold.errors import DeclarationError, DeliveryError, LogError
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.test_view import payment


@pytest.fixture
def app(cluster: Cluster, tmp_path: Path) -> leftfold.App:
    made = projects.make(tmp_path / "project", cluster.endpoints, f"p{uuid.uuid4().hex[:8]}")
    projects.apply(made)
    return made


def murmur2(data: bytes) -> int:
    """Written here from the algorithm's description (Kafka's seed), not taken from a client."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    for i in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    tail = data[len(data) - len(data) % 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def test_a_key_has_the_partition_that_java_gives_it(app: leftfold.App) -> None:
    keys = [f"a{n}" for n in range(300)] + ["", "é", "a:b"]
    with app.producer("payments") as producer:
        for number, key in enumerate(keys):
            producer.send_dict(payment(number, key))
    placed = {key: partition for partition, key in read_keys(app)}
    assert placed == {key: (murmur2(key.encode()) & 0x7FFFFFFF) % 6 for key in keys}
    # Known answers of Java's implementation, so that both sides cannot be wrong together.
    assert murmur2(b"21") == (-973932308) & 0xFFFFFFFF
    assert murmur2(b"foobar") == (-790332482) & 0xFFFFFFFF


def read_keys(app: leftfold.App) -> list[tuple[int, str]]:
    topic = app.profile.topic_name("payments")
    consumer = Consumer({"bootstrap.servers": app.kafka.bootstrap, "group.id": "keys", "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in range(6)}
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    found: list[tuple[int, str]] = []
    while len(found) < sum(ends.values()):
        for message in consumer.consume(1_000, timeout=0.2):
            key: Any = message.key()
            partition: Any = message.partition()
            found.append((partition, key.decode()))
    consumer.close()
    return found


def test_events_dicts_and_bytes_are_the_same_record(app: leftfold.App) -> None:
    topic = app.catalog.topic("payments")
    record = payment(1, "a1")
    with app.producer("payments") as producer:
        producer.send(topic.event(**record))
        producer.send_dict(record)
        producer.send_encoded(producer.key_of(record), producer.encode(record))
        assert producer.encode(topic.event(**record).__dict__) == producer.encode(record)
        assert producer.sent == 3
    assert len(read_keys(app)) == 3


def test_a_full_buffer_makes_the_caller_wait(app: leftfold.App, monkeypatch: pytest.MonkeyPatch) -> None:
    from leftfold.kafka import producer as module

    monkeypatch.setitem(module.SETTINGS, "queue.buffering.max.messages", 500)
    with app.producer("payments") as producer:
        for number in range(20_000):
            producer.send_dict(payment(number, f"a{number}"))
    assert len(read_keys(app)) == 20_000


def test_what_cannot_be_delivered_is_raised(app: leftfold.App, monkeypatch: pytest.MonkeyPatch) -> None:
    from leftfold.kafka import producer as module

    monkeypatch.setitem(module.SETTINGS, "message.max.bytes", 2_000_000)  # more than the brokers take
    producer = app.producer("payments")
    producer.send_dict(payment(1, "a1", note=secrets.token_hex(900_000)))
    with pytest.raises(DeliveryError) as failed:
        producer.flush()
    assert failed.value.code == "not-delivered"
    assert "'a1'" in failed.value.state


def test_naive_times_and_wrong_types_are_refused(app: leftfold.App) -> None:
    with app.producer("payments") as producer:
        with pytest.raises(DeclarationError, match="time zone"):
            producer.send_dict(payment(1, "a1", at=datetime(2026, 1, 1)))  # the point of the test
        with pytest.raises(DeclarationError, match="does not fit"):
            producer.send_dict(payment(1, "a1", points="many"))
        assert producer.sent == 0


def test_sending_before_apply_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    early = projects.make(tmp_path / "early", cluster.endpoints, f"e{uuid.uuid4().hex[:8]}")
    with pytest.raises(LogError) as refused:
        early.producer("payments")
    assert refused.value.code == "schema-not-registered"
