"""Extras of the package: what they install, and what they must not."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from leftfold.spark.environment import _required

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def installed_by(*extras: str) -> set[str]:
    """The names of all packages that `pip install leftfold[extras]` brings, as far as they are installed here."""
    requirements = [*PROJECT["dependencies"], *(r for e in extras for r in PROJECT["optional-dependencies"][e])]
    open_ends, found = list(_required(requirements, frozenset())), set[tuple[str, frozenset[str]]]()
    while open_ends:
        one = open_ends.pop()
        if one in found:
            continue
        found.add(one)
        try:
            requires = metadata.distribution(one[0]).requires or []
        except metadata.PackageNotFoundError:
            continue
        open_ends += _required(requires, one[1])
    return {name for name, _ in found}


def test_a_server_needs_no_spark() -> None:
    packages = installed_by("serve")
    assert {"starlette", "uvicorn", "confluent-kafka", "redis"} <= packages
    assert not packages & {"pyspark", "py4j", "pandas", "pyarrow"}


def test_a_small_training_set_needs_no_spark() -> None:
    packages = installed_by("arrow")
    assert {"pyarrow", "xxhash", "confluent-kafka"} <= packages
    assert not packages & {"pyspark", "py4j", "pandas"}
    modules = "import leftfold, leftfold.training.sets, leftfold.training.by_arrow, sys; "
    told = "print([name for name in ('pyspark', 'py4j', 'pandas', 'mlflow') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", modules + told], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_walk_would_find_it() -> None:
    assert {"pyspark", "py4j", "pandas"} <= installed_by("spark")
