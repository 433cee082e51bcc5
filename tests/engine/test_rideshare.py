"""examples/rideshare: its README executed as it is written, and every fare checked after kills.

`make rideshare` has 600,000 positions, five kills of billing and map, and one of a broker; here it is a small version.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import leftfold
from leftfold.units import counted
from tests.engine import consumers, guides, projects
from tests.engine.conftest import Cluster
from tests.engine.pages import Shell, check_read

FULL = os.environ.get("LEFTFOLD_RIDESHARE") == "full"
DRIVERS, SECONDS, KILLS = (10_000, 60, 5) if FULL else (100, 40, 1)
SPEED = 1 if FULL else 20  # seconds of traffic in a second, at most
SEED = int(os.environ.get("LEFTFOLD_SEED", "20261118"))
EXAMPLE = guides.EXAMPLES / "rideshare"
README = EXAMPLE / "README.md"
NAMESPACE = f"s{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(3_600 if FULL else 600)


@pytest.fixture
def ledger(postgres: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty database. Another empty one is in CITY_LEDGER_URL."""
    for variable in ("LEDGER_URL", "CITY_LEDGER_URL"):
        database = f"l{uuid.uuid4().hex[:8]}"
        with psycopg.connect(postgres, autocommit=True) as db:
            db.execute(f"create database {database}")
        monkeypatch.setenv(variable, postgres.replace("/postgres?", f"/{database}?"))
    return os.environ["LEDGER_URL"]


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path, ledger: str) -> Iterator[Shell]:
    with guides.example("rideshare", tmp_path, cluster.endpoints, NAMESPACE) as shell:
        yield shell


def module(name: str) -> Any:
    """A module of the example that is no declaration."""
    spec = importlib.util.spec_from_file_location(f"rideshare_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.nightly
def test_readme(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(README, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_readme_is_read() -> None:
    check_read(README)


def test_every_fare_is_right_after_kills(
    cluster: Cluster, tmp_path: Path, ledger: str, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic, fares = module("traffic"), module("fares")
    start = datetime.now(UTC)
    root = guides.copied("rideshare", tmp_path, cluster.endpoints, f"s{uuid.uuid4().hex[:8]}")
    app = leftfold.open(root)
    projects.apply(app)
    with psycopg.connect(ledger) as db:
        db.execute((EXAMPLE / "ledger.sql").read_bytes())
    failures: list[leftfold.LeftfoldError] = []
    sent = [0]

    def produce() -> None:
        began = time.monotonic()
        try:
            with app.producer("positions") as producer:
                for position in traffic.traffic(DRIVERS, SECONDS, seed=SEED, start=start):
                    due = began + (position["at"] - start) / timedelta(seconds=SPEED)
                    if (early := due - time.monotonic()) > 0:
                        time.sleep(early)  # a position is sent in its second
                    producer.send_dict(position)
                    sent[0] += 1
        except leftfold.LeftfoldError as error:
            failures.append(error)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        for kill in range(1, KILLS + 1):
            with (
                consumers.consuming(root, "--consumers", "billing"),
                consumers.consuming(root, "--consumers", "live_map"),
            ):
                await_billed(ledger, kill * DRIVERS * SECONDS // (KILLS + 1))
                if FULL and kill == KILLS // 2:
                    os.kill(cluster.endpoints.processes["broker-2"].pid, signal.SIGKILL)
            # Both processes are killed here, by SIGKILL.
            if FULL and kill == KILLS // 2:
                cluster.cluster.up(cluster.root)
    finally:
        producing.join()
    assert not failures, failures[0]
    consumers.ended(root)

    right = fares.expected(traffic.traffic(DRIVERS, SECONDS, seed=SEED, start=start))
    booked = fares.booked(ledger)
    drawn = sum(map(int, (root / "drawn.txt").read_text().split()))
    with capsys.disabled():
        wrong = sum(booked.get(ride) != fare for ride, fare in right.items())
        killed = f"{counted(KILLS, 'kill')} of billing and map{', 1 of a broker' if FULL else ''}"
        print(
            f"\n{sent[0]:,} positions sent, {sent[0] - DRIVERS * SECONDS:,} of them for the second time; {killed}: "
            f"{wrong:,} of {len(right):,} fares are wrong; the map missed {sent[0] - drawn:,}",
        )
    assert booked == right
    assert sum(number for number, _ in booked.values()) == billed(ledger) == DRIVERS * SECONDS
    assert sent[0] > DRIVERS * SECONDS, "some were sent twice"
    assert drawn <= sent[0], "at most once"
    assert sent[0] - drawn <= KILLS * app.catalog.consumer("live_map").in_flight


def billed(ledger: str) -> int:
    with psycopg.connect(ledger) as db:
        row = db.execute("select coalesce(sum(positions), 0) from rides").fetchone()
    assert row is not None
    return int(row[0])


def await_billed(ledger: str, positions: int) -> None:
    projects.await_true(lambda: billed(ledger) >= positions, timeout=600, what=f"{positions:,} positions")
