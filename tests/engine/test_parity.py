"""What readers get online and what a training set holds are the same values.

At a frozen log position: every feature of every key, read for one moment. And while everything runs: what readers
really got, against what was served then. `make engine` runs small versions; `make parity` 20,000 keys, 10,000 reads.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.run.supervisor import Supervisor
from leftfold.store.serving import NamedRow
from tests.engine import projects, test_meaning
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up

FULL = os.environ.get("LEFTFOLD_PARITY") == "full"
KEYS, EVENTS = (20_000, 400_000) if FULL else (800, 12_000)
READS = 10_000 if FULL else 300
# Events a second while readers read: little enough for batches of a second or two on a small machine.
RATE = 300
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))

SALES = (
    test_meaning.SALES.replace('lateness="4h"', 'lateness="2h"')
    .replace('over("1h")', 'over("12s")')
    .replace('over("2h")', 'over("1h")')
)


def sale(chance: random.Random, newest: datetime, spread_s: float, keys: int) -> dict[str, Any]:
    """A third of one shop; a tenth long after it happened."""
    at = newest - timedelta(seconds=chance.uniform(0, spread_s))
    if chance.random() < 0.1:
        at -= timedelta(seconds=chance.uniform(0, 5_000))
    shop = 0 if chance.random() < 0.3 else chance.randrange(keys)
    return {
        "shop": f"s{shop}",
        "item": None if chance.random() < 0.1 else f"i{int(chance.paretovariate(0.6)) % 3_000}",
        "price": round(chance.lognormvariate(3, 1.3), 2) * chance.choice((1, 1, 1, -1)),
        "pieces": chance.randrange(0, 6),
        "at": at,
    }


def project(cluster: Cluster, directory: Path) -> leftfold.App:
    app = projects.make(directory, cluster.endpoints, f"p{uuid.uuid4().hex[:8]}", SALES)
    projects.apply(app)
    return app


@pytest.mark.timeout(3_600 if FULL else 900)
def test_at_a_frozen_position(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    chance = random.Random(SEED)
    app = project(cluster, tmp_path)
    with app.producer("sales") as producer:
        now = datetime.now(UTC)
        for _ in range(EVENTS):
            producer.send_dict(sale(chance, now, 1_800, KEYS))
    (progress,) = run_until_caught_up(app, spark)
    assert progress.error is None, progress.error
    at = datetime.now(UTC) + timedelta(seconds=3)  # no record of these is logged or applied after it
    shops = [f"s{n}" for n in range(KEYS + 3)]
    labels = spark.createDataFrame([(shop, at) for shop in shops], "shop string, ts timestamp")
    online: dict[str, NamedRow] = {}
    for start in range(0, len(shops), 500):
        chunk = shops[start : start + 500]
        rows = app.get_many("shop", [{"shop": shop} for shop in chunk], at=at)
        online |= dict(zip(chunk, rows, strict=True))
    wrong: list[str] = []
    for as_of in ("log", "served"):
        with app.training_set(labels, "shop", time="ts", as_of=as_of) as train:
            found = {row.shop: row for row in train.frame.collect()}
        assert found.keys() == online.keys()
        wrong += [w for shop, row in online.items() for w in differences(f"{as_of} {shop}", row, found[shop])]
    print(f"seed {SEED}: {len(shops):,} keys, {len(shops) * 48:,} values compared, {len(wrong)} differ")
    assert wrong[:5] == []


def differences(what: str, online: NamedRow, found: Any) -> list[str]:
    wrong = []
    for name, value in online.values.items():
        mine = found[name]
        if isinstance(mine, datetime):  # as Spark gives them: without their zone, in this machine's
            mine = mine.astimezone(UTC)
        if mine != value or type(mine) is not type(value):
            wrong.append(f"{what} {name}: online {value!r}, training set {mine!r}")
    return wrong


@pytest.mark.nightly
@pytest.mark.timeout(3_600 if FULL else 900)
def test_what_readers_got(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    app = project(cluster, tmp_path)
    read: list[tuple[str, NamedRow]] = []
    with producing(app), live(app, spark):
        projects.await_true(lambda: app.reader.ledger("shop") is not None, timeout=180, what="the first batch")
        chance = random.Random(SEED)
        batches: set[int] = set()
        deadline = time.monotonic() + (2_400 if FULL else 240)
        # Until there are enough, of several batches, whatever the machine makes of that.
        while (len(read) < READS or len(batches) < 4) and time.monotonic() < deadline:
            shop = "s0" if chance.random() < 0.3 else f"s{chance.randrange(40)}"
            row = app.get("shop", shop=shop)
            read.append((shop, row))
            batches.add(row.provenance[0].batch)
            time.sleep(chance.uniform(0, 0.05))
    assert len(read) >= READS
    assert len(batches) >= 4
    rows = [(n, shop, row.read_at, row.provenance[0].batch) for n, (shop, row) in enumerate(read)]
    labels = spark.createDataFrame(rows, "n int, shop string, ts timestamp, batch long")
    with app.training_set(labels, "shop", time="ts", as_of="served", batch="batch") as train:
        found = {row.n: row for row in train.frame.collect()}
    assert len(found) == len(read)
    wrong = [w for n, (shop, row) in enumerate(read) for w in differences(f"read {n} of {shop}", row, found[n])]
    print(f"seed {SEED}: {len(read):,} reads of {len(batches)} batches, {len(read) * 24:,} values, {len(wrong)} differ")
    assert wrong[:5] == []
    # By the receipts' own moments: the same, but for reads that a batch overtook between their moment and the answer.
    with app.training_set(labels.drop("batch"), "shop", time="ts", as_of="served") as train:
        found = {row.n: row for row in train.frame.collect()}
    overtaken = sum(bool(differences("", row, found[n])) for n, (_, row) in enumerate(read))
    print(f"by the moment of the read alone: {overtaken} of {len(read):,} reads differ")
    assert overtaken < len(read) / 2


@contextmanager
def producing(app: leftfold.App) -> Iterator[None]:
    """Sales all the time, none stamped ahead of the clock."""
    ended = threading.Event()
    chance = random.Random(SEED + 1)

    def send() -> None:
        with app.producer("sales") as producer:
            while not ended.is_set():
                for _ in range(RATE // 10):
                    producer.send_dict(sale(chance, datetime.now(UTC), 5, 40))
                ended.wait(0.1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def live(app: leftfold.App, spark: Any) -> Iterator[Supervisor]:
    supervisor = app.supervisor()
    thread = threading.Thread(target=lambda: supervisor.run(lambda _: None, session=spark))
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join(180)
    assert not thread.is_alive()
