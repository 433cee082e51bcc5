"""The lake on real engines: every record of the changelog once, whatever became of the checkpoint."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from leftfold.kafka import changelog as module
from leftfold.kafka.changelog import ChangelogTopic, write
from leftfold.spark.sinks import delta as commits
from leftfold.spark.sinks import lake
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.test_changelog import await_ended, made, read, row


@dataclass
class Fed:
    """A changelog, and the lake that is fed from it."""

    changelog: ChangelogTopic
    spark: Any
    directory: Path
    batches: int = field(default=0)

    @property
    def table(self) -> str:
        return str(self.directory / "lake" / "activity")

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def log(self, batches: int = 1) -> None:
        """Batches whose rows overlap: entities 0 to 9 in each, one of them deleted."""
        for _ in range(batches):
            rows = [row(f"e/{n}", self.batches, n) for n in range(9)] + [("e/9", "60:1", f"[100,{self.batches}]")]
            write(self.changelog, 0, self.batches, rows)
            self.batches += 1
        await_ended(self.changelog)

    def start(self, *, until_caught_up: bool = True, checkpoint: Path | None = None) -> Any:
        return lake.start_lake(
            self.spark,
            kafka=self.changelog.kafka,
            topic=self.changelog.topic,
            view="activity",
            table=self.table,
            checkpoint=str(checkpoint or self.checkpoint),
            every_s=1,
            until_caught_up=until_caught_up,
        )

    def feed(self) -> str | None:
        """Until caught up; returns why it stopped, if it did."""
        query = self.start()
        query.wait(300)
        assert not query.active
        failure: str | None = query.failure()
        return failure

    def expect_all(self) -> None:
        """Every record of the changelog, once, and its newest state."""
        rows = self.spark.read.format("delta").load(self.table).collect()
        logged = Counter((k, v, int(h["batch"])) for k, v, h in read(self.changelog))
        assert Counter((f"{r.build}/{r.field}/{r.entity}", r.value, r.batch) for r in rows) == logged
        assert len({(r.changelog_partition, r.changelog_offset) for r in rows}) == len(rows)
        assert all((r.deleted, r.position) == (r.value is None, 100) for r in rows)
        now = {r.entity: r.value for r in lake.lake_rows(self.spark, self.table).collect()}
        assert now == {f"e/{n}": f"[100,{self.batches - 1},{n}]" for n in range(9)}


@pytest.fixture
def fed(cluster: Cluster, spark: Any, tmp_path: Path) -> Any:
    fed = Fed(made(cluster), spark, tmp_path)
    fed.log(3)
    yield fed
    module.close()


def test_rows_equal_the_changelog(fed: Fed) -> None:
    assert fed.feed() is None
    fed.expect_all()
    fed.log(2)
    assert fed.feed() is None
    assert fed.feed() is None  # nothing new
    fed.expect_all()


@pytest.mark.nightly
def test_a_range_without_records_moves_the_end_too(fed: Fed) -> None:
    assert fed.feed() is None

    def failing() -> Any:
        for n in range(5_000):
            yield row(f"x{n}", fed.batches, n)
        raise ValueError("rows")

    with pytest.raises(ValueError, match="rows"):
        write(fed.changelog, 0, fed.batches, failing())
    await_ended(fed.changelog)
    assert fed.feed() is None
    fed.log()
    assert fed.feed() is None
    fed.expect_all()


def test_killed_between_the_two_commits(fed: Fed) -> None:
    """Delta has the batch, Spark does not know: the batch runs again and is left out."""
    append = lake._Feed._append

    def killed(feed: Any, *arguments: Any) -> None:
        append(feed, *arguments)
        raise RuntimeError("killed here")

    with mock.patch.object(lake._Feed, "_append", killed):
        assert "killed here" in (fed.feed() or "")
    fed.expect_all()
    fed.log()
    assert fed.feed() is None
    fed.expect_all()


@pytest.mark.nightly
def test_a_deleted_checkpoint(fed: Fed) -> None:
    assert fed.feed() is None
    shutil.rmtree(fed.checkpoint)
    fed.log(2)
    assert fed.feed() is None
    fed.expect_all()


@pytest.mark.nightly
def test_a_checkpoint_of_an_old_backup(fed: Fed) -> None:
    assert fed.feed() is None
    shutil.copytree(fed.checkpoint, fed.directory / "backup")
    for _ in range(2):
        fed.log()
        assert fed.feed() is None
    shutil.rmtree(fed.checkpoint)
    (fed.directory / "backup").rename(fed.checkpoint)
    fed.log()
    assert fed.feed() is None
    fed.expect_all()
    assert len(list(fed.directory.glob("checkpoint.*"))) == 1  # the old one, set aside


@pytest.mark.nightly
def test_a_deleted_table_is_filled_again(fed: Fed) -> None:
    assert fed.feed() is None
    shutil.rmtree(fed.table)
    fed.log()
    assert fed.feed() is None
    fed.expect_all()


@pytest.mark.nightly
def test_commits_of_others_do_not_hide_the_end(fed: Fed) -> None:
    assert fed.feed() is None
    fed.spark.sql(f"OPTIMIZE delta.`{fed.table}`").collect()
    fed.log()
    assert fed.feed() is None
    fed.expect_all()
    fed.spark.sql(f"OPTIMIZE delta.`{fed.table}`").collect()
    found = lake.position(fed.spark, fed.table)
    with mock.patch.object(commits, "_LOOK_BACK", 1):  # as if they were many
        assert lake.position(fed.spark, fed.table) == found
    assert lake._position_of_rows(fed.spark, fed.table, 0).ends.keys() == found.ends.keys()


@pytest.mark.nightly
def test_of_two_queries_one_is_refused(fed: Fed) -> None:
    first = fed.start(until_caught_up=False)
    try:
        projects.await_true(
            lambda: lake.position(fed.spark, fed.table).sequence >= 0, timeout=240, what="the first commit"
        )
        second = fed.start(until_caught_up=False, checkpoint=fed.directory / "other")
        fed.log()
        projects.await_true(lambda: not (first.active and second.active), timeout=240, what="one of them to stop")
        failures = [q.failure() for q in (first, second) if not q.active]
        assert any(word in (failures[0] or "") for word in ("lake-taken-over", "ConcurrentTransaction"))
    finally:
        first._query.stop()
        second._query.stop()
    assert fed.feed() is None
    fed.expect_all()


def test_two_that_found_the_same_end_commit_once(fed: Fed) -> None:
    """The race itself: both have read the table's end before either commits."""
    feed = fed.start(until_caught_up=True)
    feed.wait(300)
    end = lake.position(fed.spark, fed.table)
    fed.log()
    records = (
        fed.spark.read.format("kafka")
        .options(**fed.changelog.kafka.for_spark())
        .option("subscribe", fed.changelog.topic)
        .option("startingOffsets", json.dumps({fed.changelog.topic: {str(p): o for p, o in end.ends.items()}}))
        .option("includeHeaders", "true")
        .load()
    )
    ends = {p: o + 100 for p, o in end.ends.items()}
    both = threading.Barrier(2)
    failures: list[str] = []

    def append(writer: str) -> None:
        mine = lake._Feed(fed.spark, "activity", fed.changelog.topic, fed.table, str(fed.checkpoint), writer)
        both.wait()
        try:
            mine._append(records, end.ends, lake.LakePosition(end.sequence + 1, ends, writer))
        except Exception as error:  # noqa: BLE001 # Delta's or ours
            failures.append(str(error))

    threads = [threading.Thread(target=append, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 1, failures
    assert "lake-taken-over" in failures[0] or "CONCURRENT_TRANSACTION" in failures[0]
    assert lake.position(fed.spark, fed.table).sequence == end.sequence + 1
    fed.expect_all()
