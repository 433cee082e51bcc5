"""A real local cluster that belongs to one run of tests."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leftfold.local.endpoints import Endpoints

_PROJECT = '[project]\nname = "tests"\ndeclarations = []\n'


@dataclass(frozen=True)
class TestCluster:
    """Three brokers, a registry and a Redis. `root` is a project directory: `leftfold status` works there."""

    __test__ = False  # pytest would collect the class, because its name starts with Test

    root: Path

    @property
    def endpoints(self) -> Endpoints:
        """The endpoints of the cluster, read again each time: a test may have restarted part of it."""
        from leftfold.local import endpoints

        return endpoints.read(self.root)


@contextmanager
def started(root: Path) -> Iterator[TestCluster]:
    """Start a cluster, and end its processes by their ids afterwards, also if the start failed half-way."""
    from leftfold.local import cluster

    (root / "leftfold.toml").write_text(_PROJECT)
    with _interrupted_by_sigterm():
        try:
            cluster.up(root, brokers=3)
            yield TestCluster(root)
        finally:
            cluster.down(root)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an interrupt, because pytest ends its fixtures only after an interrupt.

    CI and `timeout` end a run with SIGTERM. By default it kills pytest, and the processes of the cluster would stay.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
