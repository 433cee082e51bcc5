"""The producer against real brokers: partitions as Java chooses them, failures that reach the caller, back-pressure."""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

import leftfold
from leftfold.cli.main import cli
from leftfold.errors import DeclarationError, DeliveryError, LogError
from leftfold.kafka import producer as module
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
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=120)[1] for p in range(6)}
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


def test_what_cannot_be_delivered_is_raised(app: leftfold.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.SETTINGS, "message.max.bytes", 2_000_000)  # more than the brokers take
    producer = app.producer("payments")
    producer.send_dict(payment(1, "a1", note=secrets.token_hex(900_000)))
    with pytest.raises(DeliveryError) as failed:
        producer.flush()
    assert failed.value.code == "not-delivered"
    assert "'a1'" in failed.value.state


def test_a_time_out_is_unknown_and_the_record_is_in_the_log(
    app: leftfold.App, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader writes it, both followers are silent: no acknowledgement, but the record is there."""
    monkeypatch.setitem(module.SETTINGS, "delivery.timeout.ms", 8_000)
    topic = app.profile.topic_name("payments")
    partition = (murmur2(b"a1") & 0x7FFFFFFF) % 6
    leader = app.log[0].metadata().topics[topic].partitions[partition].leader
    producer = app.producer("payments")
    producer.send_dict(payment(1, "a1"))
    producer.flush()  # connected, so that the next one surely leaves
    with stopped(app, cluster, [n for n in (1, 2, 3) if n != leader]):
        producer.send_dict(payment(2, "a1"))
        with pytest.raises(DeliveryError) as failed:
            producer.flush()
    assert failed.value.code == "delivery-unknown"
    assert "1 are acknowledged; 1 are unknown and may be in the log, of the keys 'a1'" in failed.value.state
    assert "twice" in failed.value.fix
    assert (failed.value.details["failed"], failed.value.details["unknown"]) == (0, 1)
    projects.await_true(lambda: len(read_keys(app)) == 2, timeout=240, what="the unknown record in the log")


def test_a_bad_line_claims_nothing_that_is_not_so(
    app: leftfold.App, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All brokers are silent when a pipe that was sent meets a bad line."""
    monkeypatch.setitem(module.SETTINGS, "delivery.timeout.ms", 8_000)
    monkeypatch.chdir(app.root)
    entry, exit_ = os.pipe()
    invoked: list[Any] = []
    sending = threading.Thread(
        target=lambda: invoked.append(CliRunner().invoke(cli, ["send", "payments", f"/dev/fd/{entry}"]))
    )
    sending.start()
    with os.fdopen(exit_, "wb") as pipe:
        pipe.write(line(payment(1, "a1")))
        pipe.flush()
        projects.await_true(lambda: bool(read_keys(app)), timeout=240, what="the first line in the log")
        with stopped(app, cluster, [1, 2, 3]):
            pipe.write(b"\n".join(line(payment(n, f"a{n}")) for n in range(2, 1_002)))  # with blank lines between
            pipe.write(b"no payment\n")
            pipe.close()
            sending.join()
    os.close(entry)
    error = invoked[0].exception
    assert isinstance(error, DeliveryError), error
    assert "is no Payment" in error.what
    told = error.details["lines"]
    assert (told["acknowledged"], told["failed"], told["not_sent_from"]) == ([(1, 1)], [], 2_001)
    assert told["unknown"] == [(n, n) for n in range(2, 2_001, 2)]
    assert error.code == "delivery-unknown"
    assert "tail -n +2001 FILE | leftfold send payments -" in error.fix
    in_the_log = [key for _, key in read_keys(app)]
    assert len(in_the_log) == len(set(in_the_log)), "nothing is there twice"
    assert "a1" in in_the_log, "what was said to be acknowledged is there"


def test_a_file_with_a_bad_line_sends_nothing(app: leftfold.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(app.root)
    (app.root / "payments.jsonl").write_bytes(line(payment(1, "a1")) + b"no payment\n")
    error = CliRunner().invoke(cli, ["send", "payments", "payments.jsonl"]).exception
    assert isinstance(error, DeclarationError)
    assert error.code == "bad-line"
    assert read_keys(app) == []


def line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, default=datetime.isoformat).encode() + b"\n"


@contextmanager
def stopped(app: leftfold.App, cluster: Cluster, brokers: list[int]) -> Iterator[None]:
    """These brokers say nothing for a while; afterwards all replicas are in sync again."""
    pids = [cluster.endpoints.processes[f"broker-{n}"].pid for n in brokers]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        projects.await_true(lambda: in_sync(app), timeout=240, what="all replicas in sync")


def in_sync(app: leftfold.App) -> bool:
    try:
        topics = app.log[0].metadata().topics.values()
    except LogError:
        return False
    return all(len(p.isrs) == len(p.replicas) for t in topics for p in t.partitions.values())


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
