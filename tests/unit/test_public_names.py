"""One sorted list of what `leftfold` offers, compared with the package itself."""

from __future__ import annotations

import builtins
import inspect
import types

import pytest

import leftfold

PUBLIC = [
    "App",
    "Batch",
    "Canary",
    "Changelog",
    "Consumer",
    "DeclarationError",
    "DeliveryError",
    "Event",
    "Feature",
    "Features",
    "Label",
    "Lake",
    "LeftfoldError",
    "LocalError",
    "LogError",
    "MLflow",
    "Model",
    "ModelFile",
    "MostDead",
    "NotNow",
    "Online",
    "Onnx",
    "OnnxModel",
    "Outcome",
    "Personal",
    "Prediction",
    "Predictions",
    "ProjectError",
    "Provenance",
    "Record",
    "Remote",
    "RemoteModel",
    "Retry",
    "Row",
    "Rows",
    "RunError",
    "Scorer",
    "Sql",
    "SqlConnection",
    "StoreError",
    "Stream",
    "Table",
    "Topic",
    "Unprocessable",
    "Vector",
    "View",
    "consumer",
    "count",
    "delay",
    "distinct",
    "each",
    "happened",
    "last",
    "last_n",
    "latest",
    "max",
    "mean",
    "min",
    "open",
    "request",
    "scorer",
    "stream",
    "sum",
    "view",
]


def test_a_star_import_hides_no_builtin() -> None:
    assert leftfold.__all__ == [name for name in PUBLIC if not hasattr(builtins, name)]


def test_the_list_is_sorted() -> None:
    assert sorted(leftfold.__all__) == leftfold.__all__


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(leftfold, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    assert value.__module__.startswith("leftfold.")


def test_nothing_else_is_public() -> None:
    hooks = {"load_ipython_extension"}  # IPython looks for it by this name; people write %load_ext
    names = {n for n in dir(leftfold) if n.isidentifier()}  # pytest leaves others in what its plugins import
    others = {n for n in names if not n.startswith("_")} - set(PUBLIC) - hooks
    modules = {n for n in others if isinstance(getattr(leftfold, n), types.ModuleType)}
    assert others - modules == set()
    assert {getattr(leftfold, n).__name__ for n in modules} == {f"leftfold.{n}" for n in modules}


def test_every_error_class_is_public() -> None:
    from leftfold import errors

    tree = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.LeftfoldError)}
    assert tree <= set(PUBLIC)
