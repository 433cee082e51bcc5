"""A partition that is read behind the others in log time: nothing accepted may be swept, whatever the batches were."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

import leftfold
from leftfold.declare import batches
from leftfold.run import watermark
from leftfold.spark.checkpoint import set_aside
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.test_producer import murmur2

TICKS = """\
from datetime import datetime

import leftfold as lf


class Tick(lf.Event):
    key: str
    at: datetime


ticks = lf.Topic("ticks", Tick, key=Tick.key, time=Tick.at, partitions=2, lateness="2s")


class PerKey(lf.Features, of=ticks, by=Tick.key):
    n = lf.count("30s", step="1s")
"""
# A real hour of log time cannot be waited for: everything is a thousand times shorter.
SLACK = 1_500_000
CLOCK_SLACK = 500_000


def uneven(app: leftfold.App) -> int:
    """Partition 0 gets nearly all of its records in the first second, partition 1 the same number over twelve."""
    keys = {
        p: [k for k in (f"k{n}" for n in range(200)) if (murmur2(k.encode()) & 0x7FFFFFFF) % 2 == p] for p in (0, 1)
    }
    sent = 0
    with app.producer("ticks") as producer:
        for tenth in range(120):
            counts = {0: 300 if tenth < 10 else 1, 1: 26}
            for partition, count in counts.items():
                for number in range(count):
                    key = keys[partition][number % len(keys[partition])]
                    producer.send_dict({"key": key, "at": datetime.now(UTC)})
                    sent += 1
            time.sleep(0.1)  # the log time of real records is the test's subject
    return sent


def counted(app: leftfold.App, build: str | None) -> int:
    """All counts of all tiles that the store holds."""
    store = redis.Redis.from_url(app.online.url.get_secret_value())
    keys = store.scan_iter(match=f"lf:{app.profile.namespace}:row:per_key:{build}:*", count=1_000)
    return sum(json.loads(value)[2] for key in keys for value in store.hvals(key))


def test_the_broom_waits_for_the_slowest_partition(
    cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermark, "SLACK", SLACK)
    monkeypatch.setattr(watermark, "CLOCK_SLACK", CLOCK_SLACK)
    monkeypatch.setattr(batches, "OFFSETS_PER_PARTITION", 400)
    app = projects.make(tmp_path / "ticks", cluster.endpoints, f"b{uuid.uuid4().hex[:8]}", TICKS)
    projects.apply(app)
    sent = uneven(app)

    supervisor = app.supervisor(until_caught_up=True)
    (view,) = supervisor.views
    view.start(spark, until_caught_up=True)
    view.wait()
    assert view.progress.error is None
    assert view.watermark.delay > watermark.first_delay(2_000_000), "the check before the commit never tripped"
    records = view.progress.records()
    assert sum(records.values()) == sent
    assert counted(app, view.progress.build) == records["accepted"]

    # Without the check the same log loses records, and the view says so: this test can fail.
    monkeypatch.setattr(watermark, "wider_delay", lambda *_, **__: None)
    set_aside(spark, view.checkpoint)
    (careless,) = app.supervisor(until_caught_up=True).views
    careless.start(spark, until_caught_up=True)
    careless.wait()
    assert careless.progress.error is not None
    assert careless.progress.error.code == "accepted-records-swept"
    assert counted(app, careless.progress.build) < sum(careless.progress.records().values())
