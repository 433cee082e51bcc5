"""Receipts, and what a start makes of receipts, checkpoint and stores that disagree."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka.admin import AdminClient

import leftfold
from leftfold.declare import batches
from leftfold.run.view import RunningView
from leftfold.spark.checkpoint import drop_foreign_snapshots
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.crashes import unload_state
from tests.engine.driving import run_until_caught_up
from tests.engine.effects import BOTH, Project, payments
from tests.engine.log import delete_before


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Project:
    return Project(cluster.endpoints, tmp_path / "payments")


def test_receipts_tile_the_log(project: Project, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", 300)
    project.send(6_000)
    first = project.run(spark)
    project.check(first.build)
    project.send(500)
    again = project.run(spark)
    assert again.build == first.build
    project.check(again.build)
    assert again.build is not None
    receipts = project.receipts(again.build)
    assert len(receipts) > 3
    assert all(set(r.applied) == {"online", "changelog"} for r in receipts)
    assert all(r.digest for r in receipts)


@pytest.mark.parametrize("how", ["flushed", pytest.param("restored", marks=pytest.mark.nightly)])
def test_a_store_that_lost_data_is_repaired(project: Project, spark: Any, how: str) -> None:
    project.send(3_000)
    with project.app.producer("payments") as producer:  # a schema that no registry knows, met again by the repair
        producer.send_encoded(b"a1", b"\0" + (9_999).to_bytes(4) + b"x")
        # What is refused as from the future moves no read, so a repair reaches back as far as before it.
        producer.send_dict(next(payments(1, random.Random(), 9_999)) | {"at": datetime.now(UTC) + timedelta(days=365)})
    first = project.run(spark)
    client = redis.Redis.from_url(project.endpoints.redis_url)
    mine = f"lf:{project.app.profile.namespace}:*"
    old: dict[bytes, Any] = {key: client.dump(key) for key in client.scan_iter(mine)} if how == "restored" else {}
    project.send(2_000)
    project.run(spark)
    for key in client.scan_iter(mine):
        client.delete(key)
    for key, value in old.items():
        client.restore(key, 0, value)
    again = project.run(spark)
    assert again.build == first.build
    assert again.repairs == 1
    project.check(again.build)
    assert project.app.get("account_activity", account="a1").found
    project.send(1_000)
    project.check(project.run(spark).build)


def state_files(project: Project, ending: str) -> list[Path]:
    return sorted(Path(project.app.checkpoints).glob(f"*/*/state/0/*/*{ending}"))


@pytest.mark.nightly
def test_a_snapshot_that_another_run_left_goes_at_the_start(project: Project, spark: Any) -> None:
    """Spark would delete what is older than it, and then lack what the committed batches build on."""
    for _ in range(3):
        project.send(500)
        project.run(spark)
    made = state_files(project, ".changelog")
    mine = made[-1].with_suffix(".zip")  # as if Spark had made one of a state that counts
    dead = made[-1].with_name(f"{made[-1].name.partition('_')[0]}_{uuid.uuid4()}.zip")
    beyond = made[-1].with_name(f"99_{uuid.uuid4()}.zip")
    for file in (mine, dead, beyond):
        file.write_bytes(b"")
        file.with_name(f"{file.name}.crc").write_bytes(b"")
    (view,) = project.app.supervisor().views
    view.prepare(spark)
    drop_foreign_snapshots(spark, view.checkpoint, committed=2)
    assert state_files(project, ".zip") == [mine]
    assert state_files(project, ".zip.crc") == [mine.with_name(f"{mine.name}.crc")]
    assert state_files(project, ".changelog") == made
    mine.unlink()
    project.send(500)
    project.check(project.run(spark).build)


def test_state_that_is_gone_is_told_with_the_way_out(project: Project, spark: Any) -> None:
    project.send(500)
    project.run(spark)
    unload_state(spark)
    for file in state_files(project, ".changelog"):
        file.unlink()
    project.send(500)
    refused = project.run(spark)
    assert refused.error is not None
    assert refused.error.code == "state-unreadable"
    anew = project.app.supervisor(fresh=["account_activity"], until_caught_up=True)
    view, *_ = anew.run(lambda _: None, session=spark)
    assert view.error is None
    project.check(view.build)


def test_a_changelog_that_was_made_again_is_filled(project: Project, spark: Any) -> None:
    project.send(3_000)
    project.run(spark)
    admin = AdminClient({"bootstrap.servers": project.endpoints.bootstrap})
    name = project.changelog
    admin.delete_topics([name])[name].result()
    projects.await_true(lambda: name not in project.app.log[0].partitions([name]), timeout=240, what="deletion")
    projects.apply(project.app)
    again = project.run(spark)
    assert again.repairs == 1
    project.check(again.build)


def test_a_restored_checkpoint_is_refused(project: Project, spark: Any, tmp_path: Path) -> None:
    project.send(2_000)
    project.run(spark)
    checkpoints, backup = Path(project.app.checkpoints), tmp_path / "backup"
    shutil.copytree(checkpoints, backup)
    project.send(2_000)
    project.check(project.run(spark).build)
    shutil.rmtree(checkpoints)
    shutil.copytree(backup, checkpoints)
    refused = project.run(spark)
    assert refused.error is not None
    assert refused.error.code == "checkpoint-restored"
    client = redis.Redis.from_url(project.endpoints.redis_url)
    client.flushdb()  # also when the store would not tell
    refused = project.run(spark)
    assert refused.error is not None
    assert refused.error.code == "checkpoint-restored"


def test_a_deleted_checkpoint_is_a_new_build(project: Project, spark: Any) -> None:
    project.send(2_000)
    first = project.run(spark)
    shutil.rmtree(project.app.checkpoints)
    second = project.run(spark)
    assert second.build != first.build
    project.check(second.build)


def test_a_topic_that_was_made_again_is_refused(project: Project, spark: Any) -> None:
    project.send(2_000)
    project.run(spark)
    admin = AdminClient({"bootstrap.servers": project.endpoints.bootstrap})
    admin.delete_topics([project.topic])[project.topic].result()
    there = project.app.log[0]
    projects.await_true(lambda: project.topic not in there.partitions([project.topic]), timeout=240, what="deletion")
    projects.apply(project.app)
    project.send(4_000)
    refused = project.run(spark)
    assert refused.error is not None
    assert refused.error.code == "topic-recreated"


def test_a_gap_is_named_per_partition(project: Project, spark: Any) -> None:
    project.send(2_000)
    project.run(spark)
    read = project.app.log[0].end_offsets(project.topic, 6)
    project.send(4_000)
    ends = project.app.log[0].end_offsets(project.topic, 6)
    busiest = max(ends, key=lambda p: ends[p] - read[p])
    cut = read[busiest] + (ends[busiest] - read[busiest]) // 2
    delete_before(project.endpoints.bootstrap, project.topic, {busiest: cut})
    refused = project.run(spark)
    assert refused.error is not None
    assert refused.error.code == "log-overtaken"
    gap = f"payments/{busiest}: {read[busiest]} to {cut - 1} ({cut - read[busiest]:,})"
    assert gap in refused.error.what
    assert leftfold.RunError is type(refused.error)


def followed(view: RunningView, until: Callable[[], bool], what: str) -> None:
    """Do what a supervisor's loop does until something holds."""

    def holds() -> bool:
        view.poll()
        assert view.progress.state != "failed", view.progress.error
        return until()

    projects.await_true(holds, timeout=240, what=what)


