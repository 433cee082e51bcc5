"""Training sets, replays and comparisons made by Arrow and by Spark, of generated projects: all values are the same.

`make engine` makes one project, always the same; `make both-ways` 500, or as many as LEFTFOLD_BOTH_WAYS says, of a
random seed. Every third project has run its views, so that all three rules of time are compared.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import leftfold
from leftfold.fold.known import MODES, AsOf
from leftfold.training.by_arrow import ArrowSet
from leftfold.training.by_spark import SparkSet
from leftfold.training.options import TrainingOptions, vector_of
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.made_projects import MadeProject, changed, made_project

PROJECTS = int(os.environ.get("LEFTFOLD_BOTH_WAYS", "1"))
_DEFAULT_SEED = random.SystemRandom().randrange(10**6) if "LEFTFOLD_BOTH_WAYS" in os.environ else 1
SEED = int(os.environ.get("LEFTFOLD_SEED", _DEFAULT_SEED))

pytestmark = pytest.mark.timeout(300 + 120 * PROJECTS)


def by_number(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: int(row["number"]))


def compared(made: MadeProject, modes: tuple[AsOf, ...]) -> tuple[int, list[str]]:
    """Return the number of values that were compared, and those that differ."""
    app, values, wrong = made.app, 0, []
    vector = vector_of(made.vector, app.catalog)
    for as_of in modes:
        options, deployment = TrainingOptions(made.time, as_of=as_of), app._deployment
        arrow = ArrowSet(made.labels, vector, options, deployment)
        spark = SparkSet(made.labels, vector, options, deployment)
        try:
            arrow.check()
            ours, theirs = by_number(arrow.table()), by_number(spark.frame().toArrow())
            assert len(ours) == len(theirs) == made.labels.num_rows
            for mine, other in zip(ours, theirs, strict=True):
                assert list(mine) == list(other)
                for name, value in mine.items():
                    values += 1
                    if value != other[name] or type(value) is not type(other[name]):
                        wrong.append(f"{as_of} {name} of {mine['person']} at {mine['moment']}: {value!r}, not "
                                     f"{other[name]!r}")  # fmt: skip
            assert arrow.digest() == spark.digest() or wrong
            if as_of == modes[-1]:
                assert arrow.report() == spark.report() or wrong
        finally:
            arrow.release()
            spark.release()
    return values, wrong


def staged(made: MadeProject, root: Path, seed: int) -> leftfold.App:
    """Give the view One two builds in the store: as it is declared, and changed. Return the project with the second."""
    other = projects.make(root, made.endpoints, made.app.profile.namespace, changed(made.streams, seed))
    projects.put_build(made.app, "one", "active")
    projects.put_build(other, "one", "staged")
    return other


def differ_in_comparison(made: MadeProject, root: Path, seed: int, spark: Any) -> tuple[int, list[str]]:
    """Compare two builds by both ways. Return how many values differ between them, and what is not the same."""
    app = staged(made, root, seed)
    ways: tuple[dict[str, Any], ...] = ({"engine": "arrow"}, {"session": spark})
    at = datetime.now(UTC) - timedelta(hours=random.Random(seed).choice((0, 2, 6)))
    ours, theirs = (app.compare("one", at=at, top=3, **way).differences for way in ways)
    assert ours.entities == theirs.entities > 0
    differing = sum(one.different + one.only_left + one.only_right for one in ours.features)
    return differing, [f"{a}, not {b}" for a, b in zip(ours.features, theirs.features, strict=True) if a != b]


def test_every_value_is_the_same(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    total = found = 0
    for number in range(PROJECTS):
        seed = SEED + number
        made = made_project(tmp_path / str(seed), cluster.endpoints, seed)
        modes: tuple[AsOf, ...] = MODES if number % 3 == 0 else MODES[:2]
        if "served" in modes:
            for progress in run_until_caught_up(made.app, spark):
                assert progress.error is None, progress.error
        values, wrong = compared(made, modes)
        total += values
        for topic in ("sales", "more"):  # by Arrow, unless there is a text that is not UTF-8
            manifest = made.app.replay(topic).write(str(tmp_path / f"{seed}-{topic}"))
            made.app.replay(topic).again(manifest, engine="spark")
        differing, not_same = differ_in_comparison(made, tmp_path / f"{seed}-changed", seed, spark)
        wrong += not_same
        found += differing
        print(f"seed {seed}: {values:,} values by {', '.join(modes)}, {len(wrong)} differ")
        assert wrong[:5] == [], (
            f"LEFTFOLD_SEED={seed} LEFTFOLD_BOTH_WAYS=1\n{(made.app.root / 'streams.py').read_text()}"
        )
    assert found, "no comparison had anything to find"
    print(f"{PROJECTS} projects from seed {SEED}: {total:,} values, 0 differ")
