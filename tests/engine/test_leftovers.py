"""Builds that nobody needs are removed by the plan, and no others."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import redis

import leftfold
from leftfold.plan.steps import RemoveBuild
from tests.engine.conftest import Cluster
from tests.engine.crashes import DiedError
from tests.engine.driving import run_until_caught_up
from tests.engine.rebuilds import VIEW, Project, limited, looked

SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
pytestmark = pytest.mark.usefixtures("near_clocks")


@pytest.mark.timeout(900)
def test_builds_that_nobody_needs_are_removed(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(1)
    (first,) = run_until_caught_up(project.app, spark)
    second = project.declared(limited(50))
    staged = project.rebuild(second).run(looked, session=spark).build
    assert steps(second) == []
    second.promote(VIEW)
    assert steps(second) == [], "the one that readers left is kept"
    third = project.declared(limited(25))
    newer = project.rebuild(third).run(looked, session=spark).build
    third.promote(VIEW)
    assert steps(third) == [], "it is kept for as long as was said when readers left it"
    client = redis.Redis.from_url(project.endpoints.redis_url)
    client.hset(f"lf:{project.namespace}:left:{VIEW}", str(first.build), 1)  # long ago
    client.delete(f"lf:{project.namespace}:running:{VIEW}:{first.build}")  # who drove it has not said
    assert steps(third) == [first.build]
    rows = f"lf:{project.namespace}:row:{VIEW}:{first.build}:*"
    assert list(client.scan_iter(rows))
    client.set(f"lf:{project.namespace}:running:{VIEW}:{first.build}", 1)
    assert steps(third) == [], "a process runs it"
    client.delete(f"lf:{project.namespace}:running:{VIEW}:{first.build}")
    planned = third.plan()
    with patch("leftfold.run.leftovers.forget", side_effect=DiedError), pytest.raises(DiedError):
        list(third.apply(planned))
    assert steps(third) == [first.build], "a removal that died is not finished"
    list(third.apply(third.plan()))
    assert steps(third) == []
    assert not list(client.scan_iter(f"lf:{project.namespace}:*{first.build}*"))
    assert project.receipts(str(first.build)) == []
    left = {str(path.parent.name) for path in Path(third.checkpoints).glob(f"{VIEW}/*/metadata")}
    assert left == {str(build).partition("-")[0] for build in (staged, newer)}
    assert third.rollback(VIEW).followed == staged
    project.check(newer, 25)


def steps(app: leftfold.App) -> list[str]:
    return [step.build for step in app.plan().steps if isinstance(step, RemoveBuild)]
