"""What is shipped to executors: all that a task imports, nothing that a worker's Spark brings, made once."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from leftfold.settings import Spark
from leftfold.spark import environment, session


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and of the libraries only small ones: the real archive takes half a minute."""
    monkeypatch.setenv("LEFTFOLD_CACHE", str(tmp_path / "cache"))
    real = environment.distributions()
    small = {name: real[name] for name in ("python-dotenv", "hiredis")}
    monkeypatch.setattr(environment, "distributions", lambda: small)
    return tmp_path / "cache"


def test_the_closure_of_what_runs_a_view() -> None:
    found = environment.distributions()
    assert {"pyarrow", "pandas", "numpy", "redis", "hiredis", "psycopg", "pydantic-core", "datasketches"} <= set(found)
    assert "authlib" in found  # of an extra that a requirement names
    assert not {"leftfold", "pyspark", "py4j", "pytest", "mypy", "ruff", "ipython"} & set(found)


@pytest.mark.usefixtures("cache")
def test_the_archives_hold_packages_at_their_top() -> None:
    made = environment.archives()
    with tarfile.open(made[environment.PACKAGE]) as tar:
        names = tar.getnames()
    assert {"leftfold/__init__.py", "leftfold/spark/sinks/online.py", "leftfold/jars.lock.json"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    with tarfile.open(made[environment.LIBRARIES]) as tar:
        names = tar.getnames()
    assert {"dotenv/__init__.py", "hiredis/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith("..") or "__pycache__" in name]


def test_leftfold_is_imported_from_its_archive(cache: Path, tmp_path: Path) -> None:
    """By an interpreter that starts beside the unpacked archive, as an executor's does."""
    with tarfile.open(environment.archives()[environment.PACKAGE]) as tar:
        tar.extractall(tmp_path / environment.PACKAGE, filter="data")
    ran = subprocess.run(
        [sys.executable, "-c", "import leftfold; print(leftfold.__file__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": environment.PYTHONPATH},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(ran.stdout.strip()) == tmp_path / environment.PACKAGE / "leftfold" / "__init__.py"


def test_made_once_and_anew_when_something_changed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = environment.archives()
    times = [path.stat().st_mtime_ns for path in first.values()]
    assert environment.archives() == first
    assert [path.stat().st_mtime_ns for path in first.values()] == times
    assert len(list((cache / "environments").iterdir())) == 2

    fewer = {name: one for name, one in environment.distributions().items() if name == "hiredis"}
    monkeypatch.setattr(environment, "distributions", lambda: fewer)
    second = environment.archives()
    assert second[environment.PACKAGE] == first[environment.PACKAGE]
    assert second[environment.LIBRARIES] != first[environment.LIBRARIES]


def test_a_failure_leaves_no_half_archive(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_files", lambda _: [("gone", tmp_path / "gone")])
    with pytest.raises(FileNotFoundError):
        environment.archives()
    assert not list((cache / "environments").iterdir())


# What a session does with it ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("master", ["local", "local[*,4]", "local[2]"])
def test_a_local_master_is_shipped_nothing(master: str) -> None:
    assert session.shipped(Spark(master=master)) == {}
    assert session.python_of(Spark(master=master)) == sys.executable


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://m:7077", "k8s://x", "local-cluster[2,1,1024]"])
def test_every_other_master_gets_the_archives(master: str) -> None:
    settings = session.shipped(Spark(master=master))
    named = [entry.rpartition("#") for entry in settings["spark.archives"].split(",")]
    assert {name for _, _, name in named} == set(settings["spark.executorEnv.PYTHONPATH"].split(":"))
    assert all(Path(path).is_file() for path, _, _ in named)


def test_the_interpreter_of_workers() -> None:
    assert session.python_of(Spark(master="spark://127.0.0.1:1")) == sys.executable
    assert session.python_of(Spark(master="spark://m:1")) == f"python3.{sys.version_info.minor}"
    assert session.python_of(Spark(master="spark://m:1", python="/opt/python")) == "/opt/python"
    assert session.python_of(Spark(python="/opt/python")) == "/opt/python"
