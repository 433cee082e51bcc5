"""Scores the rows of a frame: what an executor of Spark calls for each Arrow batch. It does not know Spark.

Each process loads the declarations and the model once, and scores only with the version that the driver has named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from leftfold.declare.event import fields_of
from leftfold.declare.model_source import MLflow, ModelFile, ModelSource, Onnx
from leftfold.declare.rows import Read
from leftfold.declare.scorer import Scorer
from leftfold.declare.vector import PartKind, Vector
from leftfold.declare.vector_rows import NUMBERS, Rows
from leftfold.errors import RunError
from leftfold.fold.expressions import from_micros, to_micros
from leftfold.infer.loaders import Loaded
from leftfold.infer.scoring import Scoring
from leftfold.loading import load

if TYPE_CHECKING:
    import numpy as np

Column = Any  # an array of PyArrow
V = TypeVar("V", bound=Vector)


@dataclass(frozen=True)
class Answer:
    """A field that the model gives, as a column."""

    name: str
    kind: str
    repeated: bool


@dataclass(frozen=True)
class FrameScorer:
    """A scorer as executors get it: where it is declared, and the model that it must have. It can be pickled."""

    files: tuple[str, ...]  # with the project's declarations, relative to its directory
    name: str
    model: str
    version: str
    pinned: ModelSource[Any] | None  # loads this version of the model, where the declared source may name another soon

    def __call__(self, root: str, columns: Mapping[str, Column], moments: Column) -> dict[str, list[Any]]:
        """Score rows. `columns` has the parts and requests of the vector, `moments` the moment of each row in µs.

        Returns a list for each answer, with times in µs.
        """
        ready = self._ready(Path(root))
        rows = FrameRows(ready.scoring.scorer.vector, columns, moments)
        answers = ready.scoring.answers(ready.loaded, rows)
        for answer in answers_of(ready.scoring.scorer):
            if answer.kind == "datetime":
                answers[answer.name] = [_as_micros(value) for value in answers[answer.name]]
        return answers

    def _ready(self, root: Path) -> _Ready:
        """Return the scorer with its model, which is loaded once in a process."""
        declared = _declared(root, self.files, self.name)
        held = _held.get((str(root), self.name))
        if held is None or held.declared is not declared or held.asked != self:
            pinned = declared if self.pinned is None else replace(declared, model=self.pinned)
            scoring = _alone(pinned, root)
            held = _held[str(root), self.name] = _Ready(self, declared, scoring, self._checked(scoring.load_once()))
        return held

    def _checked(self, loaded: Loaded) -> Loaded:
        if (loaded.name, loaded.version) == (self.model, self.version):
            return loaded
        raise RunError(
            "model-version-differs",
            f"an executor has version {loaded.version} of {loaded.name}, the driver has {self.version} of {self.model}",
            why="a frame is scored by one model, the one that the driver has loaded and tried",
            state="nothing was scored by the other model",
            fix="run it again; if it happens again, give all machines the same files and settings",
        )


@dataclass(frozen=True)
class _Ready:
    asked: FrameScorer
    declared: Scorer[Any, Any]
    scoring: Scoring
    loaded: Loaded


# What this process has loaded, by the project's directory and the scorer's name. Spark uses a process for many tasks.
_held: dict[tuple[str, str], _Ready] = {}


def frame_scorer(scorer: Scorer[Any, Any], root: Path, files: Sequence[str]) -> FrameScorer:
    """Load the live model of a scorer, try it, and return what executors need to score with the same."""
    loaded = _alone(scorer, root).load_once()
    pinned = None
    if isinstance(scorer.model, MLflow):  # an alias could be moved between this moment and the last task
        from leftfold.infer.mlflow_model import pinned_to

        pinned = pinned_to(scorer.model, loaded)
    return FrameScorer(tuple(files), scorer.name, loaded.name, loaded.version, pinned)


def answers_of(scorer: Scorer[Any, Any]) -> list[Answer]:
    fields = fields_of(scorer.prediction)
    return [Answer(n, fields[n].kind, fields[n].repeated) for n in scorer.prediction.__leftfold_answers__]


def model_files(scorer: Scorer[Any, Any], root: Path) -> list[Path]:
    """Return the files in the project's directory from which the live model is loaded."""
    source = scorer.model
    paths = [source.path] if isinstance(source, ModelFile) else []
    if isinstance(source, Onnx):
        paths = [source.path, *([source.check] if source.check else [])]
    files = [(root / path).resolve() for path in paths]
    return [file for file in files if file.is_relative_to(root.resolve())]


