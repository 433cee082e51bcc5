"""The file cluster.json: the ports on which the local cluster listens, and its processes.

Other rooms read only this file to find the cluster. It is written whole or not at all. This module imports nothing
heavy.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from leftfold import private
from leftfold.errors import LocalError
from leftfold.local import process
from leftfold.local.process import Identity

HOST = "127.0.0.1"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of the cluster. They are kept until another program takes one. Broker i listens on brokers[i - 1]."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    registry: int
    redis: int
    spark_master: tuple[int, ...] = ()  # its own port and that of its web page; empty if there is no Spark cluster
    spark_workers: tuple[tuple[int, ...], ...] = ()  # the same two ports for each worker
    postgres: int | None = None  # None if there is no Postgres
    # Of each server of the Redis Cluster: its port, and the one for other servers. Empty if there is no such cluster.
    redis_cluster: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses that clients need, and the processes that `down` has to end."""

    cluster_id: str
    ports: Ports
    processes: dict[str, Identity] = field(default_factory=dict)
    passfile: str = field(default="", compare=False)  # with the password of Postgres; it follows from the directory

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
    def redis_cluster_url(self) -> str | None:
        """The URL of the Redis Cluster; None if there is none."""
        if not self.ports.redis_cluster:
            return None
        return "redis+cluster://" + ",".join(f"{HOST}:{port}" for port, _ in self.ports.redis_cluster)

    @property
    def online_url(self) -> str:
        """The URL of the online store: the Redis Cluster if there is one."""
        return self.redis_cluster_url or self.redis_url

    @property
    def postgres_url(self) -> str | None:
        """The URL of the Postgres; None if there is none. It names the file with the password, and is no secret."""
        if not self.ports.postgres:
            return None
        return f"postgresql://leftfold@{HOST}:{self.ports.postgres}/postgres?passfile={quote(self.passfile, safe='/')}"

    @property
    def spark_url(self) -> str | None:
        """The URL of the Spark master; None if there is no Spark cluster."""
        return f"spark://{HOST}:{self.ports.spark_master[0]}" if self.ports.spark_master else None

    def having(self, name: str, identity: Identity) -> Endpoints:
        return replace(self, processes={**self.processes, name: identity})

    def alive(self, name: str) -> bool:
        identity = self.processes.get(name)
        return identity is not None and process.alive(identity)


def state_dir(root: Path) -> Path:
    """The directory of everything that the local cluster of a project keeps: data, logs, cluster.json."""
    return root / ".leftfold" / "local"


def passfile(root: Path) -> Path:
    return state_dir(root).absolute() / "postgres" / "password"


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
            tuple(ports.get("spark_master", ())),  # older files have none of these four
            tuple(map(tuple, ports.get("spark_workers", ()))),
            ports.get("postgres"),
            tuple(map(tuple, ports.get("redis_cluster", ()))),
        ),
        processes={name: Identity(**identity) for name, identity in document["processes"].items()},
        passfile=str(passfile(root)),
    )


def write(root: Path, endpoints: Endpoints) -> None:
    """Write cluster.json atomically. Its content is on disk before its name appears: `down` after a crash needs it."""
    addresses = {
        "bootstrap": endpoints.bootstrap,
        "registry": endpoints.registry_url,
        "redis": endpoints.redis_url,
        "redis_cluster": endpoints.redis_cluster_url,
        "postgres": endpoints.postgres_url,
        "spark": endpoints.spark_url,
    }
    path = state_dir(root) / "cluster.json"
    private.directory(path.parent)
    temporary = path.with_name(f"cluster.json.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"version": VERSION, **addresses, **asdict(endpoints)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read(root: Path) -> Endpoints:
    """The running cluster. Raises if none of its processes runs. A cluster with a dead broker still counts."""
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
