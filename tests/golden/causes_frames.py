"""How to provoke errors of frames that are scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PythonException

from leftfold.infer.frames import FrameScorer
from leftfold.quality.scored import ScoredFrame
from leftfold.spark.quality.scored import scoring
from tests.golden.causes import stand_in
from tests.golden.causes_scorers import made


def another_version(tmp: Path) -> None:
    made(tmp)
    asked = FrameScorer(("streams.py",), "ranker", "ranker", "code-of-the-driver", None)
    asked(str(tmp), {"clicks_1h": pa.array([1]), "cart_value": pa.array([1.0])}, pa.array([0]))


def not_scored(tmp: Path) -> None:
    ranker = made(tmp)
    with scoring(ranker.name, ranker.source):
        raise PythonException("Traceback\nRuntimeError: leftfold-scoring: KeyError: 'clicks'\n\tat org.apache.spark")


def taken_column(tmp: Path) -> None:
    rows: Any = stand_in(label_names=("user_id", "ts", "score"))
    ScoredFrame(rows, made(tmp), [("score", "float", False)], ("ranker", "7"), stand_in()).digest()


CAUSES = {
    "frame-not-scored": not_scored,
    "label-column-taken/answer": taken_column,
    "model-version-differs": another_version,
}
