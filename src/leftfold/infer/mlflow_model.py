"""Models of an MLflow registry. MLflow only loads them: its own predict would check a schema at every call."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

from leftfold.declare.model_source import MLflow
from leftfold.declare.scorer import Scorer
from leftfold.errors import RunError
from leftfold.infer.loaders import Loaded

_URI = re.compile(r"models:/(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>[^/]+))")


def version_of(source: MLflow) -> str:
    """Return the version that the URI names now. An alias may name another one than a minute ago."""
    found = _URI.fullmatch(source.uri)
    if found is None:
        raise RunError(
            "model-not-loaded",
            f"{source.uri!r} names no version of a registered model",
            why="predictions are logged with the version of their model",
            fix='write lf.MLflow("models:/NAME@ALIAS") or lf.MLflow("models:/NAME/VERSION")',
        )
    if found["version"] is not None:
        return str(found["version"])
    return str(_client(source).get_model_version_by_alias(found["name"], found["alias"]).version)


def pinned_to(source: MLflow, loaded: Loaded) -> MLflow:
    """Return the source of this one version, in the registry that is in use here."""
    import mlflow

    return MLflow(f"models:/{loaded.name}/{loaded.version}", source.tracking or mlflow.get_tracking_uri())


def load_mlflow(source: MLflow, scorer: Scorer[Any, Any]) -> Loaded:
    import mlflow.pyfunc

    version, name = version_of(source), source.uri.removeprefix("models:/").partition("@")[0].partition("/")[0]
    _client(source)
    loaded = mlflow.pyfunc.load_model(f"models:/{name}/{version}")
    signature = loaded.metadata.get_input_schema()
    if signature is not None and signature.has_input_names():
        _check_names(scorer, name, version, signature.input_names())
    try:
        model = loaded.get_raw_model()
    except (AttributeError, NotImplementedError):
        model = loaded  # a model that only knows MLflow's own predict
    return Loaded(model, name, version)


def _client(source: MLflow) -> Any:
    if importlib.util.find_spec("mlflow") is None:
        raise RunError(
            "mlflow-missing",
            "MLflow is not installed here",
            why=f"a scorer takes its model from {source.uri}; everything else works without it",
            fix="install it: pip install 'leftfold[mlflow]'",
        )
    import mlflow

    if source.tracking is not None:
        mlflow.set_tracking_uri(source.tracking)
    return mlflow.MlflowClient()


def _check_names(scorer: Scorer[Any, Any], name: str, version: str, wanted: list[str]) -> None:
    has = scorer.vector.__leftfold_names__
    if absent := [column for column in wanted if column not in has]:
        raise RunError(
            "model-signature-differs",
            f"version {version} of {name} takes {absent[0]}, which {scorer.vector.__name__} does not have",
            why=f"its signature names {', '.join(wanted)}; the vector has {', '.join(has)}",
            state="nothing is scored by it",
            fix="declare a vector with what it takes, or train the model with this one",
            source=scorer.source,
        )
