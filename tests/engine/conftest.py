"""One real cluster and one JVM for the whole run: those of the plugin that people's own tests use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leftfold.local import cluster as local_cluster
from leftfold.run import broom
from leftfold.testing import TestCluster


@dataclass(frozen=True)
class Cluster(TestCluster):
    """The shared cluster, and the functions that work on it."""

    cluster: ModuleType = local_cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def cluster(leftfold_cluster: TestCluster) -> Cluster:
    return Cluster(leftfold_cluster.root)


@pytest.fixture(scope="session")
def spark(leftfold_spark: Any) -> Any:
    """For all tests that do not kill it."""
    return leftfold_spark


@pytest.fixture
def near_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All brokers share one clock here: tiles may close half a second after their last record."""
    monkeypatch.setattr(broom, "CLOCK_SLACK", 500_000)
