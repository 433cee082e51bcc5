"""Projects for engine tests. Each has its own declarations and its own namespace on the shared cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import leftfold
from leftfold.local.endpoints import Endpoints
from leftfold.store.layout import Build, manifest
from leftfold.store.redis.client import connect
from leftfold.store.redis.names import Names

LEFTFOLD = str(Path(sys.executable).with_name("leftfold"))

PAYMENTS = """\
from datetime import datetime

import leftfold as lf


class Payment(lf.Event):
    id: int
    account: str
    amount: float
    points: int
    note: str | None = None
    at: datetime


payments = lf.Topic("payments", Payment, key=Payment.account, time=Payment.at, partitions=6, lateness="10m")


class AccountActivity(lf.Features, of=payments, by=Payment.account):
    payments_1h = lf.count("1h")
    big_1h = lf.count("1h", where=(Payment.amount > 100) & (Payment.points >= 5))
    amount_24h = lf.sum(Payment.amount, "24h")
    points_24h = lf.sum(Payment.points, "24h")
    note_7d = lf.last(Payment.note, "7d")
    amount_7d = lf.last(Payment.amount, "7d")
"""


def make(
    root: Path,
    endpoints: Endpoints,
    namespace: str,
    streams: str = PAYMENTS,
    *,
    profile: str = "local",
    online: str | None = None,
) -> leftfold.App:
    """Make a project whose profile names the cluster's engines, as a profile for production would.

    `online` is the URL of another store than the cluster's Redis.
    """
    root.mkdir(parents=True, exist_ok=True)
    (root / "streams.py").write_text(streams)
    (root / "leftfold.toml").write_text('[project]\nname = "engine"\ndeclarations = ["streams.py"]\n')
    name_engines(root, endpoints, namespace, profile=profile, online=online)
    return leftfold.open(root, profile=profile)


def put_build(app: leftfold.App, view: str, role: Literal["active", "staged"]) -> None:
    """Put a build of the view, as it is declared, into the store. It has no rows: only its definition counts."""
    definition: Any = app.catalog.view(view).definition
    names, store = Names(app.profile.namespace, view), connect(app.online.address)
    build = Build(definition, uuid.uuid4().hex)
    store.set(names.manifest(build.id), manifest(build))
    store.set(getattr(names, role), build.id)


def name_engines(
    root: Path, endpoints: Endpoints, namespace: str, *, profile: str = "local", online: str | None = None
) -> None:
    """Append a profile with these engines to the project's leftfold.toml."""
    with (root / "leftfold.toml").open("a") as toml:
        toml.write(
            f'\n[profile.{profile}]\nnamespace = "{namespace}"\n'
            f'kafka = {{ bootstrap = "{endpoints.bootstrap}" }}\n'
            f'registry = {{ url = "{endpoints.registry_url}" }}\n'
            f'online = {{ url = "{online or endpoints.redis_url}" }}\n'
        )


def apply(app: leftfold.App) -> None:
    for _ in app.apply(app.plan()):
        pass


def await_true(condition: Callable[[], bool], *, timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}"
        time.sleep(0.05)


class Running:
    """A process `leftfold run --json`, in its own process group."""

    def __init__(self, root: Path, *options: str) -> None:
        self._out = (root / "run.jsonl").open("wb")
        self._err = (root / "run.err").open("ab")
        self.root = root
        self.process = subprocess.Popen(
            [LEFTFOLD, "run", "--json", *options], cwd=root, stdout=self._out, stderr=self._err, start_new_session=True
        )

    def lines(self) -> list[dict[str, Any]]:
        text = (self.root / "run.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def await_batches(self, number: int, timeout: float = 180) -> None:
        await_true(lambda: len(self.lines()) >= number or not self.alive, timeout=timeout, what=f"{number} batches")
        assert self.alive, self.explain()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL to the whole process group at once: Python, the JVM and its Python workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def terminate(self, how: signal.Signals, timeout: float = 60) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout)

    def wait(self, timeout: float) -> int:
        return self.process.wait(timeout)

    def explain(self) -> str:
        return (self.root / "run.jsonl").read_text()[-3_000:] + (self.root / "run.err").read_text()[-3_000:]


@contextmanager
def running(root: Path, *options: str) -> Iterator[Running]:
    run = Running(root, *options)
    try:
        yield run
    finally:
        if run.alive:
            run.kill()
