"""Rebuild: history by a scan and a stream equals an independent recomputation, and goes on as any build does.

`make engine` lets it die at two steps, `make rebuilds` at each of eight.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.errors import SparkRuntimeException

from leftfold.errors import RunError
from leftfold.rebuild.rebuild import STEPS
from leftfold.run.batch import STEPS as VIEW_STEPS
from leftfold.spark.cutover import FrozenHistory
from tests.engine import oracle
from tests.engine.conftest import Cluster
from tests.engine.crashes import DiedError
from tests.engine.driving import run_until_caught_up
from tests.engine.rebuilds import VIEW, Project, limited, looked, reached

FULL = os.environ.get("LEFTFOLD_REBUILDS") == "full"
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))


pytestmark = pytest.mark.usefixtures("near_clocks")


@pytest.mark.timeout(900)
def test_a_rebuild_equals_the_log_and_goes_on_as_any_build(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    print(f"seed {SEED}")
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(8)
    (live,) = run_until_caught_up(project.app, spark)
    assert live.error is None, live.error
    changed = project.declared(limited(50))

    rebuild = project.rebuild(changed)
    with project.sending():  # so that records lie around the cut, and past the ends
        project.send(2)
        done = rebuild.run(looked, session=spark)
    assert done.error is None, done.error
    assert done.build is not None
    past = rebuild.view.build.past
    assert past is not None
    (done,) = run_until_caught_up(changed, spark)
    assert done.build is not None
    tiles = project.check(done.build, 50)
    print(f"{tiles:,} tiles, {past.rows:,} of them by the scan")
    assert 300 < past.rows < tiles, "either the scan or the stream had nothing to do"
    assert changed.standings.of(VIEW).followed == live.build
    assert changed.standings.of(VIEW).staged == done.build

    # The same by a stream alone, as a build of its own.
    other = project.declared(limited(50))
    other.profile = other.profile.model_copy(update={"checkpoints": str(tmp_path / "others")})
    (streamed,) = run_until_caught_up(other, spark)
    assert streamed.error is None, streamed.error
    assert streamed.build not in (None, done.build)
    logged = project.logged()
    both = [reached(project.tiles(str(build)), logged) for build in (streamed.build, done.build)]
    assert oracle.differences(*both) == []

    # An ordinary run goes on with it, and does not take the readers over.
    followed = changed.standings.of(VIEW).followed
    project.send(2)
    (on,) = run_until_caught_up(changed, spark)
    assert (on.error, on.build) == (None, done.build)
    project.check(on.build, 50)
    assert changed.standings.of(VIEW).followed == followed

    # Its store is repaired like any other.
    client = redis.Redis.from_url(project.endpoints.redis_url)
    for key in client.scan_iter(f"lf:{project.namespace}:*:{VIEW}:{done.build}*"):
        client.delete(key)
    project.send(1)
    (repaired,) = run_until_caught_up(changed, spark)
    assert (repaired.error, repaired.build, repaired.repairs) == (None, done.build, 1)
    project.check(repaired.build, 50)


@pytest.mark.timeout(900)
def test_a_death_at_every_step(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    """Whatever a death leaves, the next rebuild makes a whole build of it, and readers never see half of one."""
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(4)
    (live,) = run_until_caught_up(project.app, spark)
    project.send(2)
    changed = project.declared(limited(50))
    builds = set()
    for step in (*STEPS, *(f"batch 0: {step}" for step in VIEW_STEPS)) if FULL else ("scanned", "batch 0: online rows"):
        rebuild = project.rebuild(changed)

        def die(reached: str, *_: object, step: str = step) -> None:
            if step.removeprefix("batch 0: ") == reached:
                raise DiedError(step)

        if step in STEPS:
            rebuild.at_step = die
            with pytest.raises(DiedError):
                rebuild.run(looked, session=spark)
        else:
            rebuild.view.at_step = die
            rebuild.view._failed = rebuild.view._give_up  # type: ignore[method-assign]
            assert rebuild.run(looked, session=spark).state == "failed"
        builds.add(rebuild.progress.build)
        standing = changed.standings.of(VIEW)
        assert standing.followed == live.build
        if step.endswith(("frozen", "scanned", "created", "begun", "rows")):  # the online store lacks something yet
            with pytest.raises(RunError, match=r"not-caught-up|nothing-staged"):
                changed.promote(VIEW, behind=0)
    done = project.rebuild(changed).run(looked, session=spark)
    assert done.error is None, done.error
    assert builds <= {None, done.build}, "a death made another build of it"
    project.check(done.build, 50)
    assert changed.promote(VIEW).followed == done.build


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_store_that_loses_history_before_the_first_batch(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(3)
    run_until_caught_up(project.app, spark)
    changed = project.declared(limited(50))
    rebuild = project.rebuild(changed)

    def empty(step: str) -> None:
        if step == "created":
            client = redis.Redis.from_url(project.endpoints.redis_url)
            client.delete(*client.scan_iter(f"lf:{project.namespace}:*:{VIEW}:{rebuild.progress.build}*"))

    rebuild.at_step = empty
    lost = rebuild.run(looked, session=spark)
    assert lost.error is not None
    assert lost.error.code == "history-lost"
    again = project.rebuild(changed, restart=True).run(looked, session=spark)
    assert again.error is None, again.error
    project.check(again.build, 50)


@pytest.mark.parametrize("topics", [("a",), ("a", "b")])
def test_every_row_is_made_by_one_of_both(spark: Any, topics: tuple[str, ...]) -> None:
    """Tiles by the scan or by the stream, ledger rows before the ends by the scan, and after them by the stream."""
    chance = random.Random(SEED)
    ends = {"a": {0: 50, 1: 7}, "b": {0: 20}}
    cuts = {10: 1_000, 60: 960}
    frozen = FrozenHistory("id", {}, {}, {t: ends[t] for t in topics}, cuts, oldest={10: 100, 60: 60})
    rows = [
        (s, chance.randrange(90, 1_100), place << 20 | partition, chance.randrange(60))
        for s in (-1, 10, 60)
        for place, topic in enumerate(topics)
        for partition in (*ends[topic], 5)  # one that is younger than the ends
        for _ in range(200)
    ]
    # Past the ends no record lies in a closed tile.
    rows = [r for r in rows if r[0] < 0 or r[1] >= cuts[r[0]] or r[3] < end_of(ends, topics, r[2])]
    frame = spark.createDataFrame(rows, "s long, event_us long, slot int, offset long")
    found = frame.select("*", frozen.closed().alias("scan"), frozen.open(topics).alias("stream")).collect()
    for s, event, slot, offset, scan, stream in found:
        before = offset < end_of(ends, topics, slot)
        if s < 0:
            assert scan
            assert stream is not before
        else:
            assert stream is (event >= cuts[s])
            assert scan is (event < cuts[s] and event >= frozen.oldest[s])
    late = spark.createDataFrame([(10, 500, 0, 50)], frame.schema)
    with pytest.raises(SparkRuntimeException, match="leftfold-history-not-closed"):
        late.where(frozen.open(topics)).collect()


def end_of(ends: dict[str, dict[int, int]], topics: tuple[str, ...], slot: int) -> int:
    return ends[topics[slot >> 20]].get(slot & (1 << 20) - 1, 0)
