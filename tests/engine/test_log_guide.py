"""docs/guide/the-log.md, executed as it is written; and what it says about lost brokers and rebalances, measured."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

import leftfold
from tests.engine import guides, projects
from tests.engine.conftest import Cluster
from tests.engine.pages import DOCS, Shell, check_read

GUIDE = DOCS / "guide" / "the-log.md"
NAMESPACE = f"k{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    with guides.shop(tmp_path, cluster.endpoints, NAMESPACE) as shell:
        yield shell


@pytest.mark.nightly
def test_guide(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(GUIDE, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_guide_is_read() -> None:
    check_read(GUIDE)


@pytest.fixture
def app(cluster: Cluster, tmp_path: Path) -> leftfold.App:
    made = projects.make(tmp_path / "project", cluster.endpoints, f"k{uuid.uuid4().hex[:8]}")
    projects.apply(made)
    return made


def test_one_lost_broker_stops_nothing_and_two_stop_writes(app: leftfold.App, cluster: Cluster) -> None:
    topic = app.profile.topic_name("payments")
    acknowledged: list[bytes] = []

    def report(error: object, message: Message) -> None:
        if error is None:
            acknowledged.append(message.key() or b"")

    def write(first: int, seconds: float) -> int:
        """Write 60 records to all partitions, and wait that long. Return how many of them were acknowledged."""
        settings = {"acks": "all", "enable.idempotence": True, "delivery.timeout.ms": int(seconds * 1_000)}
        producer = Producer({"bootstrap.servers": app.kafka.bootstrap, "log_level": 0, **settings})
        before = len(acknowledged)
        for number in range(first, first + 60):
            producer.produce(topic, b"x", key=str(number).encode(), partition=number % 6, on_delivery=report)
        producer.flush(seconds + 10)
        return len(acknowledged) - before

    assert write(0, 120) == 60
    brokers = [cluster.endpoints.processes[f"broker-{number}"].pid for number in (2, 3)]
    try:
        os.kill(brokers[0], signal.SIGKILL)
        assert write(100, 120) == 60  # with one broker away, everything is acknowledged
        os.kill(brokers[1], signal.SIGKILL)
        refused = 60 - write(200, 20)
        assert refused == 60, f"{60 - refused} records were acknowledged by one broker of three"
    finally:
        cluster.cluster.up(cluster.root)
    assert write(300, 120) == 60
    there = {record.key for record in app.read("payments", start=datetime(2020, 1, 1, tzinfo=UTC), most=None)}
    assert set(acknowledged) <= there


def test_a_rebalance_pauses_only_what_moves(app: leftfold.App, capsys: pytest.CaptureFixture[str]) -> None:
    """One member reads six partitions while records keep coming; a second one joins."""
    topic, group = app.profile.topic_name("payments"), f"{app.profile.namespace}-moving"
    settings = {
        "bootstrap.servers": app.kafka.bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    ended = threading.Event()

    def keep_sending() -> None:
        producer = Producer({"bootstrap.servers": app.kafka.bootstrap, "linger.ms": 0, "log_level": 0})
        number = 0
        while not ended.is_set():
            producer.produce(topic, b"x", partition=number % 6)
            producer.poll(0)
            number += 1
            time.sleep(0.002)
        producer.flush(60)

    first, second = Consumer(settings), Consumer(settings)
    seen: dict[int, list[float]] = {partition: [] for partition in range(6)}
    given_up: set[int] = set()
    moved: set[int] = set()  # partitions of which the second member has read a record

    def poll(member: Consumer) -> None:
        for message in member.consume(100, timeout=0.02):
            if message.error() is None:
                partition = message.partition() or 0
                seen[partition].append(time.monotonic())
                if member is second:
                    moved.add(partition)

    def poll_second() -> None:
        while not ended.is_set():
            poll(second)

    def until(is_so: Callable[[], bool], what: str) -> None:
        def looked() -> bool:
            polled = time.monotonic()
            while time.monotonic() < polled + 0.2:
                poll(first)
            return is_so()

        projects.await_true(looked, timeout=240, what=what)

    threads = [threading.Thread(target=keep_sending), threading.Thread(target=poll_second)]
    try:
        first.subscribe([topic], on_revoke=lambda _, places: given_up.update(place.partition for place in places))
        threads[0].start()
        until(lambda: all(seen.values()), "a record of each partition")
        before = time.monotonic()
        until(lambda: time.monotonic() > before + 3, "records for three seconds")
        second.subscribe([topic])
        threads[1].start()
        until(lambda: len(moved) == 3, "records of three partitions that moved")
        stayed = {place.partition for place in first.assignment()}
        assert given_up == moved, "only what moves is given up"
    finally:
        ended.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        for member in (first, second):  # as `kafka.group.Member` leaves
            member.unsubscribe()
            while member.poll(0) is not None:
                pass
            member.close()
    assert len(stayed) == len(moved) == 3
    assert stayed | moved == set(range(6))

    def longest(partition: int) -> float:
        times = [at for at in seen[partition] if at > before]
        return max(later - earlier for earlier, later in pairwise(times))

    still, pauses = max(map(longest, stayed)), max(map(longest, moved))
    with capsys.disabled():
        print(f"\n    longest pause of a partition that stayed {still:.2f} s, of one that moved {pauses:.2f} s")
