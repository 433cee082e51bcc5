"""Plan and apply on a real cluster: what was shown is what is done, once, whoever dies or comes second."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.declare.topic_options import COMPATIBILITIES
from leftfold.errors import LeftfoldError
from leftfold.plan import saved
from leftfold.store.lease import exclusive
from tests.engine import projects
from tests.engine.conftest import Cluster

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Sale(lf.Event):
    shop: str
    amount: float
    at: datetime


north = lf.Topic("north", Sale, key=Sale.shop, time=Sale.at)
south = lf.Topic("south", Sale, key=Sale.shop, time=Sale.at)
west = lf.Topic("west", Sale, key=Sale.shop, time=Sale.at)


class Shops(lf.Features, of=north, by=Sale.shop, to=[lf.Online(), lf.Changelog()]):
    sales_1h = lf.count("1h")
"""
CAPTURED: Any = {"capture_output": True, "text": True, "timeout": 120}
STEPS = 21  # receipts, definitions; three topics, each with late, rejects, redrive, a rule and a schema; a changelog

# Dies by SIGKILL once one step has been done: before its line in the journal, or after it.
DIES = """\
import os, signal, sys
import leftfold
from leftfold.plan.saved import Journal

kept, left = Journal.done, int(sys.argv[2])

def done(self, step):
    global left
    left -= 1
    if left or sys.argv[1] == "after":
        kept(self, step)
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

Journal.done = done
app = leftfold.open()
print(sum(1 for _ in app.apply(app.plan())))
"""


@pytest.fixture
def app(cluster: Cluster, tmp_path: Path) -> leftfold.App:
    return projects.make(tmp_path / "shops", cluster.endpoints, f"p{uuid.uuid4().hex[:8]}", STREAMS)


