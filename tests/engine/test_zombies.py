"""A driver that is stopped in mid-write, overtaken by another, and wakes up: it must change nothing.

Two drivers with a JVM of their own each take turns: the one at work is stopped with SIGSTOP, all of it, at a point of
its batch; the other takes over the same checkpoint and goes on; then the first is continued with SIGCONT.
`make engine` does it 3 times, and 2 times over a table with deletions; `make nightly` once each
on Postgres and Redis Cluster; `make crash-matrix` 50 times each, and 20 times on Postgres.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from leftfold.kafka.admin import Admin
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.crashes import POINTS
from tests.engine.effects import VIEW, Project
from tests.engine.log import count_records

FULL = os.environ.get("LEFTFOLD_CRASHES") == "full"
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
ZOMBIES, OF_TABLES, ON_POSTGRES, ON_CLUSTER = (50, 50, 20, 50) if FULL else (3, 2, 1, 1)
ITEMS = """\
import leftfold as lf


class ItemUpdate(lf.Event):
    item_id: str
    category: str


items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True, partitions=6)


class Item(lf.Table, of=items, by=ItemUpdate.item_id, to=[lf.Online(), lf.Changelog()]):
    category = ItemUpdate.category
"""


class Driver:
    """A process group with a JVM of its own that does one run after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._errors = (root / "driver.err").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.crashes", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def tell(self, **told: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        line = self._line()
        assert line, "the driver is gone"
        document: dict[str, Any] = json.loads(line)
        return document

    def fate(self) -> str:
        """With which code a zombie was refused; or "gone": after a long stop librdkafka may abort its process."""
        if line := self._line():
            woken = json.loads(line)
            assert woken["state"] == "failed", f"a zombie ended as {woken}"
            return str(woken["code"])
        said = (self.root / "driver.err").read_text()
        assert "rdkafka" in said.rstrip().rpartition("\n")[2], f"the zombie is gone: {said[-500:]}"
        return "gone"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def is_stopped(self) -> bool:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def go_on(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        with suppress(ProcessLookupError):  # gone already
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Drivers:
    """Two of them, for all tests here: a JVM costs more than a run."""

    def __init__(self, roots: list[Path]) -> None:
        self.pair = [Driver(root) for root in roots]
        for one in self.pair:
            assert one.answer() == {"ready": True}

    def replace(self, gone: Driver) -> None:
        again = self.pair[self.pair.index(gone)] = Driver(gone.root)
        assert again.answer() == {"ready": True}

    def overtake(self, number: int, project: Any, roots: list[Path], point: str, records: int) -> Iterator[str]:
        """Stop one of them at a point, let the other go on, twice; and once more the first. Yields what was reached."""
        turns = (0, 1) if number % 2 == 0 else (1, 0)
        (zombie, its_root), (heir, heirs_root) = ((self.pair[turn], str(roots[turn])) for turn in turns)
        zombie.tell(point=point, how="stop", records=records, root=its_root)
        projects.await_true(zombie.is_stopped, timeout=400, what=f"a stop at {point}")
        heir.tell(records=records, root=heirs_root)
        taken = heir.answer()
        assert taken["state"] == "caught up", taken
        project.send(500)
        heir.tell(records=records, root=heirs_root)
        yield str(heir.answer()["build"])
        zombie.go_on()
        code = zombie.fate()
        if code == "gone":
            self.replace(zombie)
        yield code


@pytest.fixture(scope="module")
def drivers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    roots = [tmp_path_factory.mktemp("driver") for _ in range(2)]
    for root in roots:
        projects.make(root, cluster.endpoints, "nothing")
    made = Drivers(roots)
    yield made
    for one in made.pair:
        one.end()


def twin(project: Project, root: Path) -> Path:
    """The same project, checkpoints included, on another machine so to speak: nothing local tells of the first."""
    root.mkdir()
    first = project.app.root
    (root / "streams.py").write_text((first / "streams.py").read_text())
    (root / "leftfold.toml").write_text((first / "leftfold.toml").read_text())
    return root


def share_checkpoints(project: Any, root: Path) -> list[Path]:
    settings = project.app.root / "leftfold.toml"
    settings.write_text(settings.read_text() + f'checkpoints = "{root / "checkpoints"}"\n')
    return [project.app.root, twin(project, root / "second")]


@pytest.mark.timeout(5_400 if FULL else 900)
@pytest.mark.parametrize(
    ("engine", "zombies"),
    [
        ("redis", ZOMBIES),
        pytest.param("postgres", ON_POSTGRES, marks=pytest.mark.nightly),
        pytest.param("redis_cluster", ON_CLUSTER, marks=pytest.mark.nightly),
    ],
)
def test_a_zombie_changes_nothing(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, drivers: Drivers, engine: str, zombies: int
) -> None:
    chance = random.Random(SEED)
    online = None if engine == "redis" else request.getfixturevalue(engine)
    project = Project(cluster.endpoints, tmp_path / "first", seed=SEED, online=online)
    roots = share_checkpoints(project, tmp_path)
    admin: Admin = project.app.log[0]
    at_once = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
    admin.set_configs(project.changelog, at_once)
    codes: dict[str, int] = {}
    for number in range(zombies):
        # Of the few on other stores the points are those of the store.
        points = POINTS if engine == "redis" or FULL else POINTS[1:4]
        point, records = chance.choice(points), chance.choice([100, 20_000])
        project.send(chance.choice([700, 6_000]))
        reached = drivers.overtake(number, project, roots, point, records)
        build = next(reached)
        project.check(build)
        code = next(reached)
        codes[code] = codes.get(code, 0) + 1
        tiles = project.check(build)
        print(f"zombie {number + 1}, stopped at {point}: {code}", flush=True)
    if engine == "redis":  # the changelog knows nothing of the store
        written = sum(receipt.rows for receipt in project.receipts(build))
        projects.await_true(
            lambda: count_records(project.endpoints.bootstrap, project.changelog) < written,
            timeout=120,
            what="compaction of the changelog",
        )
        project.check(build)  # by a reader that sees what compaction has left
    print(
        f"seed {SEED}: {zombies} drivers on {engine} stopped in mid-batch, overtaken and continued ({codes}): "
        f"0 stale values in {tiles:,} tiles of {VIEW}, online and in the changelog"
    )


class Items:
    """A table with as many deletions as updates, of few keys: most rows are another thing after each batch."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.app = projects.make(root, cluster.endpoints, f"t{uuid.uuid4().hex[:8]}", ITEMS)
        projects.apply(self.app)
        self.store: Any = redis.Redis.from_url(cluster.endpoints.redis_url, decode_responses=True)
        self.truth: dict[str, str | None] = {}
        self._chance = random.Random(SEED)

    def send(self, count: int) -> None:
        with self.app.producer("items") as producer:
            for number in range(count):
                item = f"i{self._chance.randrange(80)}"
                self.truth[item] = None if self._chance.random() < 0.5 else f"c{number}"
                if self.truth[item] is None:
                    producer.delete(item_id=item)
                else:
                    producer.send_dict({"item_id": item, "category": self.truth[item]})

    def rows(self, build: str) -> dict[str, tuple[str, int]]:
        """Of each item its row, and when that expires, ms; -1: never."""
        prefix = f"lf:{self.app.profile.namespace}:row:item:{build}:"
        keys = list(self.store.scan_iter(f"{prefix}*"))
        return {k.removeprefix(prefix): (self.store.hget(k, "row"), self.store.pexpiretime(k)) for k in keys}

    def check(self, build: str) -> dict[str, tuple[str, int]]:
        """Every row against what was sent; one that was deleted goes within a day, another one never."""
        rows = self.rows(build)
        found = {item: (json.loads(row)[2:] or [None])[0] for item, (row, _) in rows.items()}
        assert found == self.truth
        expiring = {item for item, (_, at) in rows.items() if at != -1}
        assert expiring == {item for item, category in self.truth.items() if category is None}
        return rows


@pytest.mark.timeout(5_400 if FULL else 900)
def test_a_zombie_over_a_table_with_deletions(cluster: Cluster, tmp_path: Path, drivers: Drivers) -> None:
    chance = random.Random(SEED)
    items = Items(cluster, tmp_path / "first")
    roots = share_checkpoints(items, tmp_path)
    codes: dict[str, int] = {}
    for number in range(OF_TABLES):
        # Of the few the first are those that have rows to write when they wake up.
        point = POINTS[number] if number < 2 else chance.choice(POINTS)
        items.send(300)
        reached = drivers.overtake(number, items, roots, point, chance.choice([100, 20_000]))
        build = next(reached)
        rows = items.check(build)
        code = next(reached)
        codes[code] = codes.get(code, 0) + 1
        assert items.rows(build) == rows, f"seed {SEED}, zombie {number + 1}, stopped at {point}"
        print(f"zombie {number + 1} of a table, stopped at {point}: {code}", flush=True)
    print(
        f"seed {SEED}: {OF_TABLES} drivers of a table stopped in mid-batch, overtaken and continued ({codes}): "
        f"every one of {len(rows)} rows and every expiry as it was"
    )
