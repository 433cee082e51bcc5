"""The README: its code works, and it stays short."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import leftfold as lf

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
DECLARED, USED = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150
    assert sum(bool(line.strip()) for line in DECLARED.splitlines()) <= 30


def test_what_it_declares_is_one_catalog_of_a_view_a_consumer_and_a_scorer() -> None:
    names: dict[str, Any] = {"lf": lf, "datetime": datetime, "__name__": "readme"}
    exec(compile(DECLARED, "README.md", "exec", dont_inherit=True), names)
    rows = lf.Rows.of(names["Input"], [{"clicks_1h": 10}])
    assert names["ranker"](0.1, rows) == [1.0]
    assert names["notify"].name == "notify"
    names |= {"noon": NOON, "later": NOON + timedelta(minutes=5)}
    unit_test, *live = USED.splitlines()
    assert eval(unit_test.partition("  #")[0], names) == 1
    for line in live:
        compile(line, "README.md", "exec")
