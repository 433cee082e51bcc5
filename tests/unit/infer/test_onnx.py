"""Models in the format of ONNX: run, and compared with the outputs that they must give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper

import leftfold as lf
from leftfold.errors import LeftfoldError
from leftfold.infer.scoring import Scoring, ToScore
from tests.unit.infer.ranker import RankerInput, read, scores


def write_model(path: Path, weights: Sequence[float]) -> None:
    """Write a logistic regression of three numbers."""
    column = np.array(weights, dtype="float32").reshape(3, 1)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Sigmoid", ["product"], ["score"]),
        ],
        "ranker",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])],
        [onnx.numpy_helper.from_array(column, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))


def run(model: lf.OnnxModel, rows: lf.Rows[RankerInput]) -> Any:
    return model.run(x=rows.matrix("float32"))["score"][:, 0]


def scoring(root: Path, **options: Any) -> Scoring:
    source = lf.Onnx("ranker.onnx", **options)
    return Scoring(lf.scorer(RankerInput, to=scores, model=source, name="ranker")(run), root)


def test_scores_by_onnx_runtime(tmp_path: Path) -> None:
    write_model(tmp_path / "ranker.onnx", [0.1, -0.2, 0.05])
    (one,) = scoring(tmp_path).score([ToScore({"user_id": "u1", "cart_value": 9.0}, "id")], [read()])
    expected = 1 / (1 + np.exp(-(0.1 * 3 - 0.2 * 1.5 + 0.05 * 9.0)))
    assert one.__dict__["score"] == pytest.approx(expected, abs=1e-6)
    assert one.version.startswith("sha256-")


def test_rows_with_expected_outputs_are_compared_at_load(tmp_path: Path) -> None:
    write_model(tmp_path / "ranker.onnx", [0.1, -0.2, 0.05])
    given = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    expected = 1 / (1 + np.exp(-(given @ np.array([0.1, -0.2, 0.05]))))
    columns = dict(zip(RankerInput.__leftfold_names__, given.T.tolist(), strict=True))
    pq.write_table(pa.table({**columns, "expected_score": expected.tolist()}), tmp_path / "check.parquet")
    scoring(tmp_path, check="check.parquet").models.load()
    write_model(tmp_path / "ranker.onnx", [0.1, -0.2, 0.06])
    with pytest.raises(LeftfoldError, match=r"does not give the outputs of check\.parquet") as told:
        scoring(tmp_path, check="check.parquet").models.load()
    assert told.value.code == "model-outputs-differ"


def test_a_model_of_another_width_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "ranker.onnx", [0.1, -0.2, 0.05])
    two = lf.Onnx("ranker.onnx")

    def narrow(model: lf.OnnxModel, rows: lf.Rows[RankerInput]) -> Any:
        return model.run(x=rows.matrix("float32", columns=("clicks_1h", "spent_1h")))["score"][:, 0]

    with pytest.raises(LeftfoldError) as told:
        Scoring(lf.scorer(RankerInput, to=scores, model=two, name="ranker")(narrow), tmp_path).models.load()
    assert told.value.code == "model-not-loaded"
