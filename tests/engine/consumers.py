"""Consumers for engine tests: a project of one topic, handlers that note what they did, and processes that run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs forget to re-export these
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

import leftfold
from leftfold.local.endpoints import Endpoints
from leftfold.settings import group_id
from tests.engine import projects

ORDERS = """\
import os
from datetime import datetime

import leftfold as lf


class Order(lf.Event):
    number: int
    customer: str
    price: float
    at: datetime


orders = lf.Topic("orders", Order, key=Order.customer, time=Order.at, partitions=6, lateness="10m")
"""


def order(number: int, *, customers: int = 50) -> dict[str, Any]:
    return {
        "number": number,
        "customer": f"c{number * number % customers}",  # some customers order often, most rarely
        "price": number / 4,
        "at": datetime.now(UTC),
    }


def send(app: leftfold.App, numbers: range, *, customers: int = 50) -> None:
    app.send("orders", (order(number, customers=customers) for number in numbers))


def make(root: Path, endpoints: Endpoints, namespace: str, consumers: str) -> leftfold.App:
    """Make and apply a project with a topic of orders, and the given consumers."""
    app = projects.make(root, endpoints, namespace, ORDERS + consumers)
    projects.apply(app)
    return app


def shorten_sessions(app: leftfold.App, consumer: str) -> None:
    """Set the session of a group to 3 s, so that the partitions of a dead member move soon."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (("consumer.session.timeout.ms", "3000"), ("consumer.heartbeat.interval.ms", "500"))
    ]
    group = group_id(app.profile.namespace, consumer)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    app.log[0].each(app.log[0].client.incremental_alter_configs([resource]))


class Consuming:
    """A process `leftfold consume --json`."""

    def __init__(self, root: Path, *options: str, **environment: str) -> None:
        self.root = root
        self._out = (root / "consume.jsonl").open("ab")
        self._err = (root / "consume.err").open("ab")
        self.process = subprocess.Popen(
            [projects.LEFTFOLD, "consume", "--json", *options],
            cwd=root,
            stdout=self._out,
            stderr=self._err,
            env={**os.environ, **environment},
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout: float = 60) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def wait(self, timeout: float = 120) -> int:
        return self.process.wait(timeout)

    def explain(self) -> str:
        return (self.root / "consume.jsonl").read_text()[-3_000:] + (self.root / "consume.err").read_text()[-3_000:]


@contextmanager
def consuming(root: Path, *options: str, **environment: str) -> Iterator[Consuming]:
    running = Consuming(root, *options, **environment)
    try:
        yield running
    finally:
        running.kill()


def ended(root: Path, *options: str, **environment: str) -> list[dict[str, Any]]:
    """Run consumers until they have caught up, and return their last document."""
    with consuming(root, "--until-caught-up", *options, **environment) as running:
        code = running.wait(240)
        assert code == 0, running.explain()
        return json.loads((root / "consume.jsonl").read_text().splitlines()[-1])["consumers"]  # type: ignore[no-any-return]


def noted(path: Path) -> Counter[int]:
    """How often each order was handled, as the handlers noted it: a line for each."""
    if not path.exists():
        return Counter()
    return Counter(int(line.split()[0]) for line in path.read_text().splitlines() if line.strip())


PYTHON = sys.executable
