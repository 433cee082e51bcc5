"""The tests on the page about the model are run as they are written."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "the-model.md"


def test_the_page(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == text.count("\n```") // 2, "a block that nobody executes"
    file = tmp_path / "page.py"
    file.write_text("\n".join(blocks))
    names = runpy.run_path(str(file))
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 5
    for test in tests:
        test()
