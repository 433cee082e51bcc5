"""Rebuilds of what has no closed tiles (tables, functions, lifetimes), over an archive, of records that were re-driven,
and one that is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import uuid
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.errors import RunError
from leftfold.fold.expressions import from_micros
from leftfold.kafka.rejects import RecordPosition
from leftfold.run.intake import RunningIntake
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_all, run_until_caught_up
from tests.engine.log import delete_before
from tests.engine.rebuilds import PAYMENTS, VIEW, Project, limited, looked, reached, recomputed

SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))

pytestmark = [pytest.mark.usefixtures("near_clocks"), pytest.mark.timeout(900)]

KINDS = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    at: datetime


class ItemUpdate(lf.Event):
    item_id: str
    category: str
    stock: int


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=3, lateness="1h")
items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True, partitions=2)


class Ever(lf.Features, of=clicks, by=Click.user_id):
    big = lf.count(None, where=Click.price > 50)
    n_24h = lf.count("24h")


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category


@lf.view(clicks, by="item_id", latest="window_end", to=[lf.Online()])
def trending(clicks):
    from pyspark.sql import functions as F

    return (
        clicks.where("price > 50")
        .groupBy(F.window("at", "1 hour"), "item_id")
        .agg(F.count("*").alias("n"))
        .select("item_id", "n", F.col("window.end").alias("window_end"))
    )
"""
CHANGED = KINDS.replace("> 50", "> 20").replace(
    "    category = ItemUpdate.category\n", "    category = ItemUpdate.category\n    stock = ItemUpdate.stock\n"
)


