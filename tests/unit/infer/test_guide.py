"""The declarations and the unit test of docs/guide/scoring.md, executed."""

from __future__ import annotations

import re
from pathlib import Path

import leftfold as lf

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "scoring.md"


def test_the_guide_runs(tmp_path: Path) -> None:
    declared, tested, asked = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "streams.py").write_text(declared)
    (tmp_path / "leftfold.toml").write_text('[project]\nname = "guide"\ndeclarations = ["streams.py"]\n')
    catalog = lf.open(tmp_path).catalog
    assert set(catalog.scorers) == set(catalog.consumers) == {"fraud"}
    assert set(catalog.topics) == {"payments", "fraud_scores"}
    exec(tested, catalog.scorer("fraud").function.__globals__)
    compile(asked, "guide", "exec")
