"""Sources of models, as data: where a model is loaded from, and how its version is known. Loading is in `infer`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from leftfold.errors import DeclarationError, caller

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

M_co = TypeVar("M_co", covariant=True)


class OnnxModel(Protocol):
    """A model that ONNX Runtime runs, as a scorer's function gets it."""

    def run(self, **inputs: Array) -> dict[str, Array]:
        """Return the outputs by name."""


class RemoteModel(Protocol):
    """A model behind a server, as a scorer's function gets it."""

    def run(self, **inputs: Array) -> dict[str, Array]:
        """Send the inputs, and return the outputs by name."""


@dataclass(frozen=True)
class Model(Generic[M_co]):
    """A model with its version, as a function that loads one may return it."""

    model: M_co
    version: str
    name: str = ""  # by default the scorer's name


class ModelSource(Generic[M_co]):
    """Base of the sources below."""


@dataclass(frozen=True)
class ModelFile(ModelSource[M_co]):
    """A file that a function loads, for example `lf.ModelFile("models/ranker.joblib", joblib.load)`.

    Its version is the file's sha256. Relative paths begin at the project's directory.
    """

    path: str
    load: Callable[[str], M_co]


@dataclass(frozen=True)
class Onnx(ModelSource[OnnxModel]):
    """A model in the format of ONNX, run by ONNX Runtime. Its version is the file's sha256.

    `check` is a Parquet file with rows of inputs and, in columns named `expected_…`, the outputs that the model must
    give for them, within `tolerance`.
    """

    path: str
    check: str | None = None
    tolerance: float = 1e-5
    threads: int = 1  # of one prediction


@dataclass(frozen=True)
class MLflow(ModelSource[Any]):
    """A model of an MLflow registry, by its URI: `models:/ranker@champion` or `models:/ranker/7`.

    An alias is looked at from time to time; the model that it names then is loaded, checked and swapped in.
    """

    uri: str
    tracking: str | None = None  # the registry's address; by default MLFLOW_TRACKING_URI


@dataclass(frozen=True)
class Remote(ModelSource[RemoteModel]):
    """A model behind a server that speaks the Open Inference Protocol: Triton, KServe, MLServer."""

    url: str
    model: str
    version: str | None = None
    timeout_s: float = 1.0


@dataclass(frozen=True)
class Canary:
    """A second model that answers for a share of the entities. An entity stays with one model: its key decides."""

    model: ModelSource[Any] | Callable[[], Any]
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise DeclarationError(
                "canary-share",
                f"lf.Canary has share={self.share}",
                why="a share lies between 0 and 1",
                fix="write share=0.05 for example",
                source=caller(),
            )
