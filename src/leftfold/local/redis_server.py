"""The online store as a local process: one Redis, durable to within a second, on loopback."""

from __future__ import annotations

import shutil
from pathlib import Path

from leftfold.errors import LocalError
from leftfold.local.endpoints import HOST
from leftfold.local.service import Service, connect


def find() -> str:
    path = shutil.which("redis-server")
    if path is None:
        raise LocalError(
            "redis-missing",
            "redis-server was not found",
            why="the online store of the local cluster is a Redis, and there is no redis-server on the PATH",
            fix="install it (Debian: `apt install redis-server`, macOS: `brew install redis`), then `leftfold up`",
        )
    return path


def service(state: Path, *, port: int) -> Service:
    settings = {
        "port": str(port),
        "bind": HOST,
        "protected-mode": "yes",
        "daemonize": "no",
        "dir": ".",
        # A new process title overwrites the environment in /proc, and with it the mark by which a stray is found.
        "set-proc-title": "no",
        # A write reaches the append-only file before its answer, and the disk within a second: SIGKILL loses nothing.
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        # A store that silently evicts keys when memory is short gives wrong answers. A refused write can be repaired.
        "maxmemory-policy": "noeviction",
    }
    argv = (find(), *(part for name, value in settings.items() for part in (f"--{name}", value)))
    return Service(
        name="redis",
        argv=argv,
        directory=state / "redis",
        log=state / "logs" / "redis.log",
        port=port,
    )


def answers(port: int) -> bool:
    """True if Redis answers PING with PONG. While it loads its file, it answers LOADING instead."""
    try:
        with connect(port) as link:
            link.sendall(b"PING\r\n")
            return link.recv(64).startswith(b"+PONG")
    except OSError:
        return False
