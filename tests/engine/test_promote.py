"""Readers while builds are promoted and rolled back: nothing missing, no mixture, no batch that goes backwards.

`make engine` moves them four times, `make rebuilds` forty times.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.rebuild.promote import behind
from leftfold.run.view import RunningView
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.projects import LEFTFOLD, await_true
from tests.engine.rebuilds import VIEW, Project, limited, looked

FULL = os.environ.get("LEFTFOLD_REBUILDS") == "full"
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
pytestmark = pytest.mark.usefixtures("near_clocks")


class Readers:
    """Threads that read all the while, and what was wrong with what they read."""

    def __init__(self, root: Path, number: int) -> None:
        self.wrong: list[str] = []
        self.reads, self.builds = 0, set[str]()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._poll, args=(root, n)) for n in range(number)]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def have_read(self, times: int) -> bool:
        return self.reads >= times

    def _poll(self, root: Path, number: int) -> None:
        app = leftfold.open(root)
        keys = [{"account": f"a{n}"} for n in range(1, 9)]
        newest: dict[tuple[str, str], int] = {}
        while not self._ended.is_set():
            try:
                for key, row in zip(keys, app.get_many(VIEW, keys), strict=True):
                    self._look(row, key["account"], newest)
            except Exception as error:  # noqa: BLE001 # whatever a reader is told instead of a row is a finding
                self.wrong.append(f"reader {number}: {error}")

    def _look(self, row: Any, account: str, newest: dict[tuple[str, str], int]) -> None:
        (origin,) = row.provenance
        self.reads += 1
        self.builds.add(origin.build)
        if not origin.found or row.ever is None or row.marked is None:
            self.wrong.append(f"{account}: a missing value in {origin}")
        elif row.marked != row.ever * MARKS[origin.build.partition("-")[0]]:
            self.wrong.append(f"{account}: {row.marked} of {row.ever} is a mixture, in {origin}")
        if origin.batch < newest.get((account, origin.build), -1):
            self.wrong.append(f"{account}: {origin} after batch {newest[account, origin.build]}")
        newest[account, origin.build] = max(origin.batch, newest.get((account, origin.build), -1))


MARKS: dict[str, int] = {}
# Every value of a build is a multiple of its mark, so that values of two builds in one row show.
MARKED = """\
from datetime import datetime

import leftfold as lf


class Payment(lf.Event):
    id: int
    account: str
    amount: float
    note: str | None = None
    at: datetime


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at, partitions=6, lateness="3s")


class AccountActivity(lf.Features, of=payments, by=Payment.account):
    ever = lf.count("10m", step="10s")
    marked = ever * MARK
"""


@pytest.mark.timeout(3_000 if FULL else 900)
def test_readers_while_builds_are_promoted_and_rolled_back(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    moves = 40 if FULL else 4
    project = Project(cluster.endpoints, tmp_path / "p", MARKED.replace("MARK", "3"), seed=SEED)
    for number in range(1, 9):
        with project.app.producer("payments") as producer:
            producer.send_dict(
                {"id": -number, "account": f"a{number}", "amount": 1.0, "note": None, "at": datetime.now(UTC)}
            )
    live = project.app.supervisor().views[0]
    changed = project.declared(MARKED.replace("MARK", "7"))
    rebuild = changed.rebuild(VIEW)
    with project.sending(200), ExitStack() as running:
        live.start(spark, until_caught_up=False)
        running.callback(end, live)
        drive(live, lambda: live._followed)
        others = threading.Thread(target=rebuild.run, args=(looked,), kwargs={"session": spark})
        others.start()
        running.callback(others.join)
        running.callback(rebuild.stop)
        drive(live, lambda: caught_up(changed))
        old, new = changed.standings.of(VIEW).followed, rebuild.progress.build
        assert old is not None
        assert new is not None
        MARKS.update({old.partition("-")[0]: 3, new.partition("-")[0]: 7})
        with Readers(project.root, 4) as readers:
            for move in range(moves):
                before = readers.reads
                drive(live, partial(readers.have_read, before + 200))
                drive(live, partial(caught_up, changed, staged=move % 2 == 0))
                moved = changed.promote(VIEW) if move % 2 == 0 else changed.rollback(VIEW)
                assert moved.followed == (new if move % 2 == 0 else old)
            before = readers.reads
            drive(live, partial(readers.have_read, before + 200))
    assert readers.wrong == []
    assert readers.builds == {old, new}
    print(f"seed {SEED}: {moves} moves, {readers.reads:,} reads by 4 readers: nothing missing, mixed or backwards")


def caught_up(app: leftfold.App, *, staged: bool = True) -> bool:
    """Whether the build to move to is where the other one is."""
    found = app.standings.of(VIEW)
    kept = found.previous.build if found.previous else None
    other = found.staged if staged else kept
    if other is None or found.followed is None or app.standings.waiting_for(VIEW, other) is not None:
        return False
    ledgers = [app.standings.position(VIEW, build)[1] for build in (other, found.followed)]
    return behind(*ledgers) < 500


def drive(view: RunningView, until: Callable[[], bool]) -> None:
    def met() -> bool:
        view.poll()
        assert view.progress.error is None, view.progress.error
        return until()

    await_true(met, timeout=240, what="the builds")


def end(view: RunningView) -> None:
    view.stop()
    view.wait()
    view.close()


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_verbs_as_a_person_types_them(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    """In a process of its own, beside the live view of this one."""
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(2)
    (live,) = run_until_caught_up(project.app, spark)
    project.declared(limited(50))
    unchanged = typed(project.root, "promote", VIEW, code=1)
    assert unchanged["error"]["code"] == "nothing-staged"
    done = typed(project.root, "rebuild", VIEW, "--until-caught-up", "--cores", "2")
    assert (done["state"], done["error"]) == ("caught up", None)
    assert done["history"]["done"] == done["history"]["total"] > 0
    project.check(done["build"], 50)
    assert typed(project.root, "promote", VIEW)["followed"] == done["build"]
    again = typed(project.root, "rebuild", VIEW, "--until-caught-up", code=1)
    assert again["error"]["code"] == "rebuild-unchanged"
    assert typed(project.root, "rollback", VIEW) == {
        "version": 1,
        "verb": "rollback",
        "view": VIEW,
        "followed": live.build,
        "staged": done["build"],
        "previous": None,
    }
    (status,) = project.app.status()
    assert (status.build, status.staged, status.previous) == (live.build, done["build"], None)


def typed(root: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """The last document that a verb writes."""
    verb = [LEFTFOLD, *words, "--json"]
    ended = subprocess.run(verb, check=False, cwd=root, capture_output=True, text=True, timeout=400)
    assert ended.returncode == code, ended.stdout[-2_000:] + ended.stderr[-2_000:]
    document: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return document
