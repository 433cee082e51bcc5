"""The same records are accepted, and make the same tiles, however they were batched.

One million records with late, out-of-order and future ones, over six hours of log time that the producer sets: run
live, after an outage, with a backlog that forms while running, and in three batch sizes. `make engine` runs a small
version, `make acceptance` the whole.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.declare import batches
from leftfold.run import watermark
from leftfold.run.view import RunningView
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster
from tests.engine.projects import await_true
from tests.engine.test_producer import murmur2

FULL = os.environ.get("LEFTFOLD_ACCEPTANCE") == "full"
RECORDS = 1_000_000 if FULL else 24_000
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
PARTITIONS = 6
SPAN = timedelta(hours=6)
START = datetime.now(UTC) - SPAN - timedelta(hours=1)  # retention goes by the producer's time too

VISITS = """\
from datetime import datetime

import leftfold as lf


class Visit(lf.Event):
    key: str
    amount: float
    page: str | None
    at: datetime


a = lf.Topic("visits_a", Visit, key=Visit.key, time=Visit.at, partitions=6, lateness="10m", log_time="producer")
b = lf.Topic("visits_b", Visit, key=Visit.key, time=Visit.at, partitions=6, lateness="10m", log_time="producer")


def features():
    return {
        "n": lf.count("24h", step="5m"),
        "total": lf.sum(Visit.amount, "24h", step="5m"),
        "page": lf.last(Visit.page, "24h", step="5m"),
        "pages": lf.last_n(Visit.page, "24h", n=3, step="5m"),
    }


OnA = type("OnA", (lf.Features,), features(), of=a, by=Visit.key)
OnB = type("OnB", (lf.Features,), features(), of=b, by=Visit.key)
"""


def visits(chance: random.Random) -> Iterator[tuple[datetime, dict[str, Any]]]:
    """Log time and record. One partition has ten times the records of any other, nearly all in the first half hour."""
    keys: dict[int, list[str]] = {}
    for key in (f"k{n}" for n in range(600)):
        keys.setdefault((murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS, []).append(key)
    plan = []
    for _ in range(RECORDS):
        fat = chance.random() < 10 / (10 + PARTITIONS - 1)
        early = fat and chance.random() < 0.95
        plan.append((chance.random() * (1 / 12 if early else 1), fat))
    for share, fat in sorted(plan):
        log_time = START + SPAN * share
        fate = chance.random()
        if fate < 0.01:
            delay = chance.uniform(601, 9_000)  # late
        elif fate < 0.02:
            delay = -chance.uniform(61, 3_000)  # from the future
        elif fate < 0.2:
            delay = chance.uniform(0, 600)  # out of order, up to the very edge
        else:
            delay = chance.uniform(-60, 5)
        partition = 0 if fat else chance.randrange(1, PARTITIONS)
        yield (
            log_time,
            {
                "key": chance.choice(keys[partition]),
                "amount": round(chance.gauss(20, 40), 2),
                "page": None if chance.random() < 0.2 else f"p{chance.randrange(50)}",
                "at": log_time - timedelta(seconds=delay),
            },
        )


class Outcome:
    """What a run left behind."""

    def __init__(self, app: leftfold.App, view: RunningView) -> None:
        prefix = f"lf:{app.profile.namespace}:row:{view.name}:{view.progress.build}:"
        self.tiles = oracle.read_store(app.online.url.get_secret_value(), prefix)
        self.records = view.progress.records()
        self.ledger = {n.split("/")[1]: r.records for n, r in view.build.ledger.items()}
        self.delay = view.watermark.delay
        self.swept = [p.stateOperators[0].numRowsDroppedByWatermark for p in view.query._query.recentProgress]


def finished(app: leftfold.App, view: RunningView) -> Outcome:
    assert view.progress.error is None, view.progress.error
    return Outcome(app, view)


@pytest.mark.timeout(3_000 if FULL else 900)
def test_same_records_same_tiles(cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {SEED}, {RECORDS:,} records")
    app = projects.make(tmp_path / "visits", cluster.endpoints, f"v{uuid.uuid4().hex[:8]}", VISITS)
    projects.apply(app)
    records = list(visits(random.Random(SEED)))

    def view_of(name: str, *, until_caught_up: bool) -> RunningView:
        fresh = app.profile.model_copy(update={"checkpoints": str(tmp_path / uuid.uuid4().hex)})
        app.profile = fresh
        (view,) = app.supervisor(views=[name], until_caught_up=until_caught_up).views
        view.start(spark, until_caught_up=until_caught_up)
        return view

    def send(topic: str, chosen: list[tuple[datetime, dict[str, Any]]]) -> None:
        with app.producer(topic) as producer:
            for log_time, record in chosen:
                producer.send_dict(record, log_time=log_time)

    def end(view: RunningView) -> Outcome:
        def all_read() -> bool:
            view.poll()
            return sum(view.progress.records().values()) == RECORDS or not view.running

        await_true(all_read, timeout=900, what="the view to read everything")
        view.stop()
        view.wait()
        return finished(app, view)

    runs: dict[str, Outcome] = {}

    live = view_of("on_a", until_caught_up=False)
    send("visits_a", records)
    runs["live"] = end(live)

    # After an outage: everything is there, and one partition is far behind the others in log time.
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", max(RECORDS // PARTITIONS // 12, 1))
    outage = view_of("on_a", until_caught_up=True)
    outage.wait()
    runs["after an outage"] = finished(app, outage)
    assert runs["after an outage"].delay > watermark.first_delay(live.watermark.lateness), (
        "the check before the commit never tripped"
    )

    # A backlog that forms while the view runs: it has read a tenth, then all the rest comes at once.
    forming = view_of("on_b", until_caught_up=False)
    tenth = RECORDS // 10
    send("visits_b", records[:tenth])
    await_true(lambda: sum(forming.progress.records().values()) >= tenth // 2, timeout=300, what="the first tenth")
    send("visits_b", records[tenth:])
    runs["backlog while running"] = end(forming)

    for share in (40 if FULL else 20, 7, 3):
        monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", max(RECORDS // PARTITIONS // share, 1))
        sized = view_of("on_a", until_caught_up=True)
        sized.wait()
        runs[f"{share} batches"] = finished(app, sized)

    first = runs["live"]
    assert first.records["late"] > 0
    assert first.records["future"] > 0
    for name, run in runs.items():
        different = oracle.differences(first.tiles, run.tiles)
        print(f"{name}: {run.records}, {len(run.tiles):,} tiles, {len(different)} differ, swept {sum(run.swept)}")
        assert different == []
        assert run.records == first.records
        assert run.ledger == first.ledger
        assert sum(run.swept) == 0
