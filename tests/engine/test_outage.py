"""The store, and then the brokers, are away for a while: every view, intake and lake goes on by itself.

`make engine` has them away for half a minute, with shorter waits between tries; `make outage` for a quarter of an hour
each, as it is, and looks at what the driver holds meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest

from leftfold.run import running
from leftfold.run.supervisor import Supervisor
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.effects import BOTH, VIEW, Project, read_changelog
from tests.engine.test_care import supervised

FULL = os.environ.get("LEFTFOLD_OUTAGE") == "full"
AWAY_S = 900.0 if FULL else 20.0
# Of the driver, between a third of the outage and its end. A try costs it nothing that stays; what is left is what the
# allocators of Python and of the JVM keep for themselves, which a try a minute does not move by more.
GROWTH_MB = 40
GROWTH_HANDLES = 12
EVERYWHERE = f"""{BOTH.replace("lf.Changelog()", "lf.Changelog(), lf.Lake(every_s=5)")}

class AccountPoints(lf.Features, of=payments, by=Payment.account):
    points_1h = lf.sum(Payment.points, "1h")
"""


@dataclass(frozen=True)
class Held:
    """What the driver holds: Python and the JVM, in MB, threads and open files of both."""

    python_mb: float
    jvm_mb: float
    heap_mb: float  # of the JVM, after a collection
    threads: int
    files: int


def held(spark: Any) -> Held:
    jvm = spark.sparkContext._gateway.proc.pid
    spark._jvm.System.gc()
    runtime = spark._jvm.Runtime.getRuntime()
    own, other = (Path(f"/proc/{pid}") for pid in (os.getpid(), jvm))
    return Held(
        _rss_mb(own),
        _rss_mb(other),
        (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
        sum(len(list((process / "task").iterdir())) for process in (own, other)),
        sum(len(list((process / "fd").iterdir())) for process in (own, other)),
    )


def _rss_mb(process: Path) -> float:
    line = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1e3


def told(what: str, at: Held) -> None:
    python, jvm, heap, threads, files = astuple(at)
    print(
        f"  {what}: Python {python:.0f} MB, JVM {jvm:.0f} MB (heap {heap:.0f} MB), {threads} threads, {files} files",
        flush=True,
    )


def endured(spark: Any, supervisor: Supervisor, meanwhile: Callable[[], None]) -> None:
    """Until the outage has lasted long enough. In the long one, what the driver holds must stay what it was."""
    began = time.monotonic()
    samples: list[tuple[float, Held]] = []
    while (at := time.monotonic() - began) < AWAY_S:
        meanwhile()
        samples.append((at, held(spark)))
        if FULL and len(samples) % 4 == 1:
            told(f"{at:4.0f} s", samples[-1][1])
        time.sleep(min(15.0, AWAY_S / 10))
    states = {p.view: (p.state, p.failing.tries if p.failing else 0) for p in supervisor.progress}
    print(f"  {AWAY_S:.0f} s later: {states}", flush=True)
    assert [str(p.error) for p in supervisor.progress if p.state == "failed"] == [], "nobody gives up"
    if not FULL:
        return  # seconds show no trend: the JVM makes and ends more threads than that in between
    settled = next(sample for at, sample in samples if at >= AWAY_S / 3)
    last = samples[-1][1]
    for what, at_first, at_last, most in (
        ("Python's memory", settled.python_mb, last.python_mb, GROWTH_MB),
        ("the JVM's heap", settled.heap_mb, last.heap_mb, GROWTH_MB),
        ("threads", settled.threads, last.threads, GROWTH_HANDLES),
        ("open files", settled.files, last.files, GROWTH_HANDLES),
    ):
        assert at_last - at_first <= most, f"{what} grew from {at_first:.0f} to {at_last:.0f}"


def is_whole(project: Project, build: str) -> bool:
    """Brokers write the markers of a committed transaction when enough replicas are back, which nobody waits for."""
    try:
        project.check(build)
    except AssertionError:
        return False
    return True


@contextmanager
def away(cluster: Cluster, *names: str) -> Iterator[None]:
    """Killed at once, and started again whatever happens in between: other tests use the same cluster."""
    for name in names:
        os.kill(cluster.endpoints.processes[name].pid, signal.SIGKILL)
    try:
        yield
    finally:
        cluster.cluster.up(cluster.root)


def recovered(project: Project, supervisor: Supervisor) -> None:
    began = time.monotonic()
    views = [view.progress for view in supervisor.views]

    def all_well() -> bool:
        applied = all(sum(p.totals().values()) == project.sent and p.lag == 0 for p in views)
        return applied and all(p.failing is None and p.state == "running" for p in supervisor.progress)

    try:
        projects.await_true(all_well, timeout=600 + max(running.BACK_OFF_S), what="all to go on")
    except AssertionError:
        print(*(p.as_json() for p in supervisor.progress), sep="\n")
        raise
    print(f"  all well {time.monotonic() - began:.1f} s after it was over", flush=True)


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Project:
    return Project(cluster.endpoints, tmp_path / "project", EVERYWHERE)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    if not FULL:
        monkeypatch.setattr(running, "BACK_OFF_S", (0.5, 1))


def in_lake(project: Project, spark: Any, build: str) -> dict[tuple[str, str], tuple[int, list[Any]]]:
    """The newest of each row, by hand, as `read_changelog` gives the changelog."""
    rows = spark.read.format("delta").load(f"{project.app.lake}/{VIEW}").where(f"build = '{build}'").collect()
    newest: dict[tuple[str, str], Any] = {}
    for row in sorted(rows, key=lambda row: (row["changelog_partition"], row["changelog_offset"])):
        newest[row["entity"], row["field"]] = None if row["deleted"] else json.loads(row["value"])
    return {at: (value[0], value[2:]) for at, value in newest.items() if value is not None}


@pytest.mark.nightly
@pytest.mark.timeout(4_800 if FULL else 900)
@pytest.mark.usefixtures("soon")
def test_an_outage_ends_by_itself(project: Project, spark: Any, cluster: Cluster) -> None:
    project.send(2_000)
    with supervised(project, spark) as supervisor:
        recovered(project, supervisor)
        told("before", held(spark))

        print("Redis is away", flush=True)
        with away(cluster, "redis"):
            endured(spark, supervisor, meanwhile=lambda: project.send(20))
        recovered(project, supervisor)

        print("the brokers are away", flush=True)
        project.send(500)
        with away(cluster, "broker-1", "broker-2", "broker-3"):
            endured(spark, supervisor, meanwhile=lambda: None)
        project.send(500)
        recovered(project, supervisor)

        build = next(p.build for p in supervisor.progress if p.view == VIEW)
        assert build is not None
        projects.await_true(lambda: is_whole(project, build), timeout=180, what="the last transaction to be seen")
        print(f"{project.check(build):,} tiles are those of the log", flush=True)
        logged = read_changelog(project.endpoints.bootstrap, project.changelog, build)
        projects.await_true(lambda: in_lake(project, spark, build) == logged, timeout=240, what="the lake")
        told("after", held(spark))
        restarts = {p.view: p.restarts for p in supervisor.progress}
        print(f"{project.sent:,} records; started again: {restarts}", flush=True)
        assert not any(p.repairs for p in supervisor.progress), "Redis had kept what it acknowledged"
