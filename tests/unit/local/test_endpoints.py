"""cluster.json: written whole, read back equal, and honest about a cluster that is not there."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from leftfold.errors import LocalError
from leftfold.local import endpoints, process
from leftfold.local.endpoints import Endpoints, Ports
from leftfold.local.process import Identity

PORTS = Ports(brokers=(1, 2, 3), controllers=(4, 5, 6), registry=7, redis=8)


def test_addresses() -> None:
    found = Endpoints("id", PORTS)
    assert found.bootstrap == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    assert found.registry_url == "http://127.0.0.1:7/apis/ccompat/v7"
    assert found.redis_url == "redis://127.0.0.1:8/0"


def test_written_and_read_back(tmp_path: Path) -> None:
    assert endpoints.last(tmp_path) is None
    written = Endpoints("id", PORTS).having("redis", Identity(1, "then"))
    endpoints.write(tmp_path, written)
    assert endpoints.last(tmp_path) == written
    assert [path.name for path in endpoints.state_dir(tmp_path).iterdir()] == ["cluster.json"]
    document = json.loads((endpoints.state_dir(tmp_path) / "cluster.json").read_text())
    assert document["version"] == 1
    assert document["bootstrap"] == written.bootstrap


def test_a_spark_cluster_is_written_down(tmp_path: Path) -> None:
    assert Endpoints("id", PORTS).spark_url is None
    written = Endpoints("id", replace(PORTS, spark_master=(9, 10), spark_workers=((11, 12), (13, 14))))
    assert written.spark_url == "spark://127.0.0.1:9"
    endpoints.write(tmp_path, written)
    assert endpoints.last(tmp_path) == written


def test_a_redis_cluster_is_written_down_and_is_the_online_store(tmp_path: Path) -> None:
    assert Endpoints("id", PORTS).redis_cluster_url is None
    assert Endpoints("id", PORTS).online_url == "redis://127.0.0.1:8/0"
    written = Endpoints("id", replace(PORTS, redis_cluster=((9, 10), (11, 12))))
    assert written.online_url == written.redis_cluster_url == "redis+cluster://127.0.0.1:9,127.0.0.1:11"
    endpoints.write(tmp_path, written)
    assert endpoints.last(tmp_path) == written


def test_a_postgres_is_written_down(tmp_path: Path) -> None:
    assert Endpoints("id", PORTS).postgres_url is None
    endpoints.write(tmp_path, Endpoints("id", replace(PORTS, postgres=9)))
    found = endpoints.last(tmp_path)
    assert found is not None
    place = f"{tmp_path}/.leftfold/local/postgres/password"
    assert found.postgres_url == f"postgresql://leftfold@127.0.0.1:9/postgres?passfile={place}"


def test_a_file_from_before_there_were_spark_clusters(tmp_path: Path) -> None:
    endpoints.write(tmp_path, Endpoints("id", PORTS))
    path = endpoints.state_dir(tmp_path) / "cluster.json"
    document = json.loads(path.read_text())
    del document["spark"], document["ports"]["spark_master"], document["ports"]["spark_workers"]
    del document["postgres"], document["ports"]["postgres"], document["passfile"]
    del document["redis_cluster"], document["ports"]["redis_cluster"]
    path.write_text(json.dumps(document))
    assert endpoints.last(tmp_path) == Endpoints("id", PORTS)


def test_down_unless_something_runs(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="not running") as caught:
        endpoints.read(tmp_path)
    assert caught.value.why == "it was never started here"

    endpoints.write(tmp_path, Endpoints("id", PORTS, {"redis": Identity(os.getpid(), "another time")}))
    with pytest.raises(LocalError) as caught:
        endpoints.read(tmp_path)
    assert caught.value.why == "none of its processes is alive"

    degraded = Endpoints(
        "id", PORTS, {"redis": process.identify(os.getpid()), "registry": Identity(os.getpid(), "another time")}
    )
    endpoints.write(tmp_path, degraded)
    assert endpoints.read(tmp_path) == degraded
