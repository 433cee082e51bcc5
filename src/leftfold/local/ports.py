"""Chooses free ports on loopback, below the range that the kernel uses for outgoing connections."""

from __future__ import annotations

import random
import socket
from dataclasses import replace

from leftfold.local import redis_cluster
from leftfold.local.endpoints import HOST, Endpoints, Ports

# Linux uses ports from 32768 up for outgoing connections. While the cluster is down, any program could get one of them.
_RANGE = range(20_000, 32_000)


def free(port: int) -> bool:
    """Return whether a server could listen on the port now. Old connections do not matter, as for the servers."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose(count: int, *, but: frozenset[int] = frozenset()) -> list[int]:
    """Choose different free ports. The choice is random, so that two projects that start at once do not collide."""
    candidates = (port for port in random.sample(_RANGE, len(_RANGE)) if port not in but and free(port))
    return [next(candidates) for _ in range(count)]


def fresh(brokers: int) -> Ports:
    chosen = choose(2 * brokers + 2)
    return Ports(tuple(chosen[:brokers]), tuple(chosen[brokers:-2]), chosen[-2], chosen[-1])


def of(ports: Ports) -> dict[str, tuple[int, ...]]:
    """The ports of each process, by its name."""
    pairs = zip(ports.brokers, ports.controllers, strict=True)
    return {
        **{f"broker-{node}": pair for node, pair in enumerate(pairs, start=1)},
        "registry": (ports.registry,),
        "redis": (ports.redis,),
        **{redis_cluster.name_of(number): pair for number, pair in enumerate(ports.redis_cluster, start=1)},
        **({"postgres": (ports.postgres,)} if ports.postgres else {}),
        **({"spark-master": ports.spark_master} if ports.spark_master else {}),
        **{f"spark-worker-{number}": pair for number, pair in enumerate(ports.spark_workers, start=1)},
    }


def with_workers(ports: Ports, workers: int) -> Ports:
    """The ports with this many Spark workers; 0 means no Spark cluster. Workers that stay keep their ports."""
    if not workers:
        return replace(ports, spark_master=(), spark_workers=())
    remaining = ports.spark_workers[:workers]
    missing = workers - len(remaining)
    chosen = choose(2 * missing + 2, but=frozenset(port for mine in of(ports).values() for port in mine))
    new = tuple(zip(chosen[2::2], chosen[3::2], strict=True))
    return replace(ports, spark_master=ports.spark_master or tuple(chosen[:2]), spark_workers=(*remaining, *new))


def with_postgres(ports: Ports, wanted: bool) -> Ports:
    """The ports with a Postgres, or without. One that stays keeps its port."""
    taken = frozenset(port for mine in of(ports).values() for port in mine)
    return replace(ports, postgres=(ports.postgres or choose(1, but=taken)[0]) if wanted else None)


def with_redis_cluster(ports: Ports, wanted: bool) -> Ports:
    """The ports with a Redis Cluster, or without. One that stays keeps its ports."""
    if not wanted or ports.redis_cluster:
        return ports if wanted else replace(ports, redis_cluster=())
    chosen = choose(2 * redis_cluster.NODES, but=frozenset(port for mine in of(ports).values() for port in mine))
    return replace(ports, redis_cluster=tuple(zip(chosen[::2], chosen[1::2], strict=True)))


def rechosen(endpoints: Endpoints) -> Endpoints:
    """The same cluster. Where a process is down and another program took its port, the port is replaced."""
    held = of(endpoints.ports)
    lost = {port for name, mine in held.items() if not endpoints.alive(name) for port in mine if not free(port)}
    if not lost:
        return endpoints
    taken = frozenset(port for mine in held.values() for port in mine)
    new = dict(zip(sorted(lost), choose(len(lost), but=taken), strict=True))

    def moved(port: int) -> int:
        return new.get(port, port)

    old = endpoints.ports
    ports = Ports(
        tuple(map(moved, old.brokers)),
        tuple(map(moved, old.controllers)),
        moved(old.registry),
        moved(old.redis),
        tuple(map(moved, old.spark_master)),
        tuple(tuple(map(moved, pair)) for pair in old.spark_workers),
        old.postgres and moved(old.postgres),
        tuple(tuple(map(moved, pair)) for pair in old.redis_cluster),
    )
    return replace(endpoints, ports=ports)
