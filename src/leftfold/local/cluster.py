"""The local cluster as a whole: up, down, status, logs, reset.

`up` starts what is missing and nothing else, so a second `up` repairs a cluster. Only one command at a time works on a
cluster.
"""

from __future__ import annotations

import base64
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from leftfold import clock, jars
from leftfold.errors import LocalError
from leftfold.local import brokers as kafka
from leftfold.local import endpoints as record
from leftfold.local import java, ports, postgres_server, process, redis_server, roster, spark_cluster
from leftfold.local import redis_cluster as redis_nodes
from leftfold.local.endpoints import Endpoints, Ports, state_dir
from leftfold.local.exclusive import exclusive
from leftfold.local.process import Identity
from leftfold.local.service import Service, failed

Progress = Callable[[str], None]
READY_S = 240.0  # a start takes 10 to 20 s on two cores; the rest is reserve for a busier machine
GRACE_S = 15.0  # for brokers to hand over their partitions; then they are killed, and recover at the next start


def up(
    root: Path,
    *,
    brokers: Literal[1, 3] | None = None,
    spark_workers: int | None = None,
    postgres: bool | None = None,
    redis_cluster: bool | None = None,
    progress: Progress | None = None,
) -> Endpoints:
    """Start what is not running and wait until all of it is ready. Repairs a half-dead cluster.

    `spark_workers` is remembered. With None, as many workers as before run. With 0, they are ended and forgotten. So is
    `postgres`: with None, a Postgres runs if one did before. With False it is ended, and its data is kept. The same
    holds for `redis_cluster`, which is the online store if it is there.
    """
    say = progress or (lambda _: None)
    with exclusive(root, say):
        java_path = java.find()
        redis_server.find()
        before = record.last(root)
        if spark_workers or (spark_workers is None and before and before.spark_url):
            spark_cluster.find()
        if postgres or (postgres is None and before and before.ports.postgres):
            postgres_server.find()
        if redis_cluster or (redis_cluster is None and before and before.ports.redis_cluster):
            redis_nodes.find()
        for set_name in ("kafka", "registry"):
            jars.ensure(set_name, say)
        endpoints = _planned(root, brokers, say)
        if spark_workers is not None:
            endpoints = _with_ports(root, endpoints, ports.with_workers(endpoints.ports, spark_workers), say)
        if postgres is not None:
            endpoints = _with_ports(root, endpoints, ports.with_postgres(endpoints.ports, postgres), say)
        if redis_cluster is not None:
            endpoints = _with_ports(root, endpoints, ports.with_redis_cluster(endpoints.ports, redis_cluster), say)
        services = {
            name: roster.service(root, endpoints, name=name, java_path=java_path)
            for name in ports.of(endpoints.ports)
            if not endpoints.alive(name)
        }
        _format(root, endpoints, services, java_path=java_path, say=say)
        _format_postgres(root, services, say)
        for service in services.values():
            endpoints = endpoints.having(service.name, _start(root, service))
            record.write(root, endpoints)  # after each start: `down` then finds what an interrupted `up` left
        _form_redis_cluster(root, endpoints)
        _await_ready(root, endpoints, services, say)
        return endpoints


def down(root: Path, *, progress: Progress | None = None) -> dict[str, str]:
    """End every process of this cluster, recorded or not. The result maps each name to how the process ended."""
    say = progress or (lambda _: None)
    with exclusive(root, say):
        return _down(root, say)


def status(root: Path) -> dict[str, Any]:
    """The current state of the processes. It asks each process, and starts and changes nothing."""
    endpoints = record.last(root)
    if endpoints is None:
        addresses = dict.fromkeys(("bootstrap", "registry", "redis", "redis_cluster", "postgres", "spark"))
        return {"state": "down", **addresses, "processes": []}
    rows = [_row(root, endpoints, name) for name in ports.of(endpoints.ports)]
    states = {row["state"] for row in rows}
    return {
        "state": "running" if states == {"running"} else "down" if states <= {"down", "dead"} else "degraded",
        "bootstrap": endpoints.bootstrap,
        "registry": endpoints.registry_url,
        "redis": endpoints.redis_url,
        "redis_cluster": endpoints.redis_cluster_url,
        "postgres": endpoints.postgres_url,
        "spark": endpoints.spark_url,
        "processes": rows,
    }


