"""One real cluster and one JVM for the whole test run.

They come from the pytest plugin that users have for their own tests.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leftfold.kafka.changelog import close as close_changelogs
from leftfold.local import cluster as local_cluster
from leftfold.run import watermark
from leftfold.testing import TestCluster
from tests.engine.log import delete_topics
from tests.engine.postgres_faults import postgres_behind_an_address
from tests.engine.redis_clusters import redis_cluster_nodes
from tests.engine.redis_faults import store_behind_an_address


@dataclass(frozen=True)
class Cluster(TestCluster):
    """The shared cluster, and the functions that work on it."""

    cluster: ModuleType = local_cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.engine)


_cpu_at_start: list[tuple[int, int]] = []


def _cpu() -> tuple[int, int]:
    """The time of all cores since boot, and how much of it they waited, in ticks."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        _cpu_at_start.append(_cpu())


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say whether the run computed or waited: more sessions side by side help only if it waited."""
    for whole, waited in _cpu_at_start:
        whole_now, waited_now = _cpu()
        share = (waited_now - waited) / max(1, whole_now - whole)
        terminalreporter.write_line(f"the cores waited for {share:.0%} of the time")


_in_use: list[Cluster] = []  # the shared cluster, once a test has asked for it


@pytest.fixture(scope="session")
def cluster(leftfold_cluster: TestCluster) -> Iterator[Cluster]:
    _in_use.append(Cluster(leftfold_cluster.root))
    yield _in_use[0]
    _in_use.clear()


@pytest.fixture(scope="session")
def postgres(cluster: Cluster) -> str:
    """The URL of a real Postgres beside the shared cluster."""
    url = local_cluster.up(cluster.root, postgres=True).postgres_url
    assert url is not None
    return url


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Redis Cluster."""
    with redis_cluster_nodes(tmp_path_factory.mktemp("redis-cluster")) as nodes:
        yield nodes.url


# Those that a test can make go back in time as a whole.
STORES: dict[str, Any] = {"redis": store_behind_an_address, "postgres": postgres_behind_an_address}


_EVERY: dict[str, Any] = {**STORES, "redis-cluster": redis_cluster_nodes}


@pytest.fixture(scope="session", params=_EVERY)
def online_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a store of each engine, for tests that need no brokers."""
    with _EVERY[request.param](tmp_path_factory.mktemp(request.param)) as store:
        yield store.url


@pytest.fixture(scope="module", autouse=True)
def _as_found() -> Iterator[None]:
    """Give each module a shared cluster that is up; release the clients and delete the topics that its tests left.

    A test that kills brokers may fail before it has started them again. 600 topics of 6 partitions cost three idle
    brokers a third of a core, and 90 s of recovery after a kill. 190 clients that nobody closed are 900 threads, and
    all of them try to connect while the brokers of a later test start.
    """
    for process in _in_use[0].endpoints.processes.values() if _in_use else ():
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)  # a failed test may have left it stopped
    if _in_use and not all(_in_use[0].endpoints.alive(name) for name in _in_use[0].endpoints.processes):
        local_cluster.up(_in_use[0].root)
    yield
    close_changelogs()
    gc.collect()
    if _in_use:
        delete_topics(_in_use[0].endpoints.bootstrap)


@pytest.fixture(scope="session")
def spark(leftfold_spark: Any) -> Any:
    """The shared Spark session, for tests that do not kill it."""
    return leftfold_spark


@pytest.fixture
def near_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the slack of the clocks to half a second, so that tiles close sooner: all brokers share one clock here."""
    monkeypatch.setattr(watermark, "CLOCK_SLACK", 500_000)
