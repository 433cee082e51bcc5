"""Millions of keys in one batch with a small driver: nothing of a batch gathers there.

`make engine` takes 200,000 keys; `make many-keys` 500,000 and 5,000,000, and compares the driver's memory.
"""

from __future__ import annotations

import os
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.log import avro_long

FULL = os.environ.get("LEFTFOLD_KEYS") == "full"
SIZES = (500_000, 5_000_000) if FULL else (200_000,)
STREAMS = """\
from datetime import datetime

import leftfold as lf


class Visit(lf.Event):
    page: int
    at: datetime


visits = lf.Topic("visits", Visit, key=Visit.page, time=Visit.at, partitions=6)


class Pages(lf.Features, of=visits, by=Visit.page):
    visits_1h = lf.count("1h")
"""


def peak_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1_024


def java_of(pid: int) -> int | None:
    """The JVM is a child of the driver's Python; None while there is none yet."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next((int(c) for c in children if "java" in Path(f"/proc/{c}/cmdline").read_text()), None)


def counted(cluster: Cluster, root: Path, keys: int) -> tuple[int, int]:
    """Run one batch of so many keys; the most memory that the driver's Python and its JVM had, in MB."""
    app = projects.make(root, cluster.endpoints, f"k{uuid.uuid4().hex[:8]}", STREAMS)
    settings = root / "leftfold.toml"
    conf = f'spark = {{ most_offsets = {keys}, conf = {{ "spark.driver.memory" = "1g" }} }}\n'
    settings.write_text(settings.read_text() + conf)
    projects.apply(app)
    now = datetime.now(UTC)
    with app.producer("visits") as producer:
        encoded = producer.encode({"page": 0, "at": now})
        body = encoded[:5], encoded[6:]  # the page stands first, as one byte when it is 0
        for page in range(keys):
            producer.send_encoded(str(page).encode(), body[0] + avro_long(page) + body[1])
    memory = (0, 0)
    with projects.running(root, "--until-caught-up", "--views", "pages") as run:
        while run.alive:
            time.sleep(0.5)  # a sample, not a wait for anything
            if run.alive and (java := java_of(run.process.pid)) is not None:
                memory = peak_mb(run.process.pid), peak_mb(java)
        assert run.wait(1) == 0, run.explain()
        done = run.lines()[-1]["views"][0]
    assert done["batches"] == 1
    assert done["records"]["accepted"] == keys
    client = redis.Redis.from_url(cluster.endpoints.redis_url)
    rows = f"lf:{app.profile.namespace}:row:pages:{done['build']}:"
    found = list(client.scan_iter(match=f"{rows}*", count=10_000))
    assert len(found) == keys
    for start in range(0, keys, 10_000):
        client.unlink(*found[start : start + 10_000])
    return memory


@pytest.mark.nightly
@pytest.mark.timeout(3_600 if FULL else 600)
def test_many_keys_in_one_batch(cluster: Cluster, tmp_path: Path) -> None:
    used = {keys: counted(cluster, tmp_path / f"keys{keys}", keys) for keys in SIZES}
    for keys, (python, java) in used.items():
        print(f"{keys:,} keys in one batch, heap 1 GiB: the driver's Python had at most {python} MB, its JVM {java} MB")
        assert 0 < python < 400
    assert max(p for p, _ in used.values()) - min(p for p, _ in used.values()) < 50
