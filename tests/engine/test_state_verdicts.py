"""What the plan says of an edited view against what Spark does when it is tried, on one view and one checkpoint.

A base runs once. Each edit of it is planned, then run: it goes on with the base's checkpoint, or makes a build of its
own and leaves that checkpoint alone. In the latter case a copy of the checkpoint is then forced upon the edited query,
which shows whether state and tiles would have served it. `make verdicts` tries all of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.fold.definition import Definition
from leftfold.plan.changes import changes
from leftfold.run.progress import Progress
from leftfold.spark.query import start_query
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up

FULL = os.environ.get("LEFTFOLD_VERDICTS") == "full"
VIEW = "account_activity"
FIRST = 600  # records that the base reads
BASE = """\
from datetime import datetime
from typing import Annotated

import annotated_types
import leftfold as lf


class Payment(lf.Event):
    id: int
    account: str
    amount: float
    points: int
    note: str | None = None
    at: datetime


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at, partitions=2, lateness="10m")


class AccountActivity(lf.Features, of=payments, by=Payment.account):
    payments_1h = lf.count("1h")
    big_1h = lf.count("1h", where=Payment.amount > 50)
    amount_24h = lf.sum(Payment.amount, "24h")
    note_7d = lf.last(Payment.note, "7d")
    recent_24h = lf.last_n(Payment.points, "24h", n=3)
    ever = lf.count(None, ttl="30d")
    per_payment = amount_24h / payments_1h
