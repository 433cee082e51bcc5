"""Brokers are killed while a consumer group writes in transactions: what read-committed readers lose, double, and wait.

The one that is killed leads a partition that is written, coordinates the group, or coordinates transactions. `make
deliveries` has 20 kills; without it, it is one.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

import leftfold
from leftfold.kafka.admin import passes
from leftfold.kafka.decode import avro_decoder
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster
from tests.engine.test_deliveries import FULL, Group

KILLS = 20 if FULL else 1
RATE = 200  # records a second

# Not in CI: each kill takes half a minute. What many kills have found has tests of its own in test_group.py.
pytestmark = [pytest.mark.timeout(3_600 if FULL else 600), pytest.mark.long]


class BillReader:
    """Reads bills as they become visible to read-committed readers, in a thread of its own."""

    def __init__(self, app: leftfold.App) -> None:
        self.seen: Counter[int] = Counter()
        self.waits: list[float] = []  # seconds between an order and its bill
        self._app = app
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        settings = {"group.id": "none", "isolation.level": "read_committed", "enable.auto.commit": False}
        reader = Consumer({"bootstrap.servers": self._app.kafka.bootstrap, "log_level": 0, **settings})
        reader.assign([TopicPartition(self._app.profile.topic_name("bills"), p, 0) for p in range(6)])
        decode = avro_decoder(self._app.catalog.topic("bills").event, {"number", "at"}, self._app.log[1].schema)
        while not self._stop.is_set():
            for message in reader.consume(1_000, timeout=0.1):
                if message.error() is not None:
                    continue  # a broker that is away: the client tries again
                bill: Any = decode(message.value())
                self.seen[bill["number"]] += 1
                self.waits.append(time.time() - bill["at"] / 1e6)
        reader.close()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def group(cluster: Cluster, tmp_path: Path) -> Iterator[Group]:
    made = Group(cluster, tmp_path, "exactly_once", "")
    yield made
    made.close()


def test_brokers_are_killed_under_transactions(
    cluster: Cluster, group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    admin, sent = AdminClient({"bootstrap.servers": group.app.kafka.bootstrap}), 0
    reader = BillReader(group.app)
    try:
        with ExitStack() as members:
            running = [members.enter_context(group.member()) for _ in range(3)]
            for kill in range(KILLS):
                sent = send_until_visible(group.app, reader, sent)
                name = f"broker-{victim(group.app, admin, kill)}"
                os.kill(cluster.endpoints.processes[name].pid, signal.SIGKILL)
                sent = send_until_visible(group.app, reader, sent)
                cluster.cluster.up(cluster.root)
                projects.await_true(lambda: in_sync(admin), timeout=180, what="all replicas to be in sync")
            group.await_caught_up()
            projects.await_true(
                lambda: set(range(sent)) == reader.seen.keys() | group.dead(), timeout=240, what="all bills"
            )
            for one in running:
                one.send_signal(signal.SIGTERM)
                assert one.wait(300) == 0
    finally:
        reader.end()
    with capsys.disabled():
        waits = f"p50 {statistics.median(reader.waits):.2f} s, longest {max(reader.waits):.1f} s"
        print(f"\n{KILLS} brokers killed, {sent:,} records; a reader waited: {waits}", end="")
    assert max(reader.seen.values()) == 1, "doubled"


def send_until_visible(app: leftfold.App, reader: BillReader, sent: int) -> int:
    """Send records until some of them have become bills that readers see, and at least for a second."""
    first, deadline = sent, time.monotonic() + 120
    while sent - first < RATE or max(reader.seen, default=-1) < first + RATE // 2:
        assert time.monotonic() < deadline, "no bills any more"
        consumers.send(app, range(sent, sent + RATE // 10))
        sent += RATE // 10
    return sent


def victim(app: leftfold.App, admin: AdminClient, kill: int) -> int:
    """The broker that leads a partition of bills, coordinates the group, or coordinates some transactions."""
    match kill % 3:
        case 0:
            bills = app.profile.topic_name("bills")
            return int(admin.list_topics(bills, timeout=30).topics[bills].partitions[kill % 6].leader)
        case 1:
            group = leftfold.settings.group_id(app.profile.namespace, "effect")
            return coordinator(app.kafka.bootstrap, group)
        case _:
            state = admin.list_topics("__transaction_state", timeout=30).topics["__transaction_state"]
            return int(state.partitions[kill % len(state.partitions)].leader)


def coordinator(bootstrap: str, group: str) -> int:
    """The broker that coordinates a group. A client keeps the one that it has found, so each question has its own."""
    deadline = time.monotonic() + 60
    while True:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        try:
            return int(admin.describe_consumer_groups([group])[group].result(30).coordinator.id)
        except KafkaException as error:
            if not passes(error.args[0]) or time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def in_sync(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=30).topics.values()
    return all(len(p.isrs) == len(p.replicas) for topic in topics for p in topic.partitions.values())