def _alone(scorer: Scorer[Any, Any], root: Path) -> Scoring:
    return Scoring(replace(scorer, canary=None, shadows=()), root)


def _declared(root: Path, files: Sequence[str], name: str) -> Scorer[Any, Any]:
    (found,) = (one for one in load(root, list(files)) if isinstance(one, Scorer) and one.name == name)
    return found


def _as_micros(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_micros(one) for one in value]
    return None if value is None else to_micros(value)


class FrameRows(Rows[V]):
    """Rows of an Arrow batch. A matrix is made from whole columns; single rows are made when they are asked for."""

    def __init__(self, vector: type[V], columns: Mapping[str, Column], moments: Column) -> None:
        self._columns = columns
        super().__init__(vector, _Reads(vector, columns, moments))

    def column(self, name: str) -> list[Any]:
        return list(_values(self._columns[name], self.vector.__leftfold_kinds__[name]))

    def matrix(self, dtype: str = "float64", *, columns: Sequence[str] | None = None) -> np.ndarray[Any, Any]:
        import numpy as np

        names = self._numbers(columns)
        if not np.issubdtype(np.dtype(dtype), np.floating):  # there a missing number is an error, which rows tell
            return super().matrix(dtype, columns=columns)
        made = np.empty((len(self), len(names)), dtype=dtype)
        for place, name in enumerate(names):
            # By way of 64 bits, as a number of Python gets there: an int would be rounded once, and not twice.
            made[:, place] = self._columns[name].cast("double", safe=False).to_numpy(zero_copy_only=False)
        return made

    def _for_frame(self, name: str) -> Any:
        kind, column = self.vector.__leftfold_kinds__[name], self._columns[name]
        if kind.repeated or kind.kind not in NUMBERS:
            return self.column(name)
        whole = column if column.null_count == 0 else column.cast("double", safe=False)
        return whole.to_numpy(zero_copy_only=False)


class _Reads(Sequence[Read]):
    """The rows of a batch, as a read of the store would have returned them."""

    def __init__(self, vector: type[Vector], columns: Mapping[str, Column], moments: Column) -> None:
        self._vector = vector
        self._columns = columns
        self._moments = moments

    @cached_property
    def _rows(self) -> list[Read]:
        kinds = self._vector.__leftfold_kinds__
        names = self._vector.__leftfold_names__
        values = zip(*(_values(self._columns[name], kinds[name]) for name in names), strict=True)
        moments = self._moments.to_pylist()
        return [
            Read(dict(zip(names, row, strict=True)), from_micros(at), ())
            for row, at in zip(values, moments, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._moments)

    @overload
    def __getitem__(self, index: int) -> Read: ...
    @overload
    def __getitem__(self, index: slice) -> list[Read]: ...
    def __getitem__(self, index: int | slice) -> Read | list[Read]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Read]:
        return iter(self._rows)


def _values(column: Column, kind: PartKind) -> list[Any]:
    """Return a column as Python's own values, with times in UTC."""
    if kind.kind != "datetime":
        values: list[Any] = column.to_pylist()
        return values
    import pyarrow as pa

    micros = column.cast(pa.list_(pa.int64()) if kind.repeated else pa.int64()).to_pylist()
    return [_as_moments(value) for value in micros]


def _as_moments(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_moments(one) for one in value]
    return None if value is None else from_micros(value)
