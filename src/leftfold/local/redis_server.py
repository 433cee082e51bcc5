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
        # A new title overwrites the environment in /proc, and with it the mark by which a stray one is found.
        "set-proc-title": "no",
        # Every write reaches the append-only file before its answer, the disk within a second: SIGKILL loses nothing.
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        # A feature store that silently forgets keys under pressure answers wrongly; refusing the write is repairable.
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
    """PONG to a PING; while it reads its file back it says LOADING instead."""
    try:
        with connect(port) as link:
            link.sendall(b"PING\r\n")
            return link.recv(64).startswith(b"+PONG")
    except OSError:
        return False
