"""Every step of a batch, and a death at it: nothing lost, nothing doubled, receipts that tile the log.

`make engine` runs each point once with a changelog, and those of the store on Postgres; `make crash-matrix` 20 times in
a warm JVM, and once each with a real death of the process and of its JVM. The seed is printed; LEFTFOLD_SEED repeats
it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leftfold.declare import batches
from leftfold.kafka import changelog as log_writer
from leftfold.run.view import RunningView
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.crashes import POINTS, dying, raise_died, unload_state
from tests.engine.effects import BOTH, Project
from tests.engine.log import delete_before

FULL = os.environ.get("LEFTFOLD_CRASHES") == "full"
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
REPETITIONS = 20 if FULL else 1
# What each store adds to the points of a batch.
ONLINE = (projects.PAYMENTS, POINTS[:4] + POINTS[-1:])
STORES = {
    "online": ONLINE,
    "changelog": (BOTH, POINTS),
    "postgres": (projects.PAYMENTS, ONLINE[1] if FULL else POINTS[1:4]),
    "redis-cluster": ONLINE,
}


def started(project: Project, spark: Any) -> RunningView:
    (view,) = project.app.supervisor(until_caught_up=True).views
    view.start(spark, until_caught_up=True)
    return view


def cases(points: tuple[str, ...], chance: random.Random) -> Iterator[tuple[str, int, int]]:
    """Batches of a few hundred records are written by the driver, larger ones by the executors: each half by both.

    In `make engine` a half is written by one of them, which the seed chooses.
    """
    for point in points:
        if point.startswith("half"):
            halves = [(100, 700), (20_000, 6_000)]
            for per_partition, records in halves if FULL else [chance.choice(halves)]:
                yield point, per_partition, records
        else:
            yield point, chance.choice([100, 20_000]), chance.choice([300, 700, 6_000])


def die(project: Project, spark: Any, point: str) -> None:
    """At this point, whatever passing trouble with brokers a run has on its way there: it starts again, as it would."""
    (view,) = project.app.supervisor(until_caught_up=True).views
    with dying(view, point, 0, raise_died):
        view.start(spark, until_caught_up=True)
        while view.running:
            if view.progress.state == "running":
                view.query.wait(1)
                if "DiedError" in (view.query.failure() or ""):
                    return
            else:
                time.sleep(0.2)
            view.poll()
    pytest.fail(f"{point}: {view.progress.state}, {view.progress.error}", pytrace=False)


@pytest.mark.parametrize(
    "store",
    [
        pytest.param("online", marks=pytest.mark.nightly),
        "changelog",
        "postgres",
        pytest.param("redis-cluster", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.timeout(7_200 if FULL else 900)
def test_a_death_at_every_step(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
) -> None:
    streams, points = STORES[store]
    chance = random.Random(SEED)
    online = request.getfixturevalue(store.replace("-", "_")) if store in ("postgres", "redis-cluster") else None
    project = Project(cluster.endpoints, tmp_path / store, streams, seed=SEED, online=online)
    deaths = tiles = 0
    build = None
    for repetition in range(REPETITIONS):
        for point, per_partition, records in cases(points, chance):
            monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", per_partition)
            project.send(records)
            die(project, spark, point)
            deaths += 1
            log_writer.close()  # as a new process would, it has no writers open and no state in memory
            unload_state(spark)
            view = started(project, spark)
            view.wait()
            assert view.progress.error is None, f"seed {SEED}, {point}, {repetition}: {view.progress.error}"
            assert build in (None, view.progress.build)
            build = view.progress.build
            tiles = project.check(build)
        print(f"{store}, repetition {repetition + 1}: {deaths} deaths, {tiles:,} tiles as the log says", flush=True)
    print(
        f"seed {SEED}, {store}: {deaths} deaths at {len(points)} points of a batch, {project.sent:,} records: "
        f"0 lost, 0 doubled effects in {tiles:,} tiles, checked after each; receipts tile the log"
    )


def test_a_changelog_that_is_cut_while_a_batch_is_to_run_again(
    cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair writes rows of the batch before; those of the batch that runs again must come after them."""
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", 10_000)
    project = Project(cluster.endpoints, tmp_path / "cut", BOTH, seed=SEED)
    project.send(1_000)
    started(project, spark).wait()
    project.send(1_000)
    die(project, spark, "changelog")
    admin = project.app.log[0]
    partitions = admin.partitions([project.changelog])[project.changelog]
    admin.set_configs(project.changelog, {"cleanup.policy": "compact,delete"})  # else nobody can delete its records
    delete_before(cluster.endpoints.bootstrap, project.changelog, admin.end_offsets(project.changelog, partitions))
    for point in ("changelog", None):  # a death in the middle of it changes nothing
        log_writer.close()
        unload_state(spark)
        if point is not None:
            die(project, spark, point)
    view = started(project, spark)
    view.wait()
    assert view.progress.repairs == 1
    project.check(view.progress.build)


@pytest.mark.nightly
@pytest.mark.timeout(7_200 if FULL else 900)
def test_a_real_death_at_every_step(cluster: Cluster, tmp_path: Path) -> None:
    project = Project(cluster.endpoints, tmp_path / "deaths", BOTH, seed=SEED)
    deaths = [(point, how) for point in POINTS for how in ("exit", "jvm")]
    chosen = deaths if FULL else random.Random(SEED).sample(deaths, 2)
    for point, how in chosen:
        project.send(4_000)
        command = [sys.executable, "-m", "tests.engine.crashes", str(project.app.root), point, "0", how]
        died = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert died.returncode != 0, f"{point}, {how}: {died.stdout[-500:]}"
    with projects.running(project.app.root, "--until-caught-up") as run:
        assert run.wait(300) == 0, run.explain()
        build = run.lines()[-1]["views"][0]["build"]
    tiles = project.check(build)
    print(
        f"seed {SEED}: {len(chosen)} real deaths ({', '.join(f'{p} by {h}' for p, h in chosen)}), "
        f"{project.sent:,} records: 0 of {tiles:,} tiles differ in either store; receipts tile the log"
    )
