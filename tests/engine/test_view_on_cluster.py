"""A view whose online store is a Redis Cluster: values, builds, and a server that loses acknowledged writes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leftfold.run import view as running_view
from tests.engine import oracle, projects, stores
from tests.engine.conftest import Cluster
from tests.engine.effects import VIEW, Project
from tests.engine.redis_clusters import RedisClusterNodes, redis_cluster_nodes
from tests.engine.using_a_store import use


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClusterNodes]:
    with redis_cluster_nodes(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.mark.parametrize(
    "by_executors", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["driver", "executors"]
)
def test_only_what_a_server_has_lost_is_computed_again(
    cluster: Cluster,
    nodes: RedisClusterNodes,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    by_executors: bool,
) -> None:
    """A wrong value in each row shows who has written it again. A test that has put it there may take it away, too."""
    monkeypatch.setattr(running_view, "_LOOK_AFTER_S", 0.5)
    project = Project(cluster.endpoints, tmp_path, projects.PAYMENTS, online=nodes.url)
    (view,) = project.app.supervisor().views
    view._by_executors = by_executors
    view.start(spark, until_caught_up=False)
    inside = stores.inside(nodes.url)

    def follow(until: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            view.poll()
            assert view.progress.state != "failed", view.progress.error
            return until()

        projects.await_true(holds, timeout=240, what=what)

    def tiles() -> dict[tuple[str, str], Any]:
        prefix = f"lf:{project.app.profile.namespace}:row:{VIEW}:{view.build.id}:"
        return oracle.read_store(nodes.url, prefix)

    def whole() -> bool:
        receipt = view.build.receipt
        counted = sum(row.records for row in receipt.ledger) if receipt else 0
        return counted == project.sent and not oracle.differences(project.log().slots(), tiles())

    try:
        project.send(1_000)
        follow(whole, "the first records")
        master = nodes.masters()[0]
        lost = nodes.buckets_of(master)
        replica = nodes.lag(master)
        project.send(500)
        follow(whole, "records that will be lost")
        at, right = view.build.writer.at, tiles()
        spoilt = {}
        for entity, field in right:
            value = inside.row(at, entity).get(field.encode())
            if value is not None and entity not in spoilt:  # else it is packed
                spoilt[entity] = (field, value)
                index, batch, *partials = json.loads(value)
                inside.fill(at, entity, {field.encode(): json.dumps([index, batch, 77, *partials[1:]]).encode()})
        assert {bucket(entity) in lost for entity in spoilt} == {True, False}
        nodes.fail_over(master, replica)
        follow(lambda: view.progress.repairs == 1 and view.progress.state == "running", "a repair")
        after = tiles()
        changed = {entity for entity, field in right if after[entity, field] != right[entity, field]}
        assert changed == {entity for entity in spoilt if bucket(entity) not in lost}
        for entity in changed:
            field, value = spoilt[entity]
            inside.fill(at, entity, {field.encode(): value})
        nodes.replace(master)
        project.send(200)
        follow(whole, "records after a repair")
        assert view.progress.repairs == 1
    finally:
        view.stop()
        view.wait()
    assert view.progress.error is None


def test_a_project_on_a_redis_cluster(cluster: Cluster, nodes: RedisClusterNodes, tmp_path: Path, spark: Any) -> None:
    def empty() -> None:
        for node in nodes.masters():
            node.client.flushall()

    use(Project(cluster.endpoints, tmp_path, projects.PAYMENTS, seed=1, online=nodes.url), spark, empty)


def bucket(entity: str) -> int:
    """As the protocol's page says it, without the code that is tested."""
    return zlib.crc32(entity.encode()) % 256
