"""One real cluster for the whole run: three brokers, a registry, a Redis, in a temporary project."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leftfold.local import cluster as local_cluster
from leftfold.local import endpoints as local_endpoints
from leftfold.local.endpoints import Endpoints
from leftfold.settings import Spark
from leftfold.spark.session import build_session

PROJECT = '[project]\nname = "engine"\ndeclarations = []\n'


@dataclass(frozen=True)
class Cluster:
    """The project directory, where its cluster listens now, and the functions that work on it."""

    root: Path
    cluster: ModuleType = local_cluster

    @property
    def endpoints(self) -> Endpoints:
        """Read anew each time: a test may have restarted part of it."""
        return local_endpoints.read(self.root)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("engine")
    (root / "leftfold.toml").write_text(PROJECT)
    try:
        local_cluster.up(root, brokers=3)
        yield Cluster(root)
    finally:
        local_cluster.down(root)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One JVM for all tests that do not kill it."""
    session = build_session(
        Spark(), application="engine tests", log_file=tmp_path_factory.mktemp("spark") / "spark.log"
    )
    yield session
    session.stop()
