"""The server on real brokers, killed under load: every answer that is not in the log is counted and told.

`make engine` kills it a few times; `make serving` twenty times in each mode.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up

FULL = os.environ.get("LEFTFOLD_SERVING") == "full"
KILLS = {"behind": 20 if FULL else 2, "before": 20 if FULL else 1}
CLIENTS = 6
SEED = 20261118
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.timeout(3_600 if FULL else 600)

SCORER = """

class FraudInput(lf.Vector):
    payments_1h = AccountActivity.payments_1h
    amount = lf.request(float)


class FraudScore(lf.Prediction, of=FraudInput):
    score: float


fraud_scores = lf.Predictions("fraud_scores", FraudScore, partitions=6)


@lf.scorer(FraudInput, to=fraud_scores, model=lambda: lf.Model(0.01, version="7"), log="{mode}")
def fraud(model, rows):
    return [model * (row.payments_1h or 0) for row in rows]
"""


class Server:
    """A process `leftfold serve`."""

    def __init__(self, root: Path) -> None:
        self._said = root / f"serve-{uuid.uuid4().hex[:8]}.err"
        with self._said.open("wb") as errors:
            command = [projects.LEFTFOLD, "serve", "--port", "0"]
            self.process = subprocess.Popen(command, cwd=root, stderr=errors, stdout=subprocess.DEVNULL)

    @property
    def said(self) -> str:
        return self._said.read_text()

    def address(self) -> str:
        def found() -> bool:
            assert self.process.poll() is None, self.said
            return "serving at" in self.said

        projects.await_true(found, timeout=240, what="the server")
        return re.search(r"http://([\d.:]+)", self.said)[1]  # type: ignore[index] # it is there

    def told(self) -> int:
        return sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) predictions of fraud were ans", self.said))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Clients:
    """Clients that ask all the time, and note what they asked and what was answered."""

    def __init__(self, address: str, name: str) -> None:
        self.asked: set[str] = set()
        self.answered: set[str] = set()
        self._address = address
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(f"{name}-{n}",)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, name: str) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=20)
        number = 0
        while not self._stop.is_set():
            number += 1
            one = f"{name}-{number}"
            body = json.dumps({"account": f"a{number % 20}", "amount": 1.5, "prediction_id": one})
            self.asked.add(one)
            try:
                connection.request("POST", "/score/fraud", body)
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException):
                return  # the server was killed
            assert response.status == 200, text
            assert json.loads(text)["prediction_id"] == one
            self.answered.add(one)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@contextmanager
def stopped_brokers(cluster: Cluster, *, really: bool) -> Iterator[None]:
    """Brokers that take nothing: what is answered meanwhile is not acknowledged."""
    processes = cluster.endpoints.processes
    pids = [one.pid for name, one in processes.items() if name.startswith("broker")] if really else []
    assert pids or not really, list(processes)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("mode", ["behind", "before"])
def test_a_killed_server_loses_no_answer_in_silence(cluster: Cluster, tmp_path: Path, spark: Any, mode: str) -> None:
    streams = projects.PAYMENTS + SCORER.replace("{mode}", mode)
    app = projects.make(tmp_path / "project", cluster.endpoints, f"k{uuid.uuid4().hex[:8]}", streams)
    projects.apply(app)
    now = datetime.now(UTC)
    app.send(
        "payments",
        ({"id": n, "account": f"a{n % 20}", "amount": 1.0, "points": 1, "note": None, "at": now} for n in range(60)),
    )
    run_until_caught_up(app, spark)
    answers, notes = app.state / "local" / "answers", app.state / "local" / "unlogged.jsonl"
    chance, asked, answered, printed = random.Random(SEED), set[str](), set[str](), 0

    def noted() -> list[str]:
        return [json.loads(line)["prediction_id"] for line in notes.read_text().splitlines()] if notes.exists() else []

    for number in range(KILLS[mode]):
        server = Server(app.root)
        try:
            address = server.address()
            # It looks for what its predecessor left, while it answers.
            clients = Clients(address, f"k{number}")
            projects.await_true(lambda: len(list(answers.glob("*.answers"))) == 1, timeout=240, what="a look back")
            wanted = len(clients.answered) + chance.randrange(300, 600)
            projects.await_true(lambda w=wanted, c=clients: len(c.answered) >= w, timeout=240, what="answers")  # type: ignore[misc]
            with stopped_brokers(cluster, really=mode == "behind" and number % 2 == 1):
                wanted = len(clients.answered) + chance.randrange(1, 200)
                projects.await_true(lambda w=wanted, c=clients: len(c.answered) >= w, timeout=240, what="more")  # type: ignore[misc]
                server.kill()
            clients.stop()
            printed += server.told()
        finally:
            server.kill()
        asked |= clients.asked
        answered |= clients.answered
    before = len(noted())
    assert printed == before, "each start has told what it found"
    found = app.unlogged()
    assert sum(one.count for one in found) == len(noted()) - before
    assert [one.unnamed for one in found] == [0] * len(found)
    assert list(answers.glob("*.answers")) == []
    logged = {r.fields["prediction_id"] for r in app.read("fraud_scores", start=LONG_AGO, most=None) if r.fields}
    told, lost = set(noted()), answered - logged
    print(f"{mode}: {len(answered):,} answers, {KILLS[mode]} kills: {len(lost):,} lost, {len(told):,} told")
    assert logged <= asked
    assert len(noted()) == len(told)
    assert not told & logged, "what is told is not in the log"
    assert lost <= told, "every answer that a client got is in the log or told"
    # An answer on its way when the server died counts as answered: at most one of each client and kill.
    on_their_way = told - answered
    assert on_their_way <= asked - answered
    assert len(on_their_way) <= CLIENTS * KILLS[mode]
    if mode == "before":
        assert not lost
        assert not told
    else:
        assert lost, "nothing was lost: this shows nothing"
