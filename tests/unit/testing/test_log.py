"""The model of the log holds to its checks; so do the histories of real brokers that were recorded."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import leftfold.testing.log as the_model
from tests.unit.testing.log_checks import CHECKS
from tests.unit.testing.packages import HOME


@pytest.fixture(scope="module")
def model() -> ModuleType:
    for path in HOME.glob("[a-z]*.py"):
        importlib.import_module(f"leftfold.testing.log.{path.stem}")
    return the_model


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_model(check: Callable[[Any], None], model: ModuleType) -> None:
    check(model)
