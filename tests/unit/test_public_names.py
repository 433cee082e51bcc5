"""One sorted list of what `leftfold` offers, compared with the package itself."""

from __future__ import annotations

import inspect
import types

import pytest

import leftfold

PUBLIC = [
    "App",
    "DeclarationError",
    "DeliveryError",
    "Event",
    "Feature",
    "Features",
    "LeftfoldError",
    "LocalError",
    "LogError",
    "ProjectError",
    "Provenance",
    "RunError",
    "StoreError",
    "Topic",
    "count",
    "last",
    "open",
    "sum",
]


def test_the_list() -> None:
    assert leftfold.__all__ == PUBLIC


def test_the_list_is_sorted() -> None:
    assert sorted(leftfold.__all__) == leftfold.__all__


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(leftfold, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    assert value.__module__.startswith("leftfold.")


def test_nothing_else_is_public() -> None:
    others = {n for n in dir(leftfold) if not n.startswith("_")} - set(PUBLIC)
    modules = {n for n in others if isinstance(getattr(leftfold, n), types.ModuleType)}
    assert others - modules == set()
    assert {getattr(leftfold, n).__name__ for n in modules} == {f"leftfold.{n}" for n in modules}


def test_every_error_class_is_public() -> None:
    from leftfold import errors

    tree = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.LeftfoldError)}
    assert tree <= set(PUBLIC)
