"""The server over HTTP, with uvicorn on loopback: answers, refusals, batches of what waits, a bounded queue."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import leftfold as lf
from leftfold.infer.answered import Unlogged
from leftfold.infer.http_server import address, listen
from leftfold.infer.requests import RequestScoring
from leftfold.infer.scoring import Scoring
from leftfold.infer.serving import Serving
from tests.unit.infer.ranker import RankerInput, read, scores


class Log:
    unlogged = 0

    def __init__(self) -> None:
        self.logged: list[Any] = []

    def write(self, predictions: list[Any], *, wait: bool) -> None:
        self.logged += predictions

    def close(self) -> int:
        return 0


class HeldRows:
    """A reader that knows a row of everybody but nobody."""

    def read(self, _: Any, asked: list[Any], at: Any) -> list[Any]:
        return [read(len(one["user_id"]), found=one["user_id"] != "nobody") for one in asked]

    async def aread(self, _: Any, asked: list[Any], at: Any) -> list[Any]:
        return self.read(None, asked, at)


class Served:
    def __init__(self, root: Path, function: Any, most_waiting: int, **options: Any) -> None:
        load: Callable[[], Any] = lambda: lf.Model(0.01, version="7")  # noqa: E731
        declared = lf.scorer(RankerInput, to=scores, name="ranker", **{"model": load, **options})(function)
        self.log, reader = Log(), HeldRows()
        self.scoring = scoring = RequestScoring(Scoring(declared, root), reader, self.log)  # type: ignore[arg-type]
        vectors = {"ranker_input": RankerInput}
        self.serving = Serving("shop", {"ranker": lambda: scoring}, vectors, reader, most_waiting=most_waiting)  # type: ignore[arg-type]
        self.socket = listen("127.0.0.1", 0)
        self.server = uvicorn.Server(uvicorn.Config(self.serving.asgi, log_level="error", lifespan="on"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.01)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(address(self.socket).removeprefix("http://"), timeout=30)
        connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body))
        response = connection.getresponse()
        text = response.read()
        connection.close()
        is_json = response.getheader("content-type", "").startswith("application/json")
        return response.status, json.loads(text) if is_json else text.decode()

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(
        function: Any = lambda m, rows: [m * r.clicks_1h for r in rows], most_waiting: int = 1_000, **o: Any
    ) -> Any:
        made.append(Served(tmp_path, function, most_waiting, **o))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_scores_and_features(serve: Callable[..., Served]) -> None:
    one = serve()
    status, answer = one.ask("POST", "/score/ranker", {"user_id": "u42", "cart_value": 31.0})
    assert (status, answer["score"], answer["version"]) == (200, 0.03, "7")
    assert answer["provenance"] == [{"view": "user_activity", "build": "b1", "batch": 7, "found": True}]
    assert [p.prediction_id for p in one.log.logged] == [answer["prediction_id"]]
    status, row = one.ask("GET", "/features/ranker_input?user_id=u42&cart_value=31")
    assert (status, row["values"]["clicks_1h"], row["found"]) == (200, 3, True)
    status, rows = one.ask("POST", "/features/ranker_input", [{"user_id": "u1", "cart_value": 1.0}] * 3)
    assert (status, len(rows)) == (200, 3)
    assert one.ask("GET", "/health/live")[0] == one.ask("GET", "/health/ready")[0] == 200
    metrics = one.ask("GET", "/metrics")[1]
    assert 'leftfold_scorer_rows_total{scorer="ranker"} 1.0' in metrics
    assert 'version="7"' in metrics
    _, described = one.ask("GET", "/openapi.json")
    assert set(described["paths"]) == {"/score/ranker", "/features/ranker_input"}
    given = described["paths"]["/score/ranker"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(given["properties"]) == {"user_id", "cart_value"}


def test_models_in_use_and_what_is_wrong_with_them_are_shown(serve: Callable[..., Served], tmp_path: Path) -> None:
    def function(model: float, rows: lf.Rows[RankerInput]) -> list[float]:
        if rows[0].provenance and model == 0.5:
            raise ZeroDivisionError("no clicks")
        return [model] * len(rows)

    path = tmp_path / "model.txt"
    path.write_text("0.25")
    model = lf.ModelFile("model.txt", lambda file: float(Path(file).read_text()))
    one = serve(function, model=model, shadow=[lambda: lf.Model(0.5, version="next")])
    shown = one.ask("GET", "/models")[1]["ranker"]
    assert [(m["role"], m["model"]) for m in shown["models"]] == [("live", "ranker"), ("shadow", "ranker")]
    assert shown["problem"] is None
    assert one.ask("POST", "/score/ranker", {"user_id": "u42", "cart_value": 31.0})[0] == 200
    while 'failed_shadows_total{scorer="ranker"} 1.0' not in one.ask("GET", "/metrics")[1]:
        pass  # the shadow scores after the answer
    assert one.ask("GET", "/models")[1]["ranker"]["problem"] == "version next, a shadow: ZeroDivisionError: no clicks"
    path.write_text("7.5")  # beyond what the prediction allows
    one.scoring.scoring.models.look()
    assert "does not score a row of RankerInput" in one.ask("GET", "/models")[1]["ranker"]["problem"]
    assert one.ask("POST", "/score/ranker", {"user_id": "u42", "cart_value": 31.0})[1]["score"] == 0.25


def test_bytes_are_base64(serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    one, row = serve(), read()
    row.values["spent_1h"] = b"\x00\xff"

    async def aread(*_: Any) -> list[Any]:
        return [row]

    monkeypatch.setattr(HeldRows, "aread", aread)
    status, shown = one.ask("GET", "/features/ranker_input?user_id=u42&cart_value=31")
    assert (status, shown["values"]["spent_1h"]) == (200, "AP8=")


def test_a_model_is_swapped_under_load(serve: Callable[..., Served], tmp_path: Path) -> None:
    """100 swaps: no request fails, each answer has the version of the model that gave it."""
    path = tmp_path / "model.txt"
    path.write_text("0.000")
    one = serve(
        lambda model, rows: [model] * len(rows),
        model=lf.ModelFile("model.txt", lambda file: float(Path(file).read_text())),
    )
    models, stop, answers = one.serving._scorers["ranker"].scoring.scoring.models, threading.Event(), list[Any]()

    def ask() -> None:
        connection = http.client.HTTPConnection(address(one.socket).removeprefix("http://"), timeout=30)
        while not stop.is_set():
            connection.request("POST", "/score/ranker", json.dumps({"user_id": "u1", "cart_value": 1.0}))
            response = connection.getresponse()
            answers.append((response.status, json.loads(response.read())))
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 101):
        before = len(answers)
        while len(answers) < before + 4:  # so that every model answers
            assert all(thread.is_alive() for thread in threads)
            time.sleep(0.001)
        (tmp_path / "new").write_text(f"{number / 1_000:.3f}")
        (tmp_path / "new").replace(path)
        assert models.look()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert models.swaps == 100
    assert {status for status, _ in answers} == {200}
    by_version: dict[str, set[float]] = {}
    for _, answer in answers:
        by_version.setdefault(answer["version"], set()).add(answer["score"])
    assert len(by_version) > 90
    assert all(version.startswith("sha256-") and len(scores) == 1 for version, scores in by_version.items())
    assert len(answers) == len(one.log.logged)


def test_what_was_lost_before_is_told(serve: Callable[..., Served]) -> None:
    one = serve()
    told: list[Any] = []
    one.serving._lost = lambda: [Unlogged("ranker", {"a": 1, "b": 2}, 3)]
    one.serving.look_back(told.append)
    deadline = time.monotonic() + 30
    while not told:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert told[0][0].count == 5
    assert 'leftfold_predictions_unlogged_total{scorer="ranker"} 5.0' in one.ask("GET", "/metrics")[1]


def test_a_caller_may_give_its_own_id(serve: Callable[..., Served]) -> None:
    one = serve()
    body = {"user_id": "u42", "cart_value": 31.0, "prediction_id": "mine"}
    assert one.ask("POST", "/score/ranker", body)[1]["prediction_id"] == "mine"


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/score/other", {}, 404, "unknown-scorer"),
        ("/score/ranker", [1], 400, "request-body"),
        ("/score/ranker", b"no json", 400, "request-body"),
        ("/score/ranker", b"x" * 1_100_000, 413, "request-too-large"),
        ("/score/ranker", {"user_id": "nobody", "cart_value": 1.0}, 422, "score-refused"),
        ("/features/other", [], 404, "unknown-vector"),
        ("/features/ranker_input", {"user_id": "u1"}, 400, "request-body"),
    ],
)
def test_refusals(serve: Callable[..., Served], path: str, body: Any, status: int, error: str) -> None:
    answered, problem = serve(missing="refuse").ask("POST", path, body)
    assert (answered, problem["error"]) == (status, error)


def test_what_waits_is_the_next_batch_and_beyond_the_queue_is_503(serve: Callable[..., Served]) -> None:
    released, sizes = threading.Event(), list[int]()

    def slow(model: float, rows: lf.Rows[RankerInput]) -> list[float]:
        if rows[0].provenance:  # not the row with which a model is tried at its start
            sizes.append(len(rows))
            released.wait(30)
        return [0.5] * len(rows)

    one = serve(slow, 20)
    body = {"user_id": "u1", "cart_value": 1.0}
    with ThreadPoolExecutor(30) as pool:
        asked = [pool.submit(one.ask, "POST", "/score/ranker", body)]
        deadline = time.monotonic() + 30
        while not sizes:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        asked += [pool.submit(one.ask, "POST", "/score/ranker", body) for _ in range(29)]
        while sum(future.done() for future in asked) < 10:  # one is scored, 19 wait, ten are refused
            assert time.monotonic() < deadline
            time.sleep(0.01)
        released.set()
        answers = [future.result() for future in asked]
    assert sorted(status for status, _ in answers) == [200] * 20 + [503] * 10
    assert sizes == [1, 19]


def test_one_wrong_request_does_not_harm_those_beside_it(serve: Callable[..., Served]) -> None:
    def picky(model: float, rows: lf.Rows[RankerInput]) -> list[float]:
        if rows[0].provenance:
            time.sleep(0.05)
        if any(row.clicks_1h == len("bad user") for row in rows):
            raise KeyError("bad user")
        return [0.5] * len(rows)

    one = serve(picky)
    users = ["u1", "bad user", *(f"u{n}" for n in range(2, 20))]
    with ThreadPoolExecutor(20) as pool:
        statuses = [
            status
            for status, _ in pool.map(
                lambda user: one.ask("POST", "/score/ranker", {"user_id": user, "cart_value": 1.0}), users
            )
        ]
    assert statuses == [500 if user == "bad user" else 200 for user in users]


STOPPED = """
import os, signal, threading
from types import SimpleNamespace
from leftfold.infer import http_server

async def asgi(scope, receive, send):
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
        os.kill(os.getpid(), signal.SIGTERM)
    await send({"type": "lifespan.shutdown.complete"})

with http_server.listen("127.0.0.1", 0) as listening:
    http_server.run(SimpleNamespace(asgi=asgi), listening)
print("told")
"""


def test_after_a_signal_the_caller_can_tell_what_is_not_acknowledged() -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr
