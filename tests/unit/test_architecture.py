"""docs/architecture.md names files that exist, and describes each walk in few lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
WALKS = TEXT.split("\n## ")[1:]


def test_there_are_four_walks() -> None:
    assert len(WALKS) == 4


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.splitlines()[0])
def test_a_walk_is_short_and_its_files_exist(walk: str) -> None:
    lines = [line for line in walk.splitlines()[1:] if line.strip() and not line.startswith("```")]
    assert len(lines) <= 25
    files = re.findall(r"`([a-z_/]+\.py)`", walk)
    assert len(files) > 8
    assert [file for file in files if not (ROOT / "src" / "leftfold" / file).is_file()] == []
