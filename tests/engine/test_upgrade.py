"""What a release leaves behind, the next must continue: a checkpoint, a store and receipts, kept as files.

The files are of the release that last changed the layout of rows or state. `LEFTFOLD_RELEASE=write` makes them anew,
which is right only together with a new number in fold/definition.py; commit them with it.
"""

from __future__ import annotations

import json
import os
import random
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from leftfold.fold.definition import LAYOUT, STATE
from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.run.progress import Progress
from leftfold.testing.cluster import TestCluster, started
from tests.engine import oracle, projects
from tests.engine.driving import run_until_caught_up

DATA = Path(__file__).parents[1] / "data" / f"layout-{LAYOUT}-state-{STATE}"
WRITE = os.environ.get("LEFTFOLD_RELEASE") == "write"
NAMESPACE = "release"  # a checkpoint names its topic
VIEW = "account_activity"
STREAMS = projects.PAYMENTS.replace('lateness="10m"', 'lateness="10m", log_time="producer", retention="36500d"')
START = datetime(2026, 11, 15, 9, tzinfo=UTC)
RECORDS = 3_000


def payments(first: int, count: int) -> Iterator[tuple[dict[str, Any], datetime]]:
    """The same whenever they are sent: their offsets and log times are those that the files know."""
    chance = random.Random(first)
    for number in range(first, first + count):
        logged = START + timedelta(seconds=10 * number)  # nine hours in all, so that tiles of busy accounts are packed
        record = {
            "id": number,
            "account": f"a{int(chance.paretovariate(0.7)) % 50}",
            "amount": round(chance.lognormvariate(3.5, 1.2), 2),
            "points": chance.randrange(-3, 20),
            "note": None if chance.random() < 0.3 else f"n{number}",
            "at": logged - timedelta(seconds=chance.uniform(0, 700)),
        }
        yield record, logged


def text(stored: bytes) -> str:
    """As Latin-1, because packed tiles are no UTF-8, and JSON holds only texts."""
    return stored.decode("latin-1")


class Release:
    def __init__(self, cluster: TestCluster, root: Path) -> None:
        self.app = projects.make(root, cluster.endpoints, NAMESPACE, STREAMS)
        projects.apply(self.app)
        self.store: Any = redis.Redis.from_url(cluster.endpoints.redis_url)
        self.receipts = ReceiptLog(self.app.kafka, self.app.profile.topic_name("leftfold.receipts"))
        self.topic = self.app.profile.topic_name("payments")

    def send(self, first: int, count: int) -> None:
        with self.app.producer("payments") as producer:
            for record, logged in payments(first, count):
                producer.send_dict(record, log_time=logged)

    def run(self, spark: Any) -> Progress:
        (progress,) = run_until_caught_up(self.app, spark)
        assert progress.error is None, progress.error
        return progress

    def tiles(self, build: str | None) -> dict[tuple[str, str], tuple[int, list[Any]]]:
        return oracle.read_store(self.app.online.url.get_secret_value(), f"lf:{NAMESPACE}:row:{VIEW}:{build}:")

    def write(self, build: str | None) -> None:
        """What the release leaves behind, as files."""
        DATA.mkdir(parents=True, exist_ok=True)
        with tarfile.open(DATA / "checkpoint.tar.xz", "w:xz") as archive:
            archive.add(self.app.checkpoints, arcname="checkpoints")
        held = {text(key): self._held(key) for key in sorted(self.store.scan_iter(f"lf:{NAMESPACE}:*"))}
        (DATA / "store.json").write_text(json.dumps(held, indent=0))
        books = {key: kept.document for key, kept in self.receipts.read(f"{VIEW}/{build}").items()}
        (DATA / "receipts.json").write_text(json.dumps({"scope": f"{VIEW}/{build}", "receipts": books}, indent=0))

    def _held(self, key: bytes) -> Any:
        match self.store.type(key):
            case b"hash":
                return {text(name): text(value) for name, value in self.store.hgetall(key).items()}
            case b"set":
                return sorted(map(text, self.store.smembers(key)))
            case _:
                return text(self.store.get(key))

    def restore(self) -> str:
        """The files into engines that never saw the release; the build that they are of."""
        with tarfile.open(DATA / "checkpoint.tar.xz") as archive:
            archive.extractall(Path(self.app.checkpoints).parent, filter="data")
        held = json.loads((DATA / "store.json").read_text())
        assert any("packed" in value for value in held.values() if isinstance(value, dict))
        for key, value in held.items():
            if isinstance(value, dict):
                self.store.hset(key, mapping={name: each.encode("latin-1") for name, each in value.items()})
            elif isinstance(value, list):
                self.store.sadd(key, *value)
            else:
                self.store.set(key, value)
        books = json.loads((DATA / "receipts.json").read_text())
        ids = {"payments": self.app.log[0].topic_ids([self.topic])[self.topic]}  # of this cluster's topic
        self.receipts.append(books["scope"], [(key, {**r, "topics": ids}) for key, r in books["receipts"].items()])
        return str(books["scope"].split("/")[1])


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster that no other test uses.

    A record starts with the id that the registry gave to its schema, and a receipt holds a hash of the last record. In
    a registry where other tests have registered schemas, the same payments get another id, so they are other records.
    """
    (tmp_path / "cluster").mkdir()
    with started(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.mark.timeout(600)
def test_what_a_release_left_behind_is_continued(new_cluster: TestCluster, tmp_path: Path, spark: Any) -> None:
    release = Release(new_cluster, tmp_path / "release")
    release.send(0, RECORDS)
    if WRITE:
        release.write(release.run(spark).build)
        pytest.fail(f"{DATA} was written; run the test again, without LEFTFOLD_RELEASE")
    build = release.restore()
    release.send(RECORDS, 500)
    continued = release.run(spark)
    assert continued.build == build, "the release's build was not continued"
    assert continued.note is None
    assert sum(continued.records().values()) == 500
    after = release.tiles(build)

    supervisor = release.app.supervisor(until_caught_up=True, fresh=[VIEW])
    supervisor.helpers = []
    (anew,) = supervisor.run(lambda _: None, session=spark)
    assert anew.error is None
    assert anew.build != build
    wrong = oracle.differences(release.tiles(anew.build), after)
    assert not wrong, f"{len(wrong)} of {len(after)} tiles differ: {wrong[:3]}"
