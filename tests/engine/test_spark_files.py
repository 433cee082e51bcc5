"""Files that are listed while Spark writes and renames them, and relative locations."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from leftfold.spark import files


def test_sizes_while_files_are_renamed(spark: Any, tmp_path: Path) -> None:
    state = tmp_path / "state" / "0"
    state.mkdir(parents=True)
    kept = {f"{n}.changelog": n for n in range(20)}
    for name, size in kept.items():
        (state / name).write_bytes(b"x" * size)
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            for n in range(50):
                (state / f".{n}.tmp").write_bytes(b"x")
            for n in range(50):
                (state / f".{n}.tmp").rename(state / f"{n}.zip")

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        for _ in range(20):
            found = files.sizes(spark, str(tmp_path), ".changelog")
            assert {name.rpartition("/")[2]: size for name, size in found.items()} == kept
    finally:
        ended.set()
        writer.join()
    assert files.sizes(spark, str(tmp_path / "nothing"), ".changelog") == {}


def test_a_relative_location_is_in_the_directory_of_this_process(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java was started in another one."""
    monkeypatch.chdir(tmp_path)
    files.write_text(spark, "here", "text")
    assert (tmp_path / "here").read_text() == files.read_text(spark, "here") == "text"
    assert files.absolute(spark, "sets/1") == str(tmp_path / "sets" / "1")
    assert files.absolute(spark, "s3a://bucket/sets") == "s3a://bucket/sets"
