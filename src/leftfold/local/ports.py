"""Free ports on loopback, below the range that the kernel lends to outgoing connections."""

from __future__ import annotations

import random
import socket
from dataclasses import replace

from leftfold.local.endpoints import HOST, Endpoints, Ports

# Linux lends 32768 and up; a port from there may be taken by anybody's connection while the cluster is down.
_RANGE = range(20_000, 32_000)


def free(port: int) -> bool:
    """Whether a server could listen there now. Like the servers themselves, does not mind old connections."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose(count: int, *, but: frozenset[int] = frozenset()) -> list[int]:
    """Different free ports, at random so that two projects starting at once do not meet."""
    candidates = (port for port in random.sample(_RANGE, len(_RANGE)) if port not in but and free(port))
    return [next(candidates) for _ in range(count)]


def fresh(brokers: int) -> Ports:
    chosen = choose(2 * brokers + 2)
    return Ports(tuple(chosen[:brokers]), tuple(chosen[brokers:-2]), chosen[-2], chosen[-1])


def of(ports: Ports) -> dict[str, tuple[int, ...]]:
    """The ports of each process by its name."""
    pairs = zip(ports.brokers, ports.controllers, strict=True)
    return {
        **{f"broker-{node}": pair for node, pair in enumerate(pairs, start=1)},
        "registry": (ports.registry,),
        "redis": (ports.redis,),
        **({"spark-master": ports.spark_master} if ports.spark_master else {}),
        **{f"spark-worker-{number}": pair for number, pair in enumerate(ports.spark_workers, start=1)},
    }


def with_workers(ports: Ports, workers: int) -> Ports:
    """With a Spark cluster of that many workers, or with none. Those that stay keep their ports."""
    if not workers:
        return replace(ports, spark_master=(), spark_workers=())
    kept = ports.spark_workers[:workers]
    missing = workers - len(kept)
    chosen = choose(2 * missing + 2, but=frozenset(port for mine in of(ports).values() for port in mine))
    new = tuple(zip(chosen[2::2], chosen[3::2], strict=True))
    return replace(ports, spark_master=ports.spark_master or tuple(chosen[:2]), spark_workers=(*kept, *new))


def rechosen(endpoints: Endpoints) -> Endpoints:
    """The same cluster, with new ports for processes that are down and whose old ones somebody else took."""
    held = of(endpoints.ports)
    lost = {port for name, mine in held.items() if not endpoints.alive(name) for port in mine if not free(port)}
    if not lost:
        return endpoints
    kept = frozenset(port for mine in held.values() for port in mine)
    new = dict(zip(sorted(lost), choose(len(lost), but=kept), strict=True))

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
    )
    return replace(endpoints, ports=ports)
