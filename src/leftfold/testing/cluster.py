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

    __test__ = False  # not a class of tests, whatever its name starts with

    root: Path

    @property
    def endpoints(self) -> Endpoints:
        """Read anew each time: a test may have restarted part of it."""
        from leftfold.local import endpoints

        return endpoints.read(self.root)


@contextmanager
def started(root: Path) -> Iterator[TestCluster]:
    """Ends, by their own ids, the processes that it started, and those of a start that failed half-way."""
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
    """CI and `timeout` end a run with SIGTERM, of which pytest dies as it is; an interrupt ends its fixtures first."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