def test_every_kind_of_view(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    """Where nothing can be cut the stream reads all of it; the rest is as for any build."""
    chance, namespace = random.Random(SEED), f"r{uuid.uuid4().hex[:8]}"
    app = projects.make(tmp_path / "p", cluster.endpoints, namespace, KINDS)
    projects.apply(app)
    hour = datetime.now(UTC) - timedelta(minutes=20)
    sent: list[dict[str, Any]] = [
        {
            "user_id": f"u{chance.randrange(20)}",
            "item_id": f"i{chance.randrange(9)}",
            "price": chance.uniform(0, 100),
            "at": hour,
        }
        for _ in range(2_000)
    ]
    with app.producer("clicks") as producer:
        for record in sent:
            producer.send_dict(record)
    with app.producer("items") as producer:
        for number in range(30):
            producer.send_dict({"item_id": f"i{number % 9}", "category": f"c{number}", "stock": number})
    run_until_caught_up(app, spark)
    before = {n: sum(e["user_id"] == f"u{n}" and e["price"] > 50 for e in sent) for n in range(20)}
    assert {n: app.get("ever", user_id=f"u{n}").big for n in range(20)} == before

    changed = projects.make(tmp_path / "p", cluster.endpoints, namespace, CHANGED)
    for view in ("ever", "item", "trending"):
        with pytest.raises(RunError, match="rebuild-from"):
            changed.rebuild(view, since=hour).run(looked, session=spark)
        done = changed.rebuild(view, until_caught_up=True).run(looked, session=spark)
        assert done.error is None, (view, done.error)
        assert changed.standings.of(view).staged == done.build
    assert {n: app.get("ever", user_id=f"u{n}").big for n in range(20)} == before
    for view in ("ever", "item", "trending"):
        changed.promote(view)
    for n in range(20):
        read = changed.get("ever", user_id=f"u{n}")
        mine = [e for e in sent if e["user_id"] == f"u{n}"]
        assert (read.big, read.n_24h) == (sum(e["price"] > 20 for e in mine), len(mine))
    assert {n: changed.get("item", item_id=f"i{n}").stock for n in range(9)} == {
        n: max(range(n, 30, 9)) for n in range(9)
    }
    for n in range(9):
        assert changed.get("trending", item_id=f"i{n}").n == sum(
            e["item_id"] == f"i{n}" and e["price"] > 20 for e in sent
        )
    changed.rollback("ever")
    assert {n: app.get("ever", user_id=f"u{n}").big for n in range(20)} == before


class Kept(Project):
    """With an archive of its topic."""

    def take_in(self, spark: Any) -> None:
        (intake,) = (h for h in self.app.supervisor().helpers if isinstance(h, RunningIntake))
        intake.start(spark, until_caught_up=True)
        intake.wait()
        assert intake.progress.error is None, intake.progress.error


@pytest.mark.nightly
@pytest.mark.parametrize("part", ["half of it", "all of it"])
def test_history_that_the_log_has_deleted(cluster: Cluster, tmp_path: Path, spark: Any, part: str) -> None:
    archived = PAYMENTS.replace('lateness="3s")', 'lateness="3s", archive=True)')
    project = Kept(cluster.endpoints, tmp_path / "p", archived, seed=SEED)
    project.send(6)
    project.take_in(spark)
    logged = project.logged()
    ends = project.app.log[0].end_offsets(project.topic, 6)
    projects.await_true(  # what the stream makes is made of the log
        lambda: datetime.now(UTC).timestamp() * 1e6 - max(one.log_us for one in logged) > 80e6,
        timeout=120,
        what="the tiles of what is deleted to be closed",
    )
    kept = {p: end if part == "all of it" else end // 2 for p, end in ends.items()}
    delete_before(project.endpoints.bootstrap, project.topic, kept)
    changed = project.declared(archived.replace("> 100", "> 50"))
    done = project.rebuild(changed).run(looked, session=spark)
    assert done.error is None, done.error
    project.send(2)
    logged += [one for one in project.logged() if one.offset >= ends.get(one.partition, 0)]
    (done,) = run_until_caught_up(changed, spark)
    assert done.error is None, done.error
    expected, outcomes = recomputed(logged, 50)
    wrong = oracle.differences(reached(expected, logged), reached(project.tiles(str(done.build)), logged))
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(expected)} tiles differ: {wrong[:3]}"
    assert {outcome: n for outcome, n in done.totals().items() if n} == dict(outcomes)
    assert changed.promote(VIEW).followed == done.build


@pytest.mark.nightly
def test_what_was_re_driven_stands_in_its_place(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    """Before the rebuild, for its scan, and after it, for closed tiles of the stream; the counts are the log's."""
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(8)
    corrected = correct_all(project, project.app, spark)
    changed = project.declared(limited(50))
    done = project.rebuild(changed).run(looked, session=spark)
    assert done.error is None, done.error
    project.send(8)
    corrected |= correct_all(project, changed, spark, before=corrected.keys())

    def settled() -> bool:
        project.send(1)
        (now,) = run_until_caught_up(changed, spark)
        assert now.error is None, now.error
        return now.pending == 0

    projects.await_true(settled, timeout=300, what="the last tiles that were corrected to be closed")
    logged = project.logged()
    in_place = [
        replace(one, record=corrected.get(RecordPosition(one.partition, one.offset), one.record)) for one in logged
    ]
    expected = reached(recomputed(in_place, 50)[0], logged)
    wrong = oracle.differences(expected, reached(project.tiles(str(done.build)), logged))
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(expected)} tiles differ: {wrong[:3]}"
    (now,) = run_until_caught_up(changed, spark)
    assert {outcome: n for outcome, n in now.totals().items() if n} == dict(recomputed(logged, 50)[1])


def correct_all(
    project: Project, app: leftfold.App, spark: Any, before: Collection[RecordPosition] = ()
) -> dict[RecordPosition, dict[str, Any]]:
    """Every record that could not be decoded becomes a payment of its log time."""
    run_all(app, spark)  # its intake names them
    found = {RecordPosition(one.partition, one.offset): one for one in project.logged() if one.record is None}
    refused = {position: one for position, one in found.items() if position not in before}
    assert refused
    corrected = {
        position: {"id": 0, "account": "a1", "amount": 500.0, "note": str(position), "at": from_micros(one.log_us)}
        for position, one in refused.items()
    }
    events = {position: json.dumps(event, default=datetime.isoformat) for position, event in corrected.items()}
    assert len(app.rejects("payments").correct(events).sent) == len(refused)
    return corrected


def test_a_real_death_while_history_is_read(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(10)
    (live,) = run_until_caught_up(project.app, spark)
    changed = project.declared(limited(50))
    command = [projects.LEFTFOLD, "rebuild", VIEW, "--until-caught-up", "--json"]
    told = tmp_path / "told"
    with (
        told.open("w") as errors,
        subprocess.Popen(
            command, cwd=project.root, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as killed,
    ):
        try:
            assert killed.stdout is not None
            seen = next((line for line in killed.stdout if '"reading history"' in line), None)
            assert seen is not None, told.read_text()
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
    assert changed.standings.of(VIEW).followed == live.build
    with pytest.raises(RunError, match=r"not-caught-up|nothing-staged"):
        changed.promote(VIEW, behind=0)
    done = project.rebuild(changed).run(looked, session=spark)
    assert done.error is None, done.error
    project.check(done.build, 50)