def cli(app: leftfold.App, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([projects.LEFTFOLD, *arguments], cwd=app.root, input=typed, check=False, **CAPTURED)


def has_left(app: leftfold.App, steps: int) -> bool:
    return len(app.plan().steps) == steps


def ids(app: leftfold.App) -> dict[str, str]:
    return {name: topic.id for name, topic in app.observe().topics.items()}


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.nightly), 3])
def test_an_apply_that_dies_after_any_step_is_finished_by_the_next(app: leftfold.App, each: int) -> None:
    """Each process takes so many steps, and dies after the last of them: before it is in the journal, or just after."""
    made = app.plan()
    assert len(made.steps) == STEPS
    seen: dict[str, str] = {}
    deaths = STEPS // each
    for number in range(deaths):
        child = [sys.executable, "-c", DIES, "after" if number % 2 else "before", str(each)]
        died = subprocess.run(child, cwd=app.root, check=False, **CAPTURED)
        assert died.returncode == -9, died.stderr
        # A broker may hear of a new topic a moment after the one that the child asked.
        left = STEPS - (number + 1) * each
        projects.await_true(partial(has_left, app, left), timeout=240, what=f"{left} steps left")
        found = ids(app)
        assert seen.items() <= found.items(), "a topic was made again"
        seen = found
    assert app.plan().steps == ()
    versions = app.log[1].versions(f"{app.profile.topic_name('north')}-value")
    assert len(versions) == 1
    journal = (app.state / "local" / "applied.jsonl").read_text().splitlines()
    states = [json.loads(line)["state"] for line in journal]
    assert (states.count("begun"), states.count("done")) == (STEPS, STEPS - (deaths + 1) // 2)


def test_after_an_apply_there_is_nothing_to_do_under_any_rule(cluster: Cluster, tmp_path: Path) -> None:
    topics = "".join(
        f'lf.Topic("{level.lower()}", Sale, key=Sale.shop, time=Sale.at, compatibility="{level}")\n'
        for level in COMPATIBILITIES
    )
    text = STREAMS[: STREAMS.index("north =")] + topics
    app = projects.make(tmp_path / "rules", cluster.endpoints, f"p{uuid.uuid4().hex[:8]}", text)
    projects.apply(app)
    assert app.plan().steps == ()
    (app.root / "streams.py").write_text(text.replace("    at:", "    note: str | None = None\n    at:"))
    changed = leftfold.open(app.root)
    assert [type(step).__name__ for step in changed.plan().steps] == ["RegisterSchema"] * len(COMPATIBILITIES)
    projects.apply(changed)
    assert changed.plan().steps == ()


def test_what_was_saved_is_what_is_applied(app: leftfold.App) -> None:
    shown = cli(app, "plan", "--out", "monday.json", "--detailed-exitcode")
    assert shown.returncode == 3, shown.stderr
    assert f"Plan: {STEPS} to add, 0 to change, 0 to delete." in shown.stderr
    done = cli(app, "apply", "monday.json", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"applied {STEPS} steps" in done.stderr
    again = cli(app, "plan", "--detailed-exitcode")
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stderr


def test_a_saved_plan_is_refused_once_the_cluster_has_drifted(app: leftfold.App) -> None:
    observed = app.observe()
    file = app.root / "monday.json"
    saved.save(file, app.plan(observed), observed, project=app.name, profile="local")
    name = app.profile.topic_name("south")
    app.log[0].create(name, partitions=3, replication=3, configs={})
    refused = cli(app, "apply", "monday.json", "--yes", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] == "plan-drifted"
    assert list(ids(app)) == [name], "nothing else was touched"


def test_of_two_at_once_the_second_is_refused(app: leftfold.App) -> None:
    with exclusive(app.online.url.get_secret_value(), app.profile.namespace, "apply"):
        refused = cli(app, "apply", "--yes", "--json")
        assert json.loads(refused.stdout)["error"]["code"] == "apply-running"
        assert ids(app) == {}
    assert cli(app, "apply", "--yes").returncode == 0
    assert app.plan().steps == ()


def test_a_topic_goes_only_if_its_name_was_typed(app: leftfold.App) -> None:
    projects.apply(app)
    streams = app.root / "streams.py"
    streams.write_text(streams.read_text().replace('west = lf.Topic("west", Sale, key=Sale.shop, time=Sale.at)\n', ""))
    name = app.profile.topic_name("west")
    declared = cli(app, "plan", "--delete", app.profile.topic_name("north"), "--json")
    assert [p["code"] for p in json.loads(declared.stdout)["problems"]] == ["cannot-delete"]
    cli(app, "plan", "--delete", name, "--out", "delete.json")
    for typed in ("\n", "wast\n", "y\n"):
        assert cli(app, "apply", "delete.json", typed=typed).returncode == 1
        assert name in ids_of(app, name)
    unasked = cli(app, "apply", "delete.json", "--yes")
    assert unasked.returncode == 2, unasked.stderr
    assert name in ids_of(app, name)
    assert cli(app, "apply", "delete.json", typed=f"{name}\ny\n").returncode == 0
    assert ids_of(app, name) == {}


def ids_of(app: leftfold.App, name: str) -> dict[str, str]:
    return app.log[0].topic_ids([name])


def test_a_lost_lease_stops_an_apply_between_two_steps(app: leftfold.App) -> None:
    from leftfold.store.redis.client import connect

    steps = app.apply(app.plan())
    next(steps)
    with connect(app.online.url.get_secret_value()) as client:
        client.set(f"lf:{app.profile.namespace}:lease:apply", "elsewhere/1/1")
    with pytest.raises(LeftfoldError) as caught:
        next(steps)
    assert caught.value.code == "lease-lost"
    assert len(ids(app)) == 1


def test_a_cluster_is_looked_at_without_a_project(cluster: Cluster, tmp_path: Path) -> None:
    command = [projects.LEFTFOLD, "inspect", "--bootstrap", cluster.endpoints.bootstrap, "--json"]
    looked = subprocess.run(command, cwd=tmp_path, check=False, **CAPTURED)
    assert looked.returncode == 0, looked.stderr
    found: dict[str, Any] = json.loads(looked.stdout)
    assert found["brokers"] == 3
    assert isinstance(found["sampled"], list)
    assert list(tmp_path.iterdir()) == [], "it writes nothing"
