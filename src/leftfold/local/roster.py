"""The processes of a cluster, by name: how each is started, whether it answers, where its log is."""

from __future__ import annotations

from pathlib import Path

from leftfold.local import brokers, postgres_server, process, redis_cluster, redis_server, registry, spark_cluster
from leftfold.local.endpoints import Endpoints, state_dir
from leftfold.local.process import Identity
from leftfold.local.service import Service


def service(root: Path, endpoints: Endpoints, *, name: str, java_path: str) -> Service:
    state = state_dir(root)
    if name == "redis":
        return redis_server.service(state, port=endpoints.ports.redis)
    if redis_cluster.is_node(name):
        number = redis_cluster.number_of(name)
        return redis_cluster.service(state, number=number, ports=endpoints.ports.redis_cluster[number - 1])
    if name == "postgres":
        assert endpoints.ports.postgres is not None
        return postgres_server.service(state, port=endpoints.ports.postgres)
    if name == "registry":
        return registry.service(state, port=endpoints.ports.registry, java_path=java_path)
    if spark_cluster.is_spark(name):
        return spark_cluster.service(state, endpoints, name=name, java_path=java_path)
    return brokers.service(state, endpoints, node=node_of(name), java_path=java_path)


def ready(endpoints: Endpoints, name: str) -> bool:
    """Return whether this process and those it depends on are ready for use: a broker must see all other brokers."""
    if spark_cluster.is_spark(name):
        return spark_cluster.ready(endpoints, name)
    if redis_cluster.is_node(name):
        return redis_cluster.is_whole(endpoints.ports.redis_cluster[redis_cluster.number_of(name) - 1][0])
    return brokers.sees_all(endpoints, node_of(name)) if is_broker(name) else answers(endpoints, name)


def answers(endpoints: Endpoints, name: str) -> bool:
    """Return whether this process does its own work, whatever the state of the others."""
    if name == "redis":
        return redis_server.answers(endpoints.ports.redis)
    if redis_cluster.is_node(name):
        return redis_server.answers(endpoints.ports.redis_cluster[redis_cluster.number_of(name) - 1][0])
    if name == "postgres":
        return postgres_server.answers(endpoints.ports.postgres or 0)
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
    """Processes that have this cluster's mark, but are not recorded and belong to no living worker.

    Either their starter died before it recorded them, or they are executors whose worker died. An executor runs in the
    session of its worker, and belongs to the worker as long as that is alive.
    """
    recorded = set(endpoints.processes.values()) if endpoints else set()
    leaders = {identity.pid for identity in recorded if process.alive(identity)}
    return {
        identity: name
        for identity, name in process.marked(mark(root)).items()
        if identity not in recorded and process.session(identity) not in leaders
    }
