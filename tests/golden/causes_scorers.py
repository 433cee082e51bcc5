"""How to provoke errors of predictions, scorers and models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import leftfold as lf
from leftfold import clock
from leftfold.declare.rows import Provenance, Read
from leftfold.infer.http_server import check_installed, listen
from leftfold.infer.mlflow_model import _check_names, version_of
from leftfold.infer.onnx_model import _compare
from leftfold.infer.requests import PredictionLog, RequestScoring
from leftfold.infer.scoring import Scoring, ToScore
from leftfold.kafka.log_writer import NotWrittenError
from tests.golden.causes import EVENT, HEAD, TOPIC, VIEW, Cause, declares, project, stand_in

INPUT = """

class RankerInput(lf.Vector):
    clicks_1h = UserActivity.clicks_1h
    cart_value = lf.request(float)


"""
SCORE = "class RankerScore(lf.Prediction, of=RankerInput):\n    score: float\n\n\n"
SCORES = 'scores = lf.Predictions("scores", RankerScore)\n\n\n'
RANKER = "@lf.scorer(RankerInput, to=scores, model=dict{options})\ndef ranker(model, rows):\n    {body}\n"


def declared(text: str) -> Cause:
    return declares(VIEW + INPUT + text)


def scorer(options: str = "", body: str = "return [0.5] * len(rows)") -> Cause:
    return declared(SCORE + SCORES + RANKER.format(options=options and f", {options}", body=body))


def made(tmp: Path, options: str = "", body: str = "return [0.5] * len(rows)") -> Any:
    ranker = RANKER.format(options=options and f", {options}", body=body)
    return project(tmp, HEAD + EVENT + TOPIC + VIEW + INPUT + SCORE + SCORES + ranker).catalog.scorer("ranker")


def unknown_scorer(tmp: Path) -> None:
    project(tmp).catalog.scorer("rankr")


def other_inputs(tmp: Path) -> None:
    ranker = made(tmp)
    scoring = Scoring(ranker, tmp)
    (one,) = scoring.score([ToScore({"user_id": "u1", "cart_value": 1.0}, "id")], [row(ranker)])
    one.inputs(lf.Vector)


def row(ranker: Any, *, found: bool = True) -> Read:
    values = dict.fromkeys(ranker.vector.__leftfold_names__, 1.0)
    return Read(values, clock.now(), (Provenance("user_activity", "b1", 7, found),))


def scored(options: str = "", body: str = "return [0.5] * len(rows)", *, found: bool = True) -> Cause:
    def cause(tmp: Path) -> None:
        ranker = made(tmp, options, body)
        Scoring(ranker, tmp).score([ToScore({"user_id": "u1", "cart_value": 1.0}, "id")], [row(ranker, found=found)])

    return cause


def requested(body: str) -> Cause:
    def cause(tmp: Path) -> None:
        ranker = made(tmp, "", body)
        reader: Any = stand_in(read=lambda *_: [row(ranker)])
        log: Any = stand_in(write=lambda *_, **__: None)
        RequestScoring(Scoring(ranker, tmp), reader, log).score([{"user_id": "u1", "cart_value": 1.0}])

    return cause


def not_loaded(tmp: Path) -> None:
    Scoring(replace(made(tmp), model=lf.ModelFile("ranker.joblib", open)), tmp).models.load()


def not_a_version(_: Path) -> None:
    version_of(lf.MLflow("models:/ranker"))


def missing(module: str, source: Any) -> Cause:
    def cause(tmp: Path) -> None:
        (tmp / "ranker.onnx").write_bytes(b"")
        ranker = made(tmp)
        ranker = replace(ranker, model=source)
        with mock.patch(f"leftfold.infer.{module}.importlib.util.find_spec", return_value=None):
            Scoring(ranker, tmp).models.load()

    return cause


def outputs_differ(tmp: Path) -> None:
    pq.write_table(pa.table({"clicks_1h": [1.0, 2.0], "expected_score": [0.25, 0.5]}), tmp / "check.parquet")
    session: Any = stand_in(inputs=["x"], run=lambda **_: {"score": np.array([0.25, 0.75])})
    _compare(session, lf.Onnx("ranker.onnx"), tmp / "check.parquet", made(tmp))


def signature_differs(tmp: Path) -> None:
    _check_names(made(tmp), "ranker", "7", ["clicks_1h", "clicks_7d"])


def not_logged(tmp: Path) -> None:
    ranker = made(tmp)

    def wait(_: float) -> None:
        raise NotWrittenError("Local: Message timed out")

    with mock.patch("leftfold.infer.requests.LogWriter") as writer:
        writer.return_value.write.return_value = stand_in(wait=wait)
        registry: Any = stand_in(id_of=lambda *_: 1)
        log = PredictionLog(ranker.to, "scores", stand_in(), registry)
        log.write([], wait=True)


def serve_missing(_: Path) -> None:
    with mock.patch("leftfold.infer.http_server.importlib.util.find_spec", return_value=None):
        check_installed()


def serving_port(_: Path) -> None:
    listen("192.0.2.1", 8080)  # an address that no machine has


def matrix_of_text(_: Path) -> None:
    class Profile(lf.Event):
        user_id: str
        city: str

    profiles = lf.Topic("profiles", Profile, key=Profile.user_id, compacted=True)

    class Profiles(lf.Table, of=profiles, by=Profile.user_id):
        city = Profile.city

    class CityInput(lf.Vector):
        city = Profiles.city

    lf.Rows.of(CityInput, [{"city": "Rome"}]).matrix()


CAUSES: dict[str, Cause] = {
    "canary-share": scorer("canary=lf.Canary(dict, share=5)"),
    "matrix-of-numbers": matrix_of_text,
    "mlflow-missing": missing("mlflow_model", lf.MLflow("models:/ranker@champion")),
    "model-failed": requested("return [{}['clicks_1h'] if row.provenance else 0.5 for row in rows]"),
    "model-not-loaded": not_loaded,
    "model-not-loaded/row": scored(body="raise ValueError('5 features are expected, 2 were given')"),
    "model-not-loaded/version": not_a_version,
    "model-outputs-differ": outputs_differ,
    "model-signature-differs": signature_differs,
    "not-a-topic/each": scorer('on=lf.each("clicks", start="now")'),
    "onnx-missing": missing("onnx_model", lf.Onnx("ranker.onnx")),
    "prediction-field-taken": declared(SCORE.replace("score:", "version:")),
    "prediction-not-logged": not_logged,
    "prediction-of": declared(SCORE.replace(", of=RankerInput", "")),
    "prediction-of/event": declared('lf.Predictions("scores", Click)'),
    "prediction-of/fields": declared(SCORE.replace("score: float", "pass")),
    "prediction-of/inputs": other_inputs,
    "prediction-of/key": declared(
        '@lf.view(clicks, by="cart")\ndef carts(records):\n    return records\n\n\n'
        'class CartInput(lf.Vector):\n    total = carts.column("total", float)\n\n\n'
        + SCORE.replace("RankerInput", "CartInput")
    ),
    "predictions-vector": declared(SCORE + RANKER.format(options="", body="pass").replace("scores", "clicks")),
    "score-refused": scored('missing="refuse"', found=False),
    "scorer-answers": scored(body="return []"),
    "scorer-fallback": scorer('deadline="50ms"'),
    "scorer-signature": scorer(body="pass\n\n\n@lf.scorer(RankerInput, to=scores, model=dict)\ndef other(rows): ..."),
    "scorer-trigger": scorer('trigger="applied"'),
    "scorer-trigger/absent": scorer('on=lf.each(clicks, start="now")'),
    "scorer-trigger/kind": scorer('on=lf.each(clicks, start="now", cart_value=Click.item_id)'),
    "scorer-trigger/unknown": scorer('on=lf.each(clicks, start="now", cart_value=Click.price, basket=Click.price)'),
    "serve-missing": serve_missing,
    "serving-port": serving_port,
    "unknown-scorer": unknown_scorer,
}
