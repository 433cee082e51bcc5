"""The local cluster against the real processes: ready means ready, kill -9 loses nothing, loopback only."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from redis.cluster import RedisCluster

from leftfold.errors import LocalError
from leftfold.local import cluster as local
from leftfold.local import endpoints as record
from leftfold.local import process
from leftfold.local.endpoints import HOST, Endpoints

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 as /proc/net/tcp and tcp6 write it


class Cluster(Protocol):
    root: Path

    @property
    def endpoints(self) -> Endpoints: ...


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A project for a cluster of one broker, which the test starts itself."""
    (tmp_path / "leftfold.toml").write_text('[project]\nname = "small"\ndeclarations = []\n')
    try:
        yield tmp_path
    finally:
        local.down(tmp_path)


def new_topic(endpoints: Endpoints, *, copies: int = 3) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": endpoints.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=copies)])[name].result(timeout=240)
    return name


def register(endpoints: Endpoints, subject: str) -> int:
    schema = {"type": "record", "name": subject.replace("-", "_"), "fields": [{"name": "a", "type": "string"}]}
    request = Request(
        f"{endpoints.registry_url}/subjects/{subject}/versions",
        data=json.dumps({"schema": json.dumps(schema)}).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    return int(ask(request)["id"])


def ask(request: Request | str) -> dict[str, Any]:
    with build_opener(ProxyHandler({})).open(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def kill(endpoints: Endpoints, *names: str) -> None:
    for name in names:
        os.kill(endpoints.processes[name].pid, signal.SIGKILL)
    assert process.wait_until(lambda: not any(map(endpoints.alive, names)), timeout_s=10)


def listening(pid: int) -> set[str]:
    """Addresses that a process listens on, as the kernel writes them."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # a busy process closes files while they are listed
            inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


def test_a_topic_with_three_copies_can_be_made_at_once(cluster: Cluster) -> None:
    name = new_topic(cluster.endpoints)
    found = AdminClient({"bootstrap.servers": cluster.endpoints.bootstrap}).list_topics(name, timeout=120)
    assert all(len(partition.replicas) == 3 for partition in found.topics[name].partitions.values())


def test_everything_listens_on_loopback_only(cluster: Cluster) -> None:
    for name, identity in cluster.endpoints.processes.items():
        heard = listening(identity.pid)
        assert heard, f"{name} listens nowhere"
        assert heard <= LOOPBACK, f"{name} listens on {heard}"


def test_up_again_starts_nothing(cluster: Cluster) -> None:
    before = cluster.endpoints
    assert local.up(cluster.root) == before
    assert local.status(cluster.root)["state"] == "running"


def test_up_restarts_the_dead_broker_and_no_other(cluster: Cluster) -> None:
    before = cluster.endpoints
    kill(before, "broker-2")
    assert local.status(cluster.root)["state"] == "degraded"
    after = local.up(cluster.root)
    changed = {name for name in after.processes if after.processes[name] != before.processes[name]}
    assert changed == {"broker-2"}
    assert after.ports == before.ports
    new_topic(after)


def test_a_schema_id_survives_a_kill_right_after_it_was_given(cluster: Cluster) -> None:
    given = {f"s-{uuid.uuid4().hex[:8]}": 0 for _ in range(5)}
    for subject in given:
        given[subject] = register(cluster.endpoints, subject)
    kill(cluster.endpoints, "registry")
    after = local.up(cluster.root)
    for subject, number in given.items():
        assert ask(f"{after.registry_url}/subjects/{subject}/versions/latest")["id"] == number
    assert register(after, f"s-{uuid.uuid4().hex[:8]}") not in given.values()


def test_kill_of_everything_loses_nothing_acknowledged(cluster: Cluster) -> None:
    before = cluster.endpoints
    topic = new_topic(before)
    producer = Producer({"bootstrap.servers": before.bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce(topic, value=str(number), partition=number % 3)
    assert producer.flush(240) == 0
    number = register(before, f"{topic}-value")
    redis.Redis.from_url(before.redis_url).set(topic, "kept")

    kill(before, *before.processes)
    after = local.up(cluster.root)

    assert consume(after, topic, count=100) == sorted(str(number) for number in range(100))
    assert ask(f"{after.registry_url}/subjects/{topic}-value/versions/latest")["id"] == number
    assert redis.Redis.from_url(after.redis_url).get(topic) == b"kept"


def consume(endpoints: Endpoints, topic: str, *, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": endpoints.bootstrap, "group.id": topic, "enable.partition.eof": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
        records: list[str] = []
        while len(records) < count:
            message = consumer.poll(240)
            assert message is not None, f"{len(records)} of {count} records, then none for 240 s"
            assert message.error() is None
            records.append((message.value() or b"").decode())
        return sorted(records)
    finally:
        consumer.close()


def test_a_taken_controller_port_moves_the_whole_quorum(cluster: Cluster) -> None:
    before = cluster.endpoints
    kill(before, "broker-3")
    with socket.create_server((HOST, before.ports.controllers[2])):
        after = local.up(cluster.root)
    assert after.ports.controllers[:2] == before.ports.controllers[:2]
    assert after.ports.controllers[2] != before.ports.controllers[2]
    new_topic(after)


def test_one_broker_down_up_and_reset(small: Path) -> None:
    first = local.up(small, brokers=1)
    new_topic(first, copies=1)
    with pytest.raises(LocalError, match="1 brokers, and 3"):
        local.up(small, brokers=3)
    assert set(local.down(small)) == {"broker-1", "registry", "redis"}
    assert local.down(small) == {}
    with pytest.raises(LocalError, match="not running"):
        record.read(small)

    with socket.create_server((HOST, first.ports.brokers[0])), socket.create_server((HOST, first.ports.redis)):
        second = local.up(small)
    assert second.ports.brokers != first.ports.brokers
    assert second.ports.redis != first.ports.redis
    assert second.ports.registry == first.ports.registry

    assert set(local.reset(small, confirm=small.name)) == {"broker-1", "registry", "redis"}
    assert not record.state_dir(small).exists()


def test_a_redis_cluster_that_goes_and_comes_back_with_other_ports(small: Path) -> None:
    started = local.up(small, brokers=1, redis_cluster=True)
    assert started.online_url == started.redis_cluster_url

    def client(endpoints: Endpoints, server: int) -> Any:
        return RedisCluster(host=HOST, port=endpoints.ports.redis_cluster[server - 1][0])

    for number in range(100):
        client(started, 1).set(f"k{number}", number)
    node = started.processes["redis-cluster-1"]
    os.kill(node.pid, signal.SIGKILL)
    assert local.up(small).processes["redis-cluster-1"] != node
    ended = local.down(small)
    assert {ended[f"redis-cluster-{number}"] for number in range(1, 7)} == {"ended"}
    (taken, _), (_, bus) = started.ports.redis_cluster[0], started.ports.redis_cluster[3]
    with socket.create_server((HOST, taken)), socket.create_server((HOST, bus)):
        again = local.up(small)
    assert [
        one != other for one, other in zip(again.ports.redis_cluster, started.ports.redis_cluster, strict=True)
    ] == [*(True, False, False, True, False, False)]
    for server in (1, 2, 6):
        assert {int(client(again, server).get(f"k{number}")) for number in range(100)} == set(range(100))
    assert local.status(small)["state"] == "running"
    alone = local.up(small, redis_cluster=False)
    assert alone.online_url == alone.redis_url
    assert not any(name.startswith("redis-cluster") for name in alone.processes)


def test_an_up_that_was_killed_is_taken_up_again(small: Path) -> None:
    code = f"from pathlib import Path; from leftfold.local import cluster; cluster.up(Path({str(small)!r}), brokers=1)"
    with subprocess.Popen([sys.executable, "-c", code]) as starter:
        assert process.wait_until(lambda: "redis" in _processes(small), timeout_s=60)
        starter.send_signal(signal.SIGKILL)
    endpoints = local.up(small)
    assert local.status(small)["state"] == "running"

    # A child whose record was lost is still known by its mark.
    record.write(small, replace(endpoints, processes={}))
    assert set(local.down(small)) == {"broker-1", "registry", "redis"}
    assert not any(map(process.alive, endpoints.processes.values()))


def _processes(root: Path) -> dict[str, Any]:
    found = record.last(root)
    return dict(found.processes) if found else {}


def test_two_ups_at_once_start_one_cluster(small: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: local.up(small, brokers=1), range(2))
    assert first == second
    assert len(process.marked(str(record.state_dir(small).resolve()))) == 3
