"""The declarations and the arithmetic of docs/guide/evaluation.md, executed."""

from __future__ import annotations

import re
from pathlib import Path

import leftfold as lf
from leftfold.quality.evaluation import chosen_label, chosen_score

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "evaluation.md"


def test_the_guide_runs(tmp_path: Path) -> None:
    declared, evaluated, counted, drifted = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "streams.py").write_text(declared)
    (tmp_path / "leftfold.toml").write_text('[project]\nname = "guide"\ndeclarations = ["streams.py"]\n')
    catalog = lf.open(tmp_path).catalog
    assert chosen_score(catalog.scorer("ranker"), None) == "score"
    assert chosen_label(catalog.outcome("ranker_outcome"), None) == "bought"
    exec(counted, {})
    for asked in (evaluated, drifted):
        compile(asked, "guide", "exec")
