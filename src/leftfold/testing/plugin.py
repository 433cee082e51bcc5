"""The pytest plugin: fixtures that start real engines on first use, and end them at the end of the run.

A suite that uses none of these fixtures pays only for the import of this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession
    from leftfold.testing.apps import AppFactory
    from leftfold.testing.cluster import TestCluster


@pytest.fixture(scope="session")
def leftfold_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """Three real brokers, a schema registry and a Redis, shared by all tests of the run."""
    from leftfold.testing.cluster import started

    with started(tmp_path_factory.mktemp("leftfold")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def leftfold_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session, shared by all tests of the run."""
    from leftfold.settings import Spark
    from leftfold.spark.session import build_session

    log_file = tmp_path_factory.mktemp("leftfold-spark") / "spark.log"
    session = build_session(Spark(), application="leftfold tests", log_file=log_file, lake=True)
    yield session
    session.stop()


@pytest.fixture
def leftfold_app(
    leftfold_cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AppFactory:
    """Makes apps on the shared cluster: `app = leftfold_app(path or declarations)`; `leftfold_app.run(app)`."""
    from leftfold.testing.apps import AppFactory

    def session() -> SparkSession:
        started: SparkSession = request.getfixturevalue("leftfold_spark")
        return started

    return AppFactory(leftfold_cluster.endpoints, tmp_path_factory.mktemp("leftfold-apps"), session)