"""


@dataclass(frozen=True)
class Edit:
    name: str
    served: str  # same: the build goes on. all, tiles, new: a build of its own, and what would have served it
    replaced: tuple[tuple[str, str], ...]
    applied: bool = False  # it needs an apply before it runs

    @property
    def text(self) -> str:
        text = BASE
        for old, new in self.replaced:
            assert text.count(old) == 1, f"{self.name}: {old!r}"
            text = text.replace(old, new)
        return text


def edit(name: str, served: str, *replaced: tuple[str, str], applied: bool = False) -> Edit:
    return Edit(name, served, replaced, applied)


LAST = "    per_payment = amount_24h / payments_1h\n"
COUNT = '    payments_1h = lf.count("1h")\n'
BIG = '    big_1h = lf.count("1h", where=Payment.amount > 50)\n'
NOTE = '    note_7d = lf.last(Payment.note, "7d")\n'
EVER = '    ever = lf.count(None, ttl="30d")\n'

EDITS = (
    edit("docstring", "same", ("by=Payment.account):\n", 'by=Payment.account):\n    """What it did."""\n\n')),
    edit("comment", "same", (COUNT, COUNT.replace("\n", "  # lately\n"))),
    edit("another spelling of a window", "same", (COUNT, COUNT.replace('1h")', '60m")'))),
    edit("a step that was chosen anyway", "same", ('lf.count("1h")', 'lf.count("1h", step="5m")')),
    edit("an int for a float", "same", ("amount > 50)", "amount > 50.0)")),
    edit(
        "another class name",
        "same",
        ("AccountActivity(lf.Features, of", 'Lately(lf.Features, name="account_activity", of'),
    ),
    edit("retention", "same", ('lateness="10m")', 'lateness="10m", retention="9d")')),
    edit(
        "a field that nobody reads",
        "same",
        ("    at: datetime\n", "    shop: str = 'web'\n    at: datetime\n"),
        applied=True,
    ),
    edit(
        "another store",
        "same",
        ("by=Payment.account)", "by=Payment.account, to=[lf.Online(), lf.Changelog()])"),
        applied=True,
    ),
    edit("default", "all", (NOTE, NOTE.replace(")\n", ').default("none")\n'))),
    edit("rename", "all", ("ever =", "always =")),
    edit("derived added", "all", (LAST, f"{LAST}    twice = payments_1h * 2\n")),
    edit("derived changed", "all", ("amount_24h / payments_1h", "payments_1h / amount_24h")),
    edit("derived removed", "all", (LAST, "")),
    edit("a shorter window beside the longer one", "all", (LAST, f'{LAST}    half = lf.count("30m", step="5m")\n')),
    edit("shorter ttl", "all", ('ttl="30d"', 'ttl="7d"')),
    edit("removed", "tiles", (BIG, "")),
    edit("a lifetime removed", "tiles", (EVER, "")),
    edit("order", "tiles", (COUNT + BIG, BIG + COUNT)),
    edit("shorter window", "tiles", ('lf.last(Payment.note, "7d")', 'lf.last(Payment.note, "6d")')),
    edit("longer window", "new", ('lf.last(Payment.note, "7d")', 'lf.last(Payment.note, "8d")')),
    edit("finer step", "new", ('lf.count("1h")', 'lf.count("1h", step="1m")')),
    edit("added", "new", (LAST, f'{LAST}    points_24h = lf.sum(Payment.points, "24h")\n')),
    edit("where", "new", ("amount > 50)", "amount > 20)")),
    edit("where removed", "tiles", (", where=Payment.amount > 50)", ")")),
    edit("aggregate", "new", ("lf.sum(Payment.amount", "lf.max(Payment.amount")),
    edit("field", "new", ("lf.last_n(Payment.points", "lf.last_n(Payment.id")),
    edit("scale", "new", ('lf.sum(Payment.amount, "24h")', 'lf.sum(Payment.amount, "24h", scale=1)')),
    edit("n", "new", ("n=3", "n=4")),
    edit("key", "new", ("by=Payment.account)", "by=(Payment.account, Payment.points))")),
    edit("lateness", "new", ('lateness="10m"', 'lateness="2h"')),
    edit("rule", "new", ("amount: float", "amount: Annotated[float, annotated_types.Lt(90)]")),
)
# The edits whose verdict rests on which records count: what is late here, and what breaks the rule there.
LATE_S = 3_000.0


class Bench:
    """One project in which everything is tried, and what was sent to it."""

    def __init__(self, cluster: Cluster, root: Path, spark: Any) -> None:
        self.endpoints, self.root, self.spark = cluster.endpoints, root, spark
        self.namespace = f"v{uuid.uuid4().hex[:8]}"
        self.sent: list[tuple[dict[str, Any], float]] = []  # with how late it was
        self._chance = random.Random(30)
        self.app = self.app_of(BASE)
        projects.apply(self.app)

    def app_of(self, text: str) -> leftfold.App:
        return projects.make(self.root, self.endpoints, self.namespace, text)

    def send(self, count: int) -> None:
        made = []
        for number in range(len(self.sent), len(self.sent) + count):
            late_s = LATE_S if number % 10 == 0 else self._chance.uniform(0, 5)
            record = {
                "id": number,
                # One of them is quiet once the base has run: only its old tiles tell what state would have lacked.
                "account": "quiet" if number < FIRST and number % 17 == 0 else f"a{number % 17}",
                "amount": float(self._chance.randrange(100)),
                "points": self._chance.randrange(3),
                "note": None if number % 3 else f"n{number}",
                "at": datetime.now(UTC) - timedelta(seconds=late_s),
            }
            made.append((record, late_s))
        with self.app.producer("payments") as producer:
            for record, _ in made:
                producer.send_dict(record)
        self.sent += made

    def run(self, app: leftfold.App) -> Progress:
        (progress,) = run_until_caught_up(app, self.spark)
        return progress

    def rows(self, build: str | None) -> dict[tuple[str, str], tuple[int, list[Any]]]:
        return oracle.read_store(self.endpoints.redis_url, f"lf:{self.namespace}:row:{VIEW}:{build}:")

    def forced(self, app: leftfold.App, base: Definition) -> list[dict[tuple[str, str], tuple[int, list[Any]]]] | None:
        """What the edited query writes if it goes on with a copy of the base's checkpoint; None if Spark refuses."""
        (view,) = app.supervisor(until_caught_up=True).views
        view.prepare(self.spark)
        copied = self.root / "forced" / uuid.uuid4().hex
        shutil.copytree(Path(app.checkpoints) / VIEW / base.fingerprint, copied)
        written: list[dict[tuple[str, str], tuple[int, list[Any]]]] = []
        job = view._job

        def collect(batch: Any, number: int) -> None:
            rows = [r for r in job.packed(batch, number).collect() if r.entity is not None]
            held = {(r.entity, r.name): json.loads(r.value) for r in rows}
            written.append({place: (index, partials) for place, (index, _, *partials) in held.items()})

        query = start_query(
            self.spark,
            job,
            view._source,
            delay=view.watermark.delay,
            checkpoint=str(copied),
            on_batch=collect,
            until_caught_up=True,
        )
        query.wait(300)
        assert not query.active
        return None if query.failure() else written

    def check_values(self, app: leftfold.App, *, lateness_s: float, limit: float) -> None:
        """Rows that are read, against the meaning in plain Python, for every key."""
        view = app.catalog.view(VIEW)
        declared: Any = view.declared
        events = [
            declared.__leftfold_reading__.event(**record)
            for record, late_s in self.sent
            if late_s <= lateness_s and record["amount"] < limit
        ]
        names = [key.name for key in declared.__leftfold_definition__.keys]
        for key in {tuple(getattr(event, name) for name in names) for event in events}:
            named = dict(zip(names, key, strict=True))
            row = app.get(declared, **named)
            expected = declared.compute(events, at=row.read_at, **named)
            assert row.values == expected.values, f"{named}"


