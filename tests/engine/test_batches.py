"""Larger batches by a declared rate, in more tasks than the topic has partitions: the same values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leftfold.declare import batches
from tests.engine.conftest import Cluster
from tests.engine.effects import BOTH, Project

CORES, PER_TASK = 4, 300
PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def four_cores(spark: Any) -> Iterator[Any]:
    """A session whose views have four partitions of state, however many cores the machine has."""
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, CORES)
    yield spark
    spark.conf.set(PARTITIONS, before)


@pytest.mark.parametrize(("rate", "sizes"), [("1k/s", [4_000, 2_000]), ("1/s", [1_800] * 3 + [600])])
def test_batches_of_a_declared_rate_equal_the_log(
    cluster: Cluster, tmp_path: Path, four_cores: Any, monkeypatch: pytest.MonkeyPatch, rate: str, sizes: list[int]
) -> None:
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", PER_TASK)
    streams = BOTH.replace("partitions=6,", f'partitions=6, rate="{rate}",')
    project = Project(cluster.endpoints, tmp_path / "payments", streams)
    project.send(sum(sizes))
    done = project.run(four_cores)
    project.check(done.build)
    assert done.build is not None
    read = [sum(end - start for start, end in r.ranges["payments"].values()) for r in project.receipts(done.build)]
    assert read == pytest.approx(sizes, abs=12)  # Spark rounds the share of each partition down