def logs(root: Path, name: str | None = None) -> dict[str, Path]:
    """The log file of each process, or of one."""
    homes = (state_dir(root) / "logs", root / ".leftfold" / "logs")  # the engines' logs; Spark's and our errors
    paths = {path.stem: path for home in homes for path in sorted(home.glob("*.log"))}
    if name is None:
        return paths
    if name not in paths:
        why = f"there are logs of {', '.join(paths)}" if paths else "nothing was started yet"
        raise LocalError("no-such-process", f"there is no log of {name}", why=why, fix="leftfold status")
    return {name: paths[name]}


def reset(root: Path, *, confirm: str, progress: Progress | None = None) -> dict[str, str]:
    """Delete the cluster's data: topics, schemas, the store. `confirm` is the name of the project's directory."""
    if confirm != root.resolve().name:
        raise LocalError(
            "reset-not-confirmed",
            f"reset needs the name of the project directory, {root.resolve().name}, and was given {confirm!r}",
            why="it deletes every topic, schema and stored feature of the local cluster, and there is no undo",
            fix=f"run leftfold reset on a terminal, and type {root.resolve().name}",
        )
    say = progress or (lambda _: None)
    with exclusive(root, say):
        ended = _down(root, say)
        if state_dir(root).exists():
            shutil.rmtree(state_dir(root))
    return ended


def _planned(root: Path, brokers: Literal[1, 3] | None, say: Progress) -> Endpoints:
    """Plan the cluster, and write the plan down before anything starts.

    Ends strays, and replaces ports that another program took while the cluster was down.
    """
    endpoints = record.last(root)
    if endpoints is None:
        endpoints = Endpoints(_new_cluster_id(), ports.fresh(brokers or 3))
    there = len(endpoints.ports.brokers)
    if brokers not in (None, there):
        raise LocalError(
            "brokers-differ",
            f"this cluster has {there} brokers, and {brokers} were asked for",
            why="the controllers' quorum is fixed when the directories are formatted",
            fix=f"leftfold up, or leftfold reset and then leftfold up --brokers {brokers}",
        )
    _end_strays(root, endpoints, say)
    moved = ports.rechosen(endpoints)
    if moved.ports.controllers != endpoints.ports.controllers:
        # The settings of living brokers contain the old address of the quorum.
        say("a controller's port was taken by another program; all brokers get new settings")
        living = [identity for name, identity in endpoints.processes.items() if roster.is_broker(name)]
        process.end(living, grace_s=GRACE_S)
    if moved.spark_url != endpoints.spark_url:
        say("the port of the Spark master was taken by another program; its workers get the new one")
        process.end(
            [moved.processes[name] for name in moved.processes if spark_cluster.is_worker(name)], grace_s=GRACE_S
        )
    record.write(root, moved)
    return moved


def _with_ports(root: Path, endpoints: Endpoints, wanted_ports: Ports, say: Progress) -> Endpoints:
    """The cluster with these ports. Processes that have none any more are ended, Spark workers with their executors."""
    wanted = replace(endpoints, ports=wanted_ports, passfile=str(record.passfile(root)))
    names = ports.of(wanted.ports)
    ending = {name: identity for name, identity in endpoints.processes.items() if name not in names}
    if living := [name for name, identity in ending.items() if process.alive(identity)]:
        say(f"ending {', '.join(living)}")
    postgres_server.ask_to_end([identity for name, identity in ending.items() if name == "postgres"])
    process.end(ending.values(), grace_s=GRACE_S)
    wanted = replace(wanted, processes={name: one for name, one in wanted.processes.items() if name in names})
    _end_strays(root, wanted, say)
    record.write(root, wanted)
    return wanted