@pytest.fixture(scope="module")
def bench(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Bench:
    return Bench(cluster, tmp_path_factory.mktemp("verdicts"), spark)


def served(bench: Bench, app: leftfold.App, base: Definition, build: str, before: dict[Any, Any]) -> bool:
    """Whether the base's state, forced upon the edited view, would have given the tiles of the build that it made."""
    written = bench.forced(app, base)
    if written is None:
        return False
    held = dict(before)
    for batch in written:
        held |= batch
    return held == bench.rows(build)


def test_the_plan_says_what_spark_does(bench: Bench, capsys: Any) -> None:
    tried = EDITS if FULL else EDITS[::4]
    assert {one.served for one in tried} == {"same", "all", "tiles", "new"}
    base = bench.app.catalog.view(VIEW).definition
    assert isinstance(base, Definition)
    bench.send(FIRST)
    first = bench.run(bench.app)
    assert first.last is not None
    batch = first.last.number
    wrong = []
    for one in tried:
        started = time.monotonic()
        before = bench.rows(first.build)
        bench.send(30)
        app = bench.app_of(one.text)
        if one.applied:
            projects.apply(app)
        after = app.catalog.view(VIEW).definition
        assert isinstance(after, Definition)
        said = changes(base, after)
        did = bench.run(app)
        assert did.error is None, f"{one.name}: {did.error}"
        assert did.last is not None, one.name
        limit = 90.0 if one.name == "rule" else 1_000.0
        bench.check_values(app, lateness_s=7_200 if one.name == "lateness" else 600, limit=limit)
        if did.build == first.build:
            batch += 1
            found = "same" if did.last.number == batch else f"batch {did.last.number}, not {batch}"
        elif did.last.number != 0:
            found = f"another build at batch {did.last.number}"
        else:
            kept = served(bench, app, base, str(did.build), before)
            found = "all" if kept else "not all"
        expected = "same" if said.verdict == "continues" else "all" if said.serves == "all" else "not all"
        if found != expected or one.served != ("same" if said.verdict == "continues" else said.serves):
            wrong.append(
                f"{one.name}: expected {one.served}, the plan says {said.verdict}/{said.serves}, Spark: {found}"
            )
        with capsys.disabled():
            print(f"    {time.monotonic() - started:5.1f} s  {one.name}: {said.verdict}/{said.serves}, {found}")
    assert not wrong, "\n".join(wrong)
    with capsys.disabled():
        print(f"    {len(tried)} of {len(tried)} verdicts are what Spark did")


def test_there_and_back(bench: Bench) -> None:
    """The base is run again after all its edits: it goes on where it stood, with what was sent meanwhile."""
    bench.send(10)
    did = bench.run(bench.app_of(BASE))
    assert did.error is None
    assert did.build is not None
    assert did.build.partition("-")[0] == bench.app.catalog.view(VIEW).fingerprint
    assert did.last is not None
    assert did.last.number > 0
    bench.check_values(bench.app, lateness_s=600, limit=1_000.0)
