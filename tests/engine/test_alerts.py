"""docs/operate/alerts.yml: Prometheus takes the rules, and each alert fires when it should, and not before.

promtool is part of Prometheus, which is why this is an engine test. It starts nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs" / "operate" / "alerts.yml"
STORIES = ROOT / "tests" / "data" / "alerts.test.yml"


def promtool(*arguments: str | Path) -> str:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.fail("promtool is not on the PATH: install Prometheus (Debian: apt install prometheus)")
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules() -> None:
    assert "rules found" in promtool("check", "rules", RULES)


def test_each_alert_fires_when_it_should() -> None:
    assert "SUCCESS" in promtool("test", "rules", STORIES)
