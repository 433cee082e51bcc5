"""A Redis Cluster as local processes: three masters with a replica each, durable to within a second, on loopback."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from leftfold.errors import LocalError
from leftfold.local import process, redis_server
from leftfold.local.endpoints import HOST
from leftfold.local.service import Service, connect, failed

NODES = 6
_PREFIX = "redis-cluster-"
_SLOTS = 16_384
_FORM_S = 60.0


def find() -> str:
    """The program that makes a cluster of servers. It comes with the server."""
    redis_server.find()
    path = shutil.which("redis-cli")
    if path is None:
        raise LocalError(
            "redis-missing",
            "redis-cli was not found",
            why="it makes a Redis Cluster of several servers, and there is no redis-cli on the PATH",
            fix="install it (Debian: `apt install redis-tools`, macOS: `brew install redis`), then `leftfold up`",
        )
    return path


def is_node(name: str) -> bool:
    return name.startswith(_PREFIX)


def name_of(number: int) -> str:
    return f"{_PREFIX}{number}"


def number_of(name: str) -> int:
    return int(name.removeprefix(_PREFIX))


def service(state: Path, *, number: int, ports: Sequence[int]) -> Service:
    """One server, with its port, and the port on which the servers talk to each other."""
    name, (port, bus) = name_of(number), ports
    settings = {
        "cluster-enabled": "yes",
        "cluster-port": str(bus),
        "cluster-config-file": "nodes.conf",
        # A replica takes over after this time, in ms. A busy machine must not look like a dead server.
        "cluster-node-timeout": "5000",
        # While a part of the keys has no server, the others are still served.
        "cluster-require-full-coverage": "no",
    }
    one = redis_server.service(state, port=port)
    return replace(
        one,
        name=name,
        argv=(*one.argv, *(part for setting, value in settings.items() for part in (f"--{setting}", value))),
        directory=state / name,
        log=state / "logs" / f"{name}.log",
    )


def is_whole(port: int) -> bool:
    """Return whether this server knows one of each part of the keys, and takes commands."""
    said = _told(port, "CLUSTER INFO")
    return "cluster_state:ok" in said and f"cluster_slots_ok:{_SLOTS}" in said


def form(ports: Sequence[Sequence[int]], log: Path) -> None:
    """Make one cluster of running servers, or make servers whose ports have changed find each other again."""
    if not process.wait_until(lambda: all(redis_server.answers(port) for port, _ in ports), timeout_s=_FORM_S):
        return  # the caller waits for them, and reports the one that is missing
    if all(is_whole(port) for port, _ in ports):
        return
    if any(f"cluster_slots_assigned:{_SLOTS}" in _told(port, "CLUSTER INFO") for port, _ in ports):
        for one, _ in ports:
            for other, bus in ports:
                _told(one, f"CLUSTER MEET {HOST} {other} {bus}")
        return
    for port, _ in ports:  # one that an interrupted start left may know others already
        _told(port, "CLUSTER RESET HARD")
    addresses = [f"{HOST}:{port}" for port, _ in ports]
    argv = [find(), "--cluster", "create", *addresses, "--cluster-replicas", "1", "--cluster-yes"]
    made = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_FORM_S, stdin=subprocess.DEVNULL)
    if made.returncode:
        log.write_text(made.stdout + made.stderr, encoding="utf-8")
        raise failed(name_of(1), log, "could not be made a cluster with the others")


def _told(port: int, command: str) -> str:
    try:
        with connect(port) as link:
            link.sendall(f"{command}\r\n".encode())
            return link.recv(4_096).decode(errors="replace")
    except OSError:
        return ""
