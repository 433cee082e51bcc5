"""Training sets, reports, replays and comparisons made by Arrow and by Spark, of generated projects: all are the same.

`make engine` makes one project, always the same; `make both-ways` 500, or as many as LEFTFOLD_BOTH_WAYS says, of a
random seed. The seed of a project decides everything about it:

- Of every third project the views have run, so that all three rules of time are compared.
- Every fifth has an archive, which ends in the middle of the log. Arrow reads the whole log; then its head is deleted,
  and what Spark makes of archive and log must be the same. What Arrow must not make any more is refused, with a reason.
- In every fourth, Spark makes entities of more than 80 events from tiles, as in production those of more than 2,000.
- Every tenth is made as in production: with Spark's own settings, each set from its own read and its own plan. With so
  few records, Spark takes nearly all of its time to plan and to compile. So for the others it interprets expressions,
  and plans the sets and the report of a project together.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import leftfold
from leftfold.errors import RunError
from leftfold.fold.differences import Differences
from leftfold.fold.known import MODES, AsOf
from leftfold.spark.history import archive
from leftfold.spark.training import as_of as as_of_spark
from leftfold.spark.training.assemble import Assembled, cached
from leftfold.store.redis.client import connect
from leftfold.store.redis.names import Names
from leftfold.training.by_arrow import ArrowSet
from leftfold.training.by_spark import SparkSet
from leftfold.training.options import TrainingOptions, vector_of
from leftfold.training.report import Report
from leftfold.training.served import Served
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.log import delete_before, delete_topics
from tests.engine.made_projects import MadeProject, changed, made_project, with_archive

PROJECTS = int(os.environ.get("LEFTFOLD_BOTH_WAYS", "1"))
_DEFAULT_SEED = random.SystemRandom().randrange(10**6) if "LEFTFOLD_BOTH_WAYS" in os.environ else 1
SEED = int(os.environ.get("LEFTFOLD_SEED", _DEFAULT_SEED))
# Spark evaluates expressions as they are, instead of compiling Java that it writes for them.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

pytestmark = pytest.mark.timeout(900 + 120 * PROJECTS)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """What the seed of a project decides beside its declarations and records."""

    served: bool
    archived: bool
    tiles: bool
    production: bool

    @classmethod
    def of(cls, seed: int) -> Kind:
        return cls(served=seed % 3 == 1, archived=seed % 5 == 2, tiles=seed % 4 == 3, production=seed % 10 == 1)

    @property
    def modes(self) -> tuple[AsOf, ...]:
        return MODES if self.served else MODES[:2]

    def __str__(self) -> str:
        names = [name for name in ("served", "archived", "tiles", "production") if getattr(self, name)]
        return ", ".join(names) or "plain"

    @contextmanager
    def settings(self, spark: Any) -> Iterator[None]:
        changes = {} if self.production else INTERPRETED
        with pytest.MonkeyPatch.context() as patch:
            if self.tiles:
                patch.setattr(as_of_spark, "MANY_EVENTS", 80)
            for name, value in changes.items():
                spark.conf.set(name, value)
            try:
                yield
            finally:
                for name in changes:
                    spark.conf.unset(name)


# Training sets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sets:
    """What one way makes: rows by the number of their label and digests, by rule of time, and a report."""

    rows: Mapping[AsOf, Rows]
    digests: Mapping[AsOf, str]
    report: Report


class ReadOnce(ArrowSet):
    """A set that reads its records once, and is made of them by each rule of time in turn."""

    def by(self, as_of: AsOf) -> None:
        self.options = replace(self.options, as_of=as_of)
        self.__dict__.pop("_table", None)


class PlannedOnce(SparkSet):
    """A set that Spark reads and plans once, for all rules of time together, and keeps."""

    def by(self, as_of: AsOf) -> None:
        self.options = replace(self.options, as_of=as_of)
        self.__dict__.pop("_assembled", None)

    def release(self) -> None:
        if "_every" in self.__dict__:
            self.__dict__.pop("_every").wide.unpersist()
        super().release()

    def _assembled_for(self, modes: Sequence[AsOf], served: Mapping[str, Served]) -> Assembled:
        assert set(modes) <= set(self._every.features)
        return self._every

    @cached_property
    def _every(self) -> Assembled:
        served = self._served_anyway()
        every = super()._assembled_for(MODES if served else MODES[:2], served)
        return replace(every, wide=cached(every.wide))


def rows_of(made: ArrowSet | SparkSet) -> Rows:
    table: pa.Table = made.table() if isinstance(made, ArrowSet) else made.frame().toArrow()
    rows: Rows = table.to_pylist()
    return sorted(rows, key=lambda row: int(row["number"]))


def made_apart(way: Callable[[TrainingOptions], ArrowSet | SparkSet], time: str, modes: tuple[AsOf, ...]) -> Sets:
    """Make a set of its own by each rule of time, as users do, and the report of the last."""
    rows, digests, report = {}, {}, None
    for as_of in modes:
        made = way(TrainingOptions(time, as_of=as_of))
        try:
            rows[as_of], digests[as_of] = rows_of(made), made.digest()
            report = made.report() if as_of == modes[-1] else None
        finally:
            made.release()
    assert report is not None
    return Sets(rows, digests, report)


def made_together(way: Callable[[TrainingOptions], ReadOnce | PlannedOnce], time: str, modes: tuple[AsOf, ...]) -> Sets:
    rows, digests = {}, {}
    made = way(TrainingOptions(time, as_of=modes[-1]))
    try:
        for as_of in modes:
            made.by(as_of)
            rows[as_of], digests[as_of] = rows_of(made), made.digest()
        return Sets(rows, digests, made.report())
    finally:
        made.release()


def by_arrow(made: MadeProject, kind: Kind) -> Sets:
    vector, deployment = vector_of(made.vector, made.app.catalog), made.app._deployment
    if kind.production:
        return made_apart(lambda options: ArrowSet(made.labels, vector, options, deployment), made.time, kind.modes)
    return made_together(lambda options: ReadOnce(made.labels, vector, options, deployment), made.time, kind.modes)


def by_spark(made: MadeProject, app: leftfold.App, kind: Kind) -> Sets:
    vector, deployment = vector_of(made.vector, app.catalog), app._deployment
    if kind.production:
        return made_apart(lambda options: SparkSet(made.labels, vector, options, deployment), made.time, kind.modes)
    return made_together(lambda options: PlannedOnce(made.labels, vector, options, deployment), made.time, kind.modes)


def compared(ours: Sets, theirs: Sets, labels: int) -> tuple[int, list[str]]:
    """Return the number of values that were compared, and what differs."""
    values, wrong = 0, []
    assert ours.rows.keys() == theirs.rows.keys()
    for as_of, rows in ours.rows.items():
        assert len(rows) == len(theirs.rows[as_of]) == labels
        for mine, other in zip(rows, theirs.rows[as_of], strict=True):
            assert list(mine) == list(other)
            for name, value in mine.items():
                values += 1
                if value != other[name] or type(value) is not type(other[name]):
                    wrong.append(f"{as_of} {name} of {mine['person']} at {mine['moment']}: {value!r}, not "
                                 f"{other[name]!r}")  # fmt: skip
        if ours.digests[as_of] != theirs.digests[as_of]:
            wrong.append(f"{as_of}: the digest is {ours.digests[as_of]}, not {theirs.digests[as_of]}")
    if ours.report != theirs.report:
        wrong.append(f"{ours.report}\nis not\n{theirs.report}")
    return values, wrong


# Comparisons ---------------------------------------------------------------------------------------------------------


@contextmanager
def two_builds(made: MadeProject, other: leftfold.App) -> Iterator[None]:
    """Let readers of the view One follow a build as it is declared, and stage one as `other` declares it."""
    names, store = Names(made.app.profile.namespace, "one"), connect(made.app.online.address)
    followed: Any = store.get(names.active)
    projects.put_build(made.app, "one", "active")
    projects.put_build(other, "one", "staged")
    try:
        yield
    finally:
        store.delete(names.active, names.staged)
        if followed is not None:
            store.set(names.active, followed)


def comparison(app: leftfold.App, at: datetime, **way: Any) -> Differences:
    return app.compare("one", at=at, top=3, **way).differences


def what_differs(ours: Differences, theirs: Differences) -> list[str]:
    assert ours.entities == theirs.entities > 0
    return [f"{a}, not {b}" for a, b in zip(ours.features, theirs.features, strict=True) if a != b]


# Archives ------------------------------------------------------------------------------------------------------------


def take_in(spark: Any, app: leftfold.App) -> None:
    """Let the intake read the sales that are sent so far, into the archive."""
    (intake,) = (h for h in app.supervisor().helpers if h.name.startswith("sales"))
    intake.start(spark, until_caught_up=True)
    intake.wait()
    intake.close()
    assert intake.progress.error is None, intake.progress.error


def delete_head(made: MadeProject, app: leftfold.App, spark: Any, seed: int) -> None:
    """Delete the first records of the log, at most as far as the archive reaches."""
    chance, archived = random.Random(seed), archive.position(spark, f"{app.lake}/archive/sales").ends
    assert sum(archived.values()) > 0
    before = {p: chance.choice((0, end // 2, end)) for p, end in archived.items()}
    delete_before(made.endpoints.bootstrap, app.profile.topic_name("sales"), before)


def why_not_arrow(make: Callable[[], object]) -> str:
    with pytest.raises(RunError) as refused:
        make()
    assert refused.value.code == "needs-spark"
    return str(refused.value.why)


def check_left_to_spark(made: MadeProject, app: leftfold.App) -> None:
    """Expect that Arrow makes nothing of a topic with an archive, and says why."""
    reason = "the archive of sales may have older records"
    with app.training_set(made.labels, made.vector, time=made.time) as train:
        assert (train.choice.engine, train.choice.why) == ("spark", reason)
    with app.training_set(made.labels, made.vector, time=made.time, engine="arrow") as train:
        assert why_not_arrow(train.to_arrow) == reason
    choice = app.replay("sales").choice(None)
    assert (choice.engine, choice.why) == ("spark", "some records of sales may be in its archive alone")
    assert why_not_arrow(lambda: app.compare("one", engine="arrow")) == reason


# ---------------------------------------------------------------------------------------------------------------------


def both_ways(cluster: Cluster, root: Path, spark: Any, seed: int) -> tuple[int, int, list[str]]:
    """Return how many values were compared, how many differ between two builds, and what the two ways differ in."""
    kind = Kind.of(seed)
    made = made_project(root / "made", cluster.endpoints, seed, partial(take_in, spark) if kind.archived else None)
    if kind.served:
        for progress in run_until_caught_up(made.app, spark):
            assert progress.error is None, progress.error
    ours = by_arrow(made, kind)
    values, wrong = compared(ours, by_spark(made, made.app, kind), made.labels.num_rows)
    manifests = {}
    for topic in ("sales", "more"):  # by Arrow, unless there is a text that is not UTF-8
        manifests[topic] = made.app.replay(topic).write(str(root / topic))
        made.app.replay(topic).again(manifests[topic], engine="spark")
    other = projects.make(root / "changed", made.endpoints, made.app.profile.namespace, changed(made.streams, seed))
    at = datetime.now(UTC) - timedelta(hours=random.Random(seed).choice((0, 2, 6)))
    with two_builds(made, other):
        differences = comparison(other, at, engine="arrow")
        wrong += what_differs(differences, comparison(other, at, session=spark))
    if made.archived is not None:
        delete_head(made, made.archived, spark, seed)
        more, not_same = compared(ours, by_spark(made, made.archived, kind), made.labels.num_rows)
        values, wrong = values + more, wrong + not_same
        made.archived.replay("sales").again(manifests["sales"])
        (made.archived.root / "streams.py").write_text(with_archive(changed(made.streams, seed)))
        other = leftfold.open(made.archived.root)  # with the same archive
        with two_builds(made, other):
            check_left_to_spark(made, other)
            wrong += what_differs(differences, comparison(other, at, session=spark))
    return values, sum(f.different + f.only_left + f.only_right for f in differences.features), wrong


def test_every_value_is_the_same(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    total = found = 0
    for seed in range(SEED, SEED + PROJECTS):
        kind, began = Kind.of(seed), time.monotonic()
        with kind.settings(spark):
            values, differing, wrong = both_ways(cluster, tmp_path / str(seed), spark, seed)
        delete_topics(cluster.endpoints.bootstrap, f"made{seed}-")  # thousands would slow the brokers down
        total += values
        found += differing
        print(f"seed {seed}: {values:,} values ({kind}), {len(wrong)} differ, {time.monotonic() - began:.1f} s")
        streams = (tmp_path / str(seed) / "made" / "streams.py").read_text()
        assert wrong[:5] == [], f"LEFTFOLD_SEED={seed} LEFTFOLD_BOTH_WAYS=1\n{streams}"
    assert found, "no comparison had anything to find"
    print(f"{PROJECTS} projects from seed {SEED}: {total:,} values, 0 differ")
