"""The common part of all processes of the cluster: how one is started, probed, and reported when it fails."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leftfold.errors import LocalError
from leftfold.local.endpoints import HOST
from leftfold.local.logfile import cause

PROBE_S = 2.0  # a loopback answer takes a millisecond; a stopped process accepts and never answers


@dataclass(frozen=True, slots=True)
class Service:
    """The description of one child process, before it is started."""

    name: str
    argv: tuple[str, ...]
    directory: Path
    log: Path
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=PROBE_S)


def failed(name: str, log: Path, what: str) -> LocalError:
    """The error for a process that did not come up, with the line of its log that says why."""
    return LocalError(
        f"{name.partition('-')[0]}-failed",  # broker-failed, redis-failed, postgres-failed …
        f"{name} {what}",
        why=f"{cause(log)}  ({log})",
        state="what had started keeps running; `leftfold up` starts only what is missing, `leftfold down` ends it all",
        fix=f"leftfold logs {name}",
        retriable=True,
    )
