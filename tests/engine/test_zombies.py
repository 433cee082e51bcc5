"""A driver that is stopped in mid-write, overtaken by another, and wakes up: it must change nothing.

Two drivers with a JVM of their own each take turns: the one at work is stopped with SIGSTOP, all of it, at a point of
its batch; the other takes over the same checkpoint and goes on; then the first is continued with SIGCONT.
`make engine` does it 3 times, `make crash-matrix` 50 times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from leftfold.kafka.admin import Admin
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.crashes import POINTS
from tests.engine.effects import VIEW, Project
from tests.engine.log import count_records

FULL = os.environ.get("LEFTFOLD_CRASHES") == "full"
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
ZOMBIES = 50 if FULL else 3


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


@contextmanager
def driver(root: Path) -> Iterator[Driver]:
    made = Driver(root)
    try:
        yield made
    finally:
        made.end()


def twin(project: Project, root: Path) -> Path:
    """The same project, checkpoints included, on another machine so to speak: nothing local tells of the first."""
    root.mkdir()
    first = project.app.root
    (root / "streams.py").write_text((first / "streams.py").read_text())
    (root / "leftfold.toml").write_text((first / "leftfold.toml").read_text())
    return root


@pytest.mark.timeout(5_400 if FULL else 900)
def test_a_zombie_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    project = Project(cluster.endpoints, tmp_path / "first", seed=SEED)
    settings = project.app.root / "leftfold.toml"
    settings.write_text(settings.read_text() + f'checkpoints = "{tmp_path / "checkpoints"}"\n')
    admin: Admin = project.app.log[0]
    at_once = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
    admin.set_configs(project.changelog, at_once)
    codes: dict[str, int] = {}
    with ExitStack() as held:
        drivers = [held.enter_context(driver(root)) for root in (project.app.root, twin(project, tmp_path / "second"))]
        for one in drivers:
            assert one.answer() == {"ready": True}
        build = None
        for number in range(ZOMBIES):
            zombie, heir = drivers if number % 2 == 0 else drivers[::-1]
            point, records = chance.choice(POINTS), chance.choice([100, 20_000])
            project.send(chance.choice([700, 6_000]))
            zombie.tell(point=point, how="stop", records=records)
            projects.await_true(zombie.is_stopped, timeout=180, what=f"a stop at {point}")
            heir.tell(records=records)
            taken = heir.answer()
            assert taken["state"] == "caught up", taken
            project.send(500)
            heir.tell(records=records)
            build = heir.answer()["build"]
            project.check(build)
            zombie.go_on()
            code = zombie.fate()
            codes[code] = codes.get(code, 0) + 1
            tiles = project.check(build)
            print(f"zombie {number + 1}, stopped at {point}: {code}", flush=True)
            if code == "gone":
                again = drivers[drivers.index(zombie)] = held.enter_context(driver(zombie.root))
                assert again.answer() == {"ready": True}
    written = sum(receipt.rows for receipt in project.receipts(str(build)))
    projects.await_true(
        lambda: count_records(project.endpoints.bootstrap, project.changelog) < written,
        timeout=120,
        what="compaction of the changelog",
    )
    project.check(build)  # by a reader that sees what compaction has left
    print(
        f"seed {SEED}: {ZOMBIES} drivers stopped in mid-batch, overtaken and continued ({codes}): "
        f"0 stale values in {tiles:,} tiles of {VIEW}, online and in the changelog, also after its compaction"
    )
