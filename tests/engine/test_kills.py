"""The driver killed with SIGKILL, and one broker too, while events keep coming: the view must equal the log.

`make engine` runs a small version; `make kills` sends 1,000,000 events and kills the driver five times.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leftfold.errors import LeftfoldError
from leftfold.local.endpoints import Endpoints
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster

FULL = os.environ.get("LEFTFOLD_KILLS") == "full"
EVENTS, KILLS = (1_000_000, 5) if FULL else (120_000, 2)
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))


def payments(count: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Skewed keys, out of order within lateness, a few late, a few from the future, some notes missing."""
    for number in range(count):
        fate = chance.random()
        if fate < 0.002:
            delay = chance.uniform(700, 5_000)  # late
        elif fate < 0.003:
            delay = -chance.uniform(120, 900)  # from the future
        elif fate < 0.10:
            delay = chance.uniform(0, 560)  # out of order
        else:
            delay = chance.uniform(0, 2)
        yield {
            "id": number,
            "account": f"a{int(chance.paretovariate(0.6)) % 20_000}",
            "amount": round(chance.lognormvariate(3.5, 1.2), 2) * (1 if chance.random() < 0.98 else -1),
            "points": chance.randrange(-3, 20),
            "note": None if chance.random() < 0.3 else f'n"{number} é',
            "at": datetime.now(UTC) - timedelta(seconds=delay),
        }


def kill_broker(endpoints: Endpoints, name: str) -> None:
    os.kill(endpoints.processes[name].pid, signal.SIGKILL)


@pytest.mark.timeout(2_400 if FULL else 600)
def test_view_equals_log_after_kills(cluster: Cluster, tmp_path: Path) -> None:
    print(f"seed {SEED}, {EVENTS:,} events, {KILLS} kills")
    chance = random.Random(SEED)
    app = projects.make(tmp_path / "kills", cluster.endpoints, f"kills{SEED}")
    projects.apply(app)
    failures: list[LeftfoldError] = []
    head_start = EVENTS // 2
    sent = threading.Event()
    finished = threading.Event()

    def produce() -> None:
        try:
            with app.producer("payments") as producer:
                for record in payments(EVENTS, random.Random(SEED)):
                    producer.send_dict(record)
                    if record["id"] >= head_start:
                        sent.set()
                        if record["id"] % 500 == 0 and not finished.is_set():
                            time.sleep(60.0 * KILLS * 500 / (EVENTS - head_start))  # keeps coming during the kills
        except LeftfoldError as error:
            failures.append(error)
        finally:
            sent.set()

    producing = threading.Thread(target=produce)
    producing.start()
    sent.wait()
    for kill in range(KILLS):
        run = projects.Running(app.root)
        run.await_batches(1)
        if kill == KILLS // 2:
            kill_broker(cluster.endpoints, "broker-2")
        time.sleep(chance.uniform(0.0, 5.0))  # a random moment, inside a batch or between two
        run.kill()
        print(f"kill {kill + 1}: after {len(run.lines())} batches of this start")
        if kill == KILLS // 2:
            cluster.cluster.up(cluster.root)
    finished.set()
    producing.join()
    assert not failures, failures[0]

    with projects.running(app.root, "--until-caught-up") as run:
        assert run.wait(900) == 0, run.explain()
        final = run.lines()[-1]["views"][0]
    name = app.profile.topic_name("payments")
    log = oracle.read_log(cluster.endpoints.bootstrap, name, app.log[1].versions(f"{name}-value"))

    missing = set(range(EVENTS)) - set(log.ids)
    doubled = [i for i, n in log.ids.items() if n > 1]
    assert not missing, f"{len(missing)} acknowledged events are not in the log"
    assert not doubled, f"{len(doubled)} events are in the log twice"
    prefix = f"lf:{app.profile.namespace}:row:account_activity:{final['build']}:"
    tiles = oracle.check_tiles(log, cluster.endpoints.redis_url, prefix)
    ledger = app.reader.ledger("account_activity")
    assert ledger is not None
    oracle.check_ledger(log, ((row.outcome, row.records) for row in ledger[2]))
    print(
        f"{EVENTS:,} events, {KILLS} kills of the driver, 1 of a broker: 0 acknowledged events missing in the log, "
        f"0 of {tiles:,} tiles differ; {dict(log.outcomes)}"
    )
