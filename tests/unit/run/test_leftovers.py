from __future__ import annotations

import json
from pathlib import Path

from leftfold.run.leftovers import checkpoints_of

BUILD = "0123456789ab-11111111"


def made(directory: Path, id: str, file: str = "metadata") -> Path:
    directory.mkdir(parents=True)
    (directory / file).write_text(json.dumps({"id": id}))
    return directory


def test_only_those_of_the_build(tmp_path: Path) -> None:
    mine = "11111111-aaaa"
    view = tmp_path / "activity"
    wanted = [
        made(view / "0123456789ab", mine),
        made(view / "0123456789ab.17", mine),  # set aside
        made(view / "0123456789ab.rebuild", mine, "leftfold-frozen.json"),
    ]
    made(view / "0123456789ab.18", "22222222-aaaa")
    made(view / "ba9876543210", mine)
    made(tmp_path / "others" / "0123456789ab", mine)
    (view / "0123456789ab.19").mkdir()
    (view / "0123456789ab.20").mkdir()
    (view / "0123456789ab.20" / "metadata").write_text("{")
    assert list(checkpoints_of("activity", BUILD, str(tmp_path))) == wanted
    assert list(checkpoints_of("activity", BUILD, f"file://{tmp_path}")) == wanted
    assert list(checkpoints_of("activity", BUILD, "s3a://lake/checkpoints")) == []
