"""Ports are kept while they can be, and only those that somebody took are chosen again."""

from __future__ import annotations

import socket

from leftfold.local import ports
from leftfold.local.endpoints import HOST, Endpoints, Ports


def test_fresh_ports_differ_and_lie_below_the_ephemeral_range() -> None:
    chosen = [port for mine in ports.of(ports.fresh(3)).values() for port in mine]
    assert len(set(chosen)) == 8
    assert all(20_000 <= port < 32_000 for port in chosen)


def test_who_has_which() -> None:
    assert ports.of(Ports((1, 2, 3), (4, 5, 6), 7, 8)) == {
        "broker-1": (1, 4),
        "broker-2": (2, 5),
        "broker-3": (3, 6),
        "registry": (7,),
        "redis": (8,),
    }


def test_only_a_taken_port_is_chosen_again() -> None:
    before = Endpoints("id", ports.fresh(3))
    assert ports.rechosen(before) == before
    with socket.create_server((HOST, before.ports.controllers[1])), socket.create_server((HOST, before.ports.redis)):
        after = ports.rechosen(before)
    assert after.ports.brokers == before.ports.brokers
    assert after.ports.controllers[::2] == before.ports.controllers[::2]
    assert after.ports.controllers[1] != before.ports.controllers[1]
    assert after.ports.redis != before.ports.redis
    assert len({port for mine in ports.of(after.ports).values() for port in mine}) == 8


def test_spark_workers_come_and_go_with_their_ports() -> None:
    none = ports.fresh(1)
    two = ports.with_workers(none, 2)
    assert list(ports.of(two))[-3:] == ["spark-master", "spark-worker-1", "spark-worker-2"]
    assert len({port for mine in ports.of(two).values() for port in mine}) == 4 + 6
    three = ports.with_workers(two, 3)
    assert three.spark_master == two.spark_master
    assert three.spark_workers[:2] == two.spark_workers
    assert ports.with_workers(three, 2) == two
    assert ports.with_workers(two, 0) == none


def test_a_taken_port_of_a_worker_is_chosen_again() -> None:
    before = Endpoints("id", ports.with_workers(ports.fresh(1), 2))
    with socket.create_server((HOST, before.ports.spark_workers[1][0])):
        after = ports.rechosen(before)
    assert after.ports.spark_master == before.ports.spark_master
    assert after.ports.spark_workers[0] == before.ports.spark_workers[0]
    assert after.ports.spark_workers[1][0] != before.ports.spark_workers[1][0]
    assert after.ports.spark_workers[1][1] == before.ports.spark_workers[1][1]


def test_a_redis_cluster_comes_and_goes_with_its_ports() -> None:
    none = ports.fresh(1)
    six = ports.with_redis_cluster(none, True)
    assert list(ports.of(six))[-6:] == [f"redis-cluster-{number}" for number in range(1, 7)]
    assert len({port for mine in ports.of(six).values() for port in mine}) == 4 + 12
    assert ports.with_redis_cluster(six, True) == six
    assert ports.with_redis_cluster(six, False) == none
    with socket.create_server((HOST, six.redis_cluster[1][1])):
        after = ports.rechosen(Endpoints("id", six)).ports.redis_cluster
    assert [pair for pair in after if pair not in six.redis_cluster] == [after[1]]
    assert after[1][0] == six.redis_cluster[1][0]