def _new_cluster_id() -> str:
    """A UUID in Kafka's format. It has no leading dash, which StorageTool would take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()).startswith("-"):
        continue
    return text


def _end_strays(root: Path, endpoints: Endpoints, say: Progress) -> None:
    strays = roster.strays(root, endpoints)
    if strays:
        say(f"ending what was left behind: {', '.join(sorted(set(strays.values())))}")
        process.end(strays, grace_s=GRACE_S)


def _down(root: Path, say: Progress) -> dict[str, str]:
    endpoints = record.last(root)
    recorded = {identity: name for name, identity in endpoints.processes.items()} if endpoints else {}
    ours = process.marked(roster.mark(root)) | recorded  # executors too: they have the mark of their worker
    living = {name for identity, name in ours.items() if process.alive(identity)}
    if living:
        say(f"ending {', '.join(sorted(living))}")
    postgres_server.ask_to_end([identity for identity, name in ours.items() if name == "postgres"])
    ended = process.end(ours, grace_s=GRACE_S)
    process.end(process.marked(roster.mark(root)), grace_s=GRACE_S)  # an executor that a worker started meanwhile
    if endpoints:
        record.write(root, replace(endpoints, processes={}))
    # Executors have the name of their worker. The worker's own entry comes last, so that the result says how it ended.
    return {ours[one]: how for one, how in sorted(ended.items(), key=lambda end: end[0] in recorded)}


def _format(root: Path, endpoints: Endpoints, services: dict[str, Service], *, java_path: str, say: Progress) -> None:
    new = [one for name, one in services.items() if roster.is_broker(name) and not kafka.formatted(one)]
    if not new:
        return
    say("formatting the brokers' directories")
    argv = kafka.format_argv(cluster_id=endpoints.cluster_id, java_path=java_path)
    running = [_start(root, replace(service, argv=argv)) for service in new]
    process.wait_until(lambda: not any(map(process.alive, running)), timeout_s=READY_S)
    for service in new:
        if not kafka.formatted(service):
            raise kafka.unformatted(service)


def _format_postgres(root: Path, services: dict[str, Service], say: Progress) -> None:
    service = services.get("postgres")
    if service is None or postgres_server.formatted(service):
        return
    say("making the directory of Postgres")
    making = postgres_server.format_service(service)
    running = _start(root, making)
    process.wait_until(lambda: not process.alive(running), timeout_s=READY_S)
    if not postgres_server.keep(service):
        raise failed("postgres", service.log, "could not make its directory")


def _form_redis_cluster(root: Path, endpoints: Endpoints) -> None:
    if endpoints.ports.redis_cluster:
        redis_nodes.form(endpoints.ports.redis_cluster, roster.log_of(root, "redis-cluster"))


def _start(root: Path, service: Service) -> Identity:
    return process.start(
        service.argv,
        mark=f"{roster.mark(root)}{service.name}",
        directory=service.directory,
        log=service.log,
        environment=service.environment,
    )


def _await_ready(root: Path, endpoints: Endpoints, services: dict[str, Service], say: Progress) -> None:
    """Wait for all of the cluster, also for processes that ran before: a broker is ready when it sees the others."""
    began = clock.monotonic()
    pending = list(ports.of(endpoints.ports))
    if services:
        say(f"starting {', '.join(services)}")

    def all_ready() -> bool:
        for name in tuple(pending):
            if not endpoints.alive(name):
                raise failed(name, roster.log_of(root, name), "stopped while it started")
            if roster.ready(endpoints, name):
                pending.remove(name)
                if name in services:
                    say(f"{name} is ready after {clock.monotonic() - began:.1f} s")
        return not pending

    if not process.wait_until(all_ready, timeout_s=READY_S):
        raise failed(pending[0], roster.log_of(root, pending[0]), f"is not ready after {READY_S:g} s")


def _row(root: Path, endpoints: Endpoints, name: str) -> dict[str, Any]:
    identity = endpoints.processes.get(name)
    living = endpoints.alive(name)
    if identity is None:
        state = "down"
    elif not living:
        state = "dead"
    else:
        state = "running" if roster.answers(endpoints, name) else "not answering"
    return {
        "name": name,
        "state": state,
        "pid": identity.pid if identity and living else None,
        "port": ports.of(endpoints.ports)[name][0],
        "log": str(roster.log_of(root, name)),
    }
