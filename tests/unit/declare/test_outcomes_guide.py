"""The declarations of docs/guide/outcomes.md, executed."""

from __future__ import annotations

import re
from pathlib import Path

import leftfold as lf

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "outcomes.md"


def test_the_guide_runs(tmp_path: Path) -> None:
    declared, asked = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "streams.py").write_text(declared)
    (tmp_path / "leftfold.toml").write_text('[project]\nname = "guide"\ndeclarations = ["streams.py"]\n')
    outcome = lf.open(tmp_path).catalog.outcome("ranker_outcome")
    assert [label.name for label in outcome.labels] == ["bought", "large", "spent", "after_s"]
    assert outcome.credit == "last"
    compile(asked, "guide", "exec")
