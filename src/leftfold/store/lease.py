"""A lease in the online store: one process at a time, on any machine. It expires by itself if its holder dies."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leftfold.errors import StoreError
from leftfold.store.client import connect, reaching

_SECONDS = 60
# Changes the lease only if this holder still has it: another process may have taken over a lease that had expired.
_IF_MINE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('{}', KEYS[1]{}) end return 0"
_RENEW = _IF_MINE.format("expire", ", ARGV[2]")
_RELEASE = _IF_MINE.format("del", "")


class Lease:
    def __init__(self, client: Any, key: str, holder: str) -> None:
        self._client, self._key, self._holder = client, key, holder

    def check(self) -> None:
        """Renew the lease, or raise if it is lost. Call it before each action that only the holder may do."""
        with reaching(self._client):
            if not self._client.eval(_RENEW, 1, self._key, self._holder, _SECONDS):
                raise StoreError(
                    "lease-lost",
                    "another process has taken over",
                    why=f"this one was away for more than {_SECONDS} s, and counted as dead",
                    state="the steps that were reported are done",
                    fix="leftfold plan shows what is left to do",
                )


@contextmanager
def exclusive(url: str, namespace: str, what: str) -> Iterator[Lease]:
    """Hold the lease on `what`; raises while another process holds it.

    If the holder ran on this machine and has died, its lease is taken over at once.
    """
    key = f"lf:{namespace}:lease:{what}"
    holder = f"{socket.gethostname()}/{os.getpid()}/{_started(os.getpid())}"
    with connect(url) as client:
        with reaching(client):
            taken = client.set(key, holder, nx=True, ex=_SECONDS)
            if not taken:
                owner = (client.get(key) or b"").decode()
                if not _died_here(owner):
                    raise _held(what, owner, int(client.ttl(key)))
                # If several processes see the same dead holder, only one replaces it.
                taken = client.eval(
                    "if redis.call('get', KEYS[1]) == ARGV[1] then "
                    "redis.call('set', KEYS[1], ARGV[2], 'EX', ARGV[3]) return 1 end return 0",
                    *(1, key, owner, holder, _SECONDS),
                )
                if not taken:
                    raise _held(what, (client.get(key) or b"").decode(), int(client.ttl(key)))
        lease = Lease(client, key, holder)
        try:
            yield lease
        finally:
            with reaching(client):
                client.eval(_RELEASE, 1, key, holder)


def _died_here(holder: str) -> bool:
    host, _, rest = holder.partition("/")
    pid, _, started = rest.partition("/")
    return host == socket.gethostname() and pid.isdigit() and _started(int(pid)) != started


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if the process is gone.

    The start time is needed because process numbers are used again.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except FileNotFoundError:
        return ""


def _held(what: str, holder: str, seconds: int) -> StoreError:
    host, _, rest = holder.partition("/")
    return StoreError(
        f"{what}-running",
        f"another leftfold {what} is running, on host {host} with process id {rest.partition('/')[0]}",
        why="two at once could each undo half of what the other does",
        fix=f"wait until it ends; if it was killed, its lease expires within {max(seconds, 1)} s; then leftfold {what}",
        retriable=True,
    )
