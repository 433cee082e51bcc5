"""State is bounded: as log time moves on, rows come and go, and their number levels off.

For windowed features and for a free view with an aggregation. `make engine` runs 24 batches, `make state` 200.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leftfold.declare import batches
from tests.engine import projects
from tests.engine.conftest import Cluster

FULL = os.environ.get("LEFTFOLD_STATE") == "full"
BATCHES, MINUTES = (200, 4) if FULL else (24, 20)  # log time that passes in a batch
PER_BATCH = 600
# Retention goes by the producer's time too, so all of it is recent.
START = datetime.now(UTC) - timedelta(minutes=MINUTES) * BATCHES - timedelta(hours=1)

PLAYS = """\
from datetime import datetime

import leftfold as lf


class Play(lf.Event):
    user_id: str
    item_id: str
    at: datetime


plays = lf.Topic("plays", Play, key=Play.user_id, time=Play.at, partitions=2, lateness="10m", log_time="producer")


class Users(lf.Features, of=plays, by=Play.user_id):
    n_1h = lf.count("1h")
    n_7d = lf.count("7d")
    recent = lf.last_n(Play.item_id, "24h", n=5)


@lf.view(plays, by="item_id", latest="window_end", to=[lf.Online()])
def trending(plays):
    from pyspark.sql import functions as F

    return (
        plays.groupBy(F.window("at", "5 minutes"), "item_id")
        .agg(F.count("*").alias("n"))
        .select("item_id", "n", F.col("window.end").alias("window_end"))
    )
"""


def counting(new_session: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """We run without this count of rows, which costs a look-up per write."""

    def made(session: Any) -> Any:
        own = new_session(session)
        own.conf.set("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "true")
        return own

    return made


@pytest.mark.timeout(1_800 if FULL else 600)
def test_state_levels_off(cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    app = projects.make(tmp_path / "plays", cluster.endpoints, f"s{uuid.uuid4().hex[:8]}", PLAYS)
    projects.apply(app)
    total = BATCHES * PER_BATCH
    with app.producer("plays") as producer:
        for number in range(total):
            log_time = START + timedelta(minutes=MINUTES) * (number / PER_BATCH)
            at = log_time - timedelta(seconds=chance.uniform(0, 500))
            user, item = f"u{chance.randrange(200)}", f"i{chance.randrange(100)}"
            producer.send_dict({"user_id": user, "item_id": item, "at": at}, log_time=log_time)
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", PER_BATCH // 2)
    monkeypatch.setattr(type(spark), "newSession", counting(type(spark).newSession))

    views = app.supervisor(until_caught_up=True).views
    rows: dict[str, dict[int, int]] = {view.name: {} for view in views}
    for view in views:
        view.start(spark, until_caught_up=True)
    while any(view.running for view in views):
        for view in views:
            view.query.wait(0.2)
            view.poll()
            for progress in view.query._query.recentProgress:
                rows[view.name][progress.batchId] = progress.stateOperators[0].numRowsTotal
    for view in views:
        assert view.progress.error is None, view.progress.error
        assert view.progress.records()["accepted"] == total
        held = [rows[view.name][n] for n in sorted(rows[view.name])]
        assert len(held) >= BATCHES * 0.9
        quarter = len(held) // 4
        early, late = max(held[quarter : 2 * quarter]), max(held[-quarter:])
        shown = ", ".join(f"{held[len(held) * share // 8 - 1]:,}" for share in range(1, 9))
        print(f"{view.name}: state rows after each eighth of {len(held)} batches: {shown}")
        assert late <= early * 1.1
        assert late > 0, "nothing was kept at all"
