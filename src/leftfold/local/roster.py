"""Who belongs to a cluster: each process by name, how it is started, whether it answers, where its log is."""

from __future__ import annotations

from pathlib import Path

from leftfold.local import brokers, process, redis_server, registry, spark_cluster
from leftfold.local.endpoints import Endpoints, state_dir
from leftfold.local.process import Identity
from leftfold.local.service import Service


def service(root: Path, endpoints: Endpoints, *, name: str, java_path: str) -> Service:
    state = state_dir(root)
    if name == "redis":
        return redis_server.service(state, port=endpoints.ports.redis)
    if name == "registry":
        return registry.service(state, port=endpoints.ports.registry, java_path=java_path)
    if spark_cluster.is_spark(name):
        return spark_cluster.service(state, endpoints, name=name, java_path=java_path)
    return brokers.service(state, endpoints, node=node_of(name), java_path=java_path)


def ready(endpoints: Endpoints, name: str) -> bool:
    """Whether the cluster may be used as far as this process goes: a broker waits for the others."""
    if spark_cluster.is_spark(name):
        return spark_cluster.ready(endpoints, name)
    return brokers.sees_all(endpoints, node_of(name)) if is_broker(name) else answers(endpoints, name)


def answers(endpoints: Endpoints, name: str) -> bool:
    """Whether this process does its own work, whatever the others do."""
    if name == "redis":
        return redis_server.answers(endpoints.ports.redis)
    if name == "registry":
        return registry.answers(endpoints.ports.registry)
    if spark_cluster.is_spark(name):
        return spark_cluster.answers(endpoints, name)
    return brokers.serves(endpoints, node_of(name))


def log_of(root: Path, name: str) -> Path:
    return state_dir(root) / "logs" / f"{name}.log"


def is_broker(name: str) -> bool:
    return name.startswith("broker-")


def node_of(name: str) -> int:
    return int(name.removeprefix("broker-"))


def mark(root: Path) -> str:
    return f"{state_dir(root).resolve()}:"


def strays(root: Path, endpoints: Endpoints | None) -> dict[Identity, str]:
    """Ours by their mark, but nobody's: their starter died between starting and writing, or their worker died.

    An executor belongs to a living worker, in whose session it runs.
    """
    recorded = set(endpoints.processes.values()) if endpoints else set()
    leaders = {identity.pid for identity in recorded if process.alive(identity)}
    return {
        identity: name
        for identity, name in process.marked(mark(root)).items()
        if identity not in recorded and process.session(identity) not in leaders
    }
