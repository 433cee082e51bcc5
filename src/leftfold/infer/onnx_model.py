"""Models in the format of ONNX, run by ONNX Runtime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold.declare.model_source import Onnx
from leftfold.declare.scorer import Scorer
from leftfold.errors import RunError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

EXPECTED = "expected_"


class OnnxSession:
    """A loaded model. A call may come from any thread, and releases the interpreter's lock while it runs."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self._session.get_inputs()]
        self._outputs = [one.name for one in self._session.get_outputs()]

    def run(self, **inputs: Array) -> dict[str, Array]:
        return dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))


def load_onnx(path: Path, source: Onnx, check: Path | None, scorer: Scorer[Any, Any]) -> OnnxSession:
    if importlib.util.find_spec("onnxruntime") is None:
        raise RunError(
            "onnx-missing",
            "ONNX Runtime is not installed here",
            why=f"scorer {scorer.name} runs a model of it; everything else works without it",
            fix="install it: pip install 'leftfold[onnx]'",
            source=scorer.source,
        )
    session = OnnxSession(path, source.threads)
    if check is not None:
        _compare(session, source, check, scorer)
    return session


def _compare(session: OnnxSession, source: Onnx, check: Path, scorer: Scorer[Any, Any]) -> None:
    """Compare the outputs for the rows of a file with those that the file expects.

    A model that was converted works with floats of 32 bits: near a threshold of a tree, its answer may be another one.
    """
    import numpy as np
    import pyarrow.parquet as pq

    table = pq.read_table(check)
    names = [name for name in table.column_names if not name.startswith(EXPECTED)]
    given = np.column_stack([table[name].to_numpy(zero_copy_only=False) for name in names]).astype("float32")
    outputs = session.run(**{session.inputs[0]: given})
    for name in table.column_names:
        if not name.startswith(EXPECTED):
            continue
        expected = np.array(table[name].to_pylist(), dtype="float64")
        found = np.asarray(outputs[name.removeprefix(EXPECTED)], dtype="float64").reshape(expected.shape)
        off = np.abs(found - expected)
        if not np.all(off <= source.tolerance):
            row = int(np.argmax(off.reshape(len(expected), -1).max(axis=1)))
            raise RunError(
                "model-outputs-differ",
                f"the model of {scorer.name} does not give the outputs of {check.name}",
                why=f"row {row} has {name.removeprefix(EXPECTED)}={found[row]!r}, and {expected[row]!r} is expected, "
                f"within {source.tolerance:g}",
                state="nothing is scored by it",
                fix="give a larger tolerance= if such differences do no harm; else convert the model again",
                source=scorer.source,
            )
