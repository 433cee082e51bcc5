"""A repair of one view takes long: the others are looked after all the same, and a stop is heard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from leftfold.local import ports
from leftfold.run.progress import Progress
from leftfold.run.supervisor import Supervisor
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_all
from tests.engine.effects import BOTH, VIEW, Project
from tests.engine.slow_repairs import slow_repairs

OTHER = "account_points"
TWO_VIEWS = f"""{BOTH}

class AccountPoints(lf.Features, of=payments, by=Payment.account):
    points_1h = lf.sum(Payment.points, "1h")
"""


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Project:
    return Project(cluster.endpoints, tmp_path / "project", TWO_VIEWS)


def lose_rows(project: Project, build: str | None) -> redis.Redis:
    """The store has lost what it held of the view, as its mark tells."""
    client = redis.Redis.from_url(project.endpoints.redis_url)
    assert client.delete(f"lf:{project.app.profile.namespace}:mark:{VIEW}:{build}") == 1
    return client


@contextmanager
def supervised(project: Project, spark: Any) -> Iterator[Supervisor]:
    """A run that goes on, in a thread of its own."""
    supervisor = project.app.supervisor()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            supervisor.run(lambda _: None, session=spark)
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join(120)
    assert not thread.is_alive()
    assert failures == []


def applied(progress: Progress, records: int) -> Callable[[], bool]:
    return lambda: sum(progress.totals().values()) == records and progress.lag == 0


@pytest.mark.nightly
def test_a_repair_keeps_nobody_waiting(project: Project, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_repairs(monkeypatch)
    project.send(2_000)
    with supervised(project, spark) as supervisor:
        mine, other = (next(p for p in supervisor.progress if p.view == name) for name in (VIEW, OTHER))
        for one in (mine, other):
            projects.await_true(applied(one, 2_000), timeout=400, what=f"the first records of {one.view}")
        client = lose_rows(project, mine.build)
        projects.await_true(lambda: mine.state == "repairing", timeout=240, what="a repair")
        alive = {f"lf:{project.app.profile.namespace}:running:{p.view}:{p.build}" for p in (mine, other)}
        assert client.delete(*alive) == 2

        project.send(300)
        projects.await_true(applied(other, project.sent), timeout=240, what="a batch of the other view")
        projects.await_true(lambda: client.exists(*alive) == 2, timeout=240, what="the marks of running builds")
        assert mine.state == "repairing"

        started = time.monotonic()
        supervisor.stop()
        projects.await_true(lambda: mine.state == "stopped", timeout=240, what="an end")
        print(f"ended {time.monotonic() - started:.1f} s after it was asked to, in a repair")
    assert [p.error for p in supervisor.progress] == [None] * len(supervisor.progress)
    assert mine.repairs == 0
    monkeypatch.undo()
    again = next(p for p in run_all(project.app, spark) if p.view == VIEW)
    assert again.repairs == 1
    project.check(again.build)


def states(port: int) -> dict[str, str]:
    """By view, as /metrics says it; nothing until it is served."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    told = (line.split('"') for line in lines if line.startswith("leftfold_view_state{") and line.endswith(" 1.0"))
    return {view: state for _, state, _, view, _ in told}


def test_sigterm_in_a_repair(project: Project, spark: Any) -> None:
    project.send(2_000)
    build = next(p.build for p in run_all(project.app, spark) if p.view == VIEW)
    client = lose_rows(project, build)
    port = ports.choose(1)[0]
    slowly = [sys.executable, "-m", "tests.engine.slow_repairs", "run", "--metrics", str(port)]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    log = project.app.root / "run.log"
    with log.open("wb") as out:
        run = subprocess.Popen(
            slowly,
            cwd=project.app.root,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
    try:
        wanted = {VIEW: "repairing", OTHER: "running"}
        projects.await_true(
            lambda: states(port).items() >= wanted.items() or run.poll() is not None, timeout=400, what="a repair"
        )
        assert run.poll() is None, log.read_text()
        time.sleep(2)  # into the middle of it
        assert states(port).items() >= wanted.items()
        started = time.monotonic()
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0, log.read_text()
        took = time.monotonic() - started
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    print(f"SIGTERM in a repair: ended after {took:.1f} s")
    assert took < 5 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), "5 s, on a machine that has cores for it"
    assert client.exists(f"lf:{project.app.profile.namespace}:mark:{VIEW}:{build}") == 0, "it was not repaired"
    again = next(p for p in run_all(project.app, spark) if p.view == VIEW)
    assert again.repairs == 1
    project.check(again.build)
