"""A suite that does not use the plugin's fixtures does not notice it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUITE = """
import sys

def test_nothing_was_loaded():
    assert "leftfold.testing.plugin" in sys.modules
    heavy = {"pyspark", "confluent_kafka", "redis", "fastavro", "datasketches", "numpy", "leftfold.local"}
    assert heavy & set(sys.modules) == set()
"""


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "-c", "/dev/null"]
    return subprocess.run([*command, *options], cwd=directory, capture_output=True, text=True, timeout=120, check=False)


def test_a_suite_that_does_not_use_it(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(SUITE)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert [p.name for p in tmp_path.iterdir() if p.name != "__pycache__"] == ["test_own.py"]


def test_fixtures_say_what_they_are(tmp_path: Path) -> None:
    said = run(tmp_path, "--fixtures").stdout
    for name in ("leftfold_cluster [session scope]", "leftfold_spark [session scope]", "leftfold_app --"):
        assert name in said
    assert "Three real brokers, a schema registry and a Redis, shared by all tests of the run." in said
