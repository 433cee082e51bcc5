"""Files of a checkpoint that are listed while Spark writes and renames them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

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
