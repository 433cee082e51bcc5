"""Loads models from their declared sources, with the version under which their predictions are logged."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leftfold.declare.code import code_fingerprint
from leftfold.declare.model_source import MLflow, Model, ModelFile, Onnx, Remote
from leftfold.declare.scorer import Scorer
from leftfold.errors import LeftfoldError, RunError


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to score."""

    model: Any
    name: str
    version: str


class Loader:
    """Loads one model of a scorer. `version` says cheaply whether another one is there by now."""

    def __init__(self, source: Any, scorer: Scorer[Any, Any], root: Path) -> None:
        self._source = source
        self._scorer = scorer
        self._root = root

    def version(self) -> str | None:
        """Return the version that would be loaded now; None if that is not known before it is loaded."""
        with self._one_error():
            match self._source:
                case ModelFile() | Onnx():
                    return _digest(self._path(self._source.path))
                case MLflow():
                    from leftfold.infer.mlflow_model import version_of

                    return version_of(self._source)
                case Remote():
                    from leftfold.infer.remote_model import connect

                    return connect(self._source).version
        return None

    def load(self) -> Loaded:
        with self._one_error():
            return self._load()

    @contextmanager
    def _one_error(self) -> Iterator[None]:
        """Turn whatever goes wrong into one error, which names the scorer and the cause."""
        try:
            yield
        except LeftfoldError:
            raise
        except Exception as error:  # a person's loader, or a library of models, may raise anything
            raise RunError(
                "model-not-loaded",
                f"the model of {self._scorer.name} could not be loaded",
                why=f"{type(error).__name__}: {error}",
                state="nothing is scored by it; a model that was loaded before stays in use",
                fix="correct the cause and start again",
                source=self._scorer.source,
            ) from error

    def _load(self) -> Loaded:
        name, source = self._scorer.name, self._source
        match source:
            case ModelFile():
                path = self._path(source.path)
                return Loaded(source.load(str(path)), name, _digest(path))
            case Onnx():
                from leftfold.infer.onnx_model import load_onnx

                path = self._path(source.path)
                check = None if source.check is None else self._path(source.check)
                return Loaded(load_onnx(path, source, check, self._scorer), name, _digest(path))
            case MLflow():
                from leftfold.infer.mlflow_model import load_mlflow

                return load_mlflow(source, self._scorer)
            case Remote():
                from leftfold.infer.remote_model import connect

                return connect(source)
            case _:
                return self._called(source)

    def _called(self, load: Callable[[], Any]) -> Loaded:
        loaded = load()
        if isinstance(loaded, Model):
            return Loaded(loaded.model, loaded.name or self._scorer.name, loaded.version)
        code = code_fingerprint(load, self._scorer.source) if inspect.isfunction(load) else type(load).__name__
        return Loaded(loaded, self._scorer.name, f"code-{code[:12]}")

    def _path(self, path: str) -> Path:
        return self._root / path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
