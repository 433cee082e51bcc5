"""A lock that lets one command at a time work on a cluster. It ends with its holder, so a crash never leaves it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from leftfold import private
from leftfold.errors import LocalError
from leftfold.local import process

BUSY_S = 300.0  # longer than the slowest `up` that still succeeds (cluster.READY_S)


@contextmanager
def exclusive(root: Path, say: Callable[[str], None], *, wait_s: float = BUSY_S) -> Iterator[None]:
    """Hold the lock on the cluster of `root`. A second command waits, and says for which process."""
    path = root / ".leftfold" / "local.lock"
    private.directory(path.parent)
    with path.open("a+", encoding="ascii") as file:
        if not _try_lock(file.fileno()):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            say(f"another leftfold (pid {holder}) is working on this cluster; waiting for it")
            if not process.wait_until(lambda: _try_lock(file.fileno()), timeout_s=wait_s):
                raise LocalError(
                    "cluster-busy",
                    "another leftfold is working on this cluster",
                    why=f"pid {holder} has held {path} for {wait_s:g} s",
                    fix="wait for it or end it, then run the same command again",
                    retriable=True,
                )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
