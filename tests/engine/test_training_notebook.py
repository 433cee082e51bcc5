"""examples/notebooks/training.ipynb, run as it is. Its committed outputs are those of every run.

`LEFTFOLD_GOLDEN=write` puts the outputs of this run into it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.engine import guides
from tests.engine.conftest import Cluster

NOTEBOOK = guides.EXAMPLES / "notebooks" / "training.ipynb"
RUNNER = Path(__file__).with_name("run_notebook.py")


def cells(file: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_every_output_is_the_committed_one(cluster: Cluster, tmp_path: Path) -> None:
    root = guides.copied("notebooks", tmp_path, cluster.endpoints, f"n{uuid.uuid4().hex[:8]}")
    done = subprocess.run(
        [sys.executable, RUNNER, NOTEBOOK.name],
        cwd=root,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = cells(root / NOTEBOOK.name)
    if os.environ.get("LEFTFOLD_GOLDEN") == "write":
        shutil.copyfile(root / NOTEBOOK.name, NOTEBOOK)
    for cell, committed in zip(made, cells(NOTEBOOK), strict=True):
        assert cell["outputs"] == committed["outputs"], "".join(cell["source"])
    printed = "".join("".join(one.get("text", "")) for cell in made for one in cell["outputs"])
    assert "event ≠ log" in printed
    assert printed.endswith("True\n"), "the set that was made again is another one"
