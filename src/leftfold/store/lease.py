"""A lease in the online store: one process at a time, on any machine. It expires by itself if its holder dies."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leftfold.errors import StoreError
from leftfold.store.engine import Store
from leftfold.store.opening import open_store

_SECONDS = 60


class Lease:
    def __init__(self, store: Store, namespace: str, what: str, holder: str) -> None:
        self._store, self._namespace, self._what, self._holder = store, namespace, what, holder

    def check(self) -> None:
        """Renew the lease, or raise if it is lost. Call it before each action that only the holder may do."""
        if not self._store.renew(self._namespace, self._what, self._holder, _SECONDS):
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
    holder = f"{socket.gethostname()}/{os.getpid()}/{_started(os.getpid())}"
    with open_store(url) as store:
        if not store.take(namespace, what, holder, _SECONDS):
            owner, seconds = store.holder(namespace, what)
            if not _died_here(owner):
                raise _held(what, owner, seconds)
            # If several processes see the same dead holder, only one replaces it.
            if not store.take(namespace, what, holder, _SECONDS, instead_of=owner):
                raise _held(what, *store.holder(namespace, what))
        try:
            yield Lease(store, namespace, what, holder)
        finally:
            store.release(namespace, what, holder)


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
