"""Models of an MLflow registry on disk, and of a server that speaks the Open Inference Protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.pyfunc.model import PythonModel

import leftfold as lf
from leftfold.errors import LeftfoldError
from leftfold.infer.scoring import Scoring, ToScore
from tests.unit.infer.ranker import RankerInput, read, scores


class Weight(PythonModel):
    """A model that answers with one number."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def predict(self, model_input: list[float]) -> list[float]:  # type: ignore[override] # MLflow allows it
        return [self.weight for _ in model_input]


def by_weight(model: Any, rows: lf.Rows[RankerInput]) -> list[float]:
    answers: list[float] = model.predict([0.0] * len(rows))
    return answers


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[mlflow.MlflowClient]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its database would need SQLAlchemy
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "mlflow").as_uri())
    yield mlflow.MlflowClient()
    mlflow.set_tracking_uri(before)


def register(client: mlflow.MlflowClient, weight: float) -> str:
    with mlflow.start_run():
        mlflow.pyfunc.log_model(name="model", python_model=Weight(weight), registered_model_name="ranker")
    newest = max(int(version.version) for version in client.search_model_versions("name='ranker'"))
    client.set_registered_model_alias("ranker", "champion", str(newest))
    return str(newest)


def answer(scoring: Scoring) -> Any:
    (one,) = scoring.score([ToScore({"user_id": "u1", "cart_value": 9.0}, "id")], [read()])
    return one


def test_an_alias_that_moves_is_followed(registry: mlflow.MlflowClient, tmp_path: Path) -> None:
    first = register(registry, 0.25)
    source = lf.MLflow("models:/ranker@champion")
    scoring = Scoring(lf.scorer(RankerInput, to=scores, model=source, name="ranker")(by_weight), tmp_path)
    assert (answer(scoring).score, answer(scoring).version, answer(scoring).model) == (0.25, first, "ranker")
    assert not scoring.models.look()
    second = register(registry, 0.5)
    assert scoring.models.look()
    assert (answer(scoring).score, answer(scoring).version) == (0.5, second)
    scoring.close()


class InferenceServer(BaseHTTPRequestHandler):
    """The part of the protocol that a client needs: the metadata of a model, and inference with JSON."""

    protocol_version = "HTTP/1.1"
    version = "3"

    def do_GET(self) -> None:
        found = self.path == "/v2/models/ranker"
        self._say(
            200 if found else 404, {"name": "ranker", "versions": [self.version]} if found else {"error": "no model"}
        )

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (given,) = asked["inputs"]
        rows, width = given["shape"]
        assert (given["name"], given["datatype"], len(given["data"])) == ("x", "FP32", rows * width)
        sums = [sum(given["data"][n * width : (n + 1) * width]) / 100 for n in range(rows)]
        self._say(200, {"outputs": [{"name": "score", "shape": [rows], "datatype": "FP32", "data": sums}]})

    def _say(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), InferenceServer)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def remote(model: lf.RemoteModel, rows: lf.Rows[RankerInput]) -> Any:
    return model.run(x=rows.matrix("float32"))["score"]


def test_a_remote_model(server: str, tmp_path: Path) -> None:
    source = lf.Remote(server, "ranker")
    scoring = Scoring(lf.scorer(RankerInput, to=scores, model=source, name="ranker")(remote), tmp_path)
    assert answer(scoring).score == pytest.approx((3 + 1.5 + 9.0) / 100)
    assert (answer(scoring).model, answer(scoring).version) == ("ranker", "3")


def test_a_server_that_has_another_version_is_noticed(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lf.Remote(server, "ranker")
    scoring = Scoring(lf.scorer(RankerInput, to=scores, model=source, name="ranker")(remote), tmp_path)
    assert answer(scoring).version == "3"
    assert not scoring.models.look()
    monkeypatch.setattr(InferenceServer, "version", "4")
    assert scoring.models.look()
    assert answer(scoring).version == "4"
    scoring.close()


def test_a_remote_model_that_is_not_there(server: str, tmp_path: Path) -> None:
    source = lf.Remote(server, "other")
    with pytest.raises(LeftfoldError, match="could not be loaded") as told:
        Scoring(lf.scorer(RankerInput, to=scores, model=source, name="ranker")(remote), tmp_path).models.load()
    assert "404" in told.value.why
