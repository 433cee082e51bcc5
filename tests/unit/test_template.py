"""The project that `leftfold init` makes is right: its own tests pass, and it is typed strictly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from leftfold.cli.declare_verbs import init

EXAMPLE = Path(__file__).parents[2] / "examples" / "clickstream"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    assert CliRunner().invoke(init, [str(tmp_path / "shop")]).exit_code == 0
    return tmp_path / "shop"


def test_its_own_tests_pass(shop: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=shop, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_it_is_typed(shop: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "."], cwd=shop, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_example_is_the_template(shop: Path) -> None:
    assert (EXAMPLE / "streams.py").read_text() == (shop / "streams.py").read_text()