def _repaired(view: RunningView, times: int, applied: Callable[[], bool]) -> bool:
    return view.progress.repairs == times and applied()


@pytest.mark.nightly
def test_a_store_is_emptied_while_its_view_runs(project: Project, spark: Any) -> None:
    project.send(3_000)
    (view,) = project.app.supervisor().views
    view.start(spark, until_caught_up=False)

    def applied() -> bool:
        return sum(view.progress.records().values()) == project.sent and view.progress.lag == 0

    followed(view, applied, "the first records")
    client = redis.Redis.from_url(project.endpoints.redis_url)
    mine = f"lf:{project.app.profile.namespace}:*"
    old: dict[bytes, Any] = {key: client.dump(key) for key in client.scan_iter(mine)}
    for number, lost in enumerate(("emptied", "emptied while nothing comes", "restored from an old dump"), 1):
        if lost != "emptied while nothing comes":
            project.send(1_000)
        followed(view, applied, "records before the loss")
        for key in client.scan_iter(mine):
            client.delete(key)
        if lost == "restored from an old dump":
            for key, value in old.items():
                client.restore(key, 0, value)
        started = time.monotonic()
        if lost == "emptied":
            project.send(1_000)
        repaired = partial(_repaired, view, number, applied)
        followed(view, repaired, f"the repair of a store {lost}")
        print(f"{lost}: whole again after {time.monotonic() - started:.1f} s")
        project.check(view.progress.build)
    view.stop()
    view.wait()
    assert view.progress.error is None


def test_a_view_outlasts_its_store(project: Project, spark: Any, cluster: Cluster) -> None:
    project.send(2_000)
    (view,) = project.app.supervisor().views
    view.start(spark, until_caught_up=False)
    followed(view, lambda: view.progress.lag == 0, "the first records")
    os.kill(cluster.endpoints.processes["redis"].pid, signal.SIGKILL)
    project.send(1_000)
    followed(view, lambda: view.progress.state == "waiting", "a failure")
    assert view.progress.error is not None
    assert view.progress.error.code == "store-unreachable"
    cluster.cluster.up(cluster.root)
    followed(view, lambda: sum(view.progress.records().values()) == 3_000, "the rest")
    assert view.progress.restarts > 0
    view.stop()
    view.wait()
    assert view.progress.error is None
    project.check(view.progress.build)


@pytest.mark.nightly
def test_a_definition_that_goes_and_comes_back(project: Project, spark: Any) -> None:
    other = BOTH.replace('payments_1h = lf.count("1h")', 'payments_1h = lf.count("1h", where=Payment.points > 3)')
    project.send(2_000)
    first = project.run(spark)
    namespace = project.app.profile.namespace
    changed = projects.make(project.app.root, project.endpoints, namespace, other)
    (second,) = run_until_caught_up(changed, spark)
    assert second.error is None
    assert second.build != first.build
    assert second.note is not None
    project.send(2_000)
    back = projects.make(project.app.root, project.endpoints, namespace, BOTH)
    (third,) = run_until_caught_up(back, spark)
    assert third.error is None
    assert third.build == first.build, "its checkpoint is still there"
    project.check(third.build)
