"""cluster.json: where the local cluster listens and which processes it is.

The one file that other rooms read to find the cluster. Written whole or not at all; imports nothing heavy.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from leftfold.errors import LocalError
from leftfold.local import process
from leftfold.local.process import Identity

HOST = "127.0.0.1"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Ports:
    """Chosen once and kept; broker i listens on brokers[i - 1]."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    registry: int
    redis: int
    spark_master: tuple[int, ...] = ()  # its own port and that of its page; empty: no Spark cluster was asked for
    spark_workers: tuple[tuple[int, ...], ...] = ()  # the same of each worker


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Everything a client needs, and everything `down` needs."""

    cluster_id: str
    ports: Ports
    processes: dict[str, Identity] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.brokers)

    @property
    def registry_url(self) -> str:
        return f"http://{HOST}:{self.ports.registry}/apis/ccompat/v7"

    @property
    def redis_url(self) -> str:
        return f"redis://{HOST}:{self.ports.redis}/0"

    @property
    def spark_url(self) -> str | None:
        """The master of the Spark cluster, if one was asked for."""
        return f"spark://{HOST}:{self.ports.spark_master[0]}" if self.ports.spark_master else None

    def having(self, name: str, identity: Identity) -> Endpoints:
        return replace(self, processes={**self.processes, name: identity})

    def alive(self, name: str) -> bool:
        identity = self.processes.get(name)
        return identity is not None and process.alive(identity)


def state_dir(root: Path) -> Path:
    """All that the local cluster of a project keeps: data, logs, cluster.json."""
    return root / ".leftfold" / "local"


def last(root: Path) -> Endpoints | None:
    """The cluster as it was last written, running or not; None if there never was one."""
    try:
        document = json.loads((state_dir(root) / "cluster.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    ports = document["ports"]
    return Endpoints(
        cluster_id=document["cluster_id"],
        ports=Ports(
            tuple(ports["brokers"]),
            tuple(ports["controllers"]),
            ports["registry"],
            ports["redis"],
            tuple(ports.get("spark_master", ())),  # a file from before there were Spark clusters has neither
            tuple(map(tuple, ports.get("spark_workers", ()))),
        ),
        processes={name: Identity(**identity) for name, identity in document["processes"].items()},
    )


def write(root: Path, endpoints: Endpoints) -> None:
    """Atomically, and on disk before the name appears: `down` after a crash depends on it."""
    addresses = {
        "bootstrap": endpoints.bootstrap,
        "registry": endpoints.registry_url,
        "redis": endpoints.redis_url,
        "spark": endpoints.spark_url,
    }
    path = state_dir(root) / "cluster.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"cluster.json.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"version": VERSION, **addresses, **asdict(endpoints)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read(root: Path) -> Endpoints:
    """The running cluster. Refused if nothing of it runs; a cluster with a dead broker is still a cluster."""
    endpoints = last(root)
    if endpoints is None or not any(map(endpoints.alive, endpoints.processes)):
        raise LocalError(
            "cluster-down",
            "the local cluster is not running",
            why="it was never started here" if endpoints is None else "none of its processes is alive",
            fix="leftfold up",
            retriable=True,
        )
    return endpoints
