"""A project whose online store is a Postgres."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import psycopg

from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.effects import Project
from tests.engine.using_a_store import use


def test_a_project_on_postgres(cluster: Cluster, postgres: str, tmp_path: Path, spark: Any) -> None:
    schema = f"s{uuid.uuid4().hex[:8]}"
    url = f"{postgres}&options=-csearch_path%3D{schema}"

    def empty() -> None:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"drop schema {schema} cascade".encode())

    use(Project(cluster.endpoints, tmp_path / "p", projects.PAYMENTS, seed=1, online=url), spark, empty)
