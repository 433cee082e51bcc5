"""Both checkers accept what is right and find every mistake, on its line and nowhere else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "typing"

Found = dict[int, list[str]]  # line -> messages


def _mypy(file: Path, tmp: Path) -> Found:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--no-error-summary", "--no-pretty"]
    # A configuration of its own: the project's leaves this directory out.
    config = tmp / "mypy.ini"
    config.write_text(
        "[mypy]\nfollow_untyped_imports = False\n[mypy-confluent_kafka.*]\nignore_missing_imports = True\n"
    )
    done = subprocess.run(
        [*command, "--config-file", str(config), "--cache-dir", str(tmp / "cache"), file.name],
        cwd=CASES,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Found = {}
    for line in done.stdout.splitlines():
        if match := re.fullmatch(rf"{re.escape(file.name)}:(\d+): error: (.*)", line):
            found.setdefault(int(match[1]), []).append(match[2])
        else:
            assert ": note: " in line, line  # an error in src would hide what this file is about
    return found


def _pyright(file: Path, tmp: Path) -> Found:
    """Beside a copy of the file, because pyright reads only the configuration of the directory it looks into."""
    shutil.copy(file, tmp)
    # `row.misspelt` as a statement of its own is not a second mistake.
    settings = {"typeCheckingMode": "standard", "reportUnusedExpression": False}
    (tmp / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"],
        cwd=tmp,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    found: Found = {}
    for finding in report["generalDiagnostics"]:
        if finding["severity"] == "error":
            found.setdefault(finding["range"]["start"]["line"] + 1, []).append(finding["message"])
    return found


CHECKERS: dict[str, Callable[[Path, Path], Found]] = {"mypy": _mypy, "pyright": _pyright}


@pytest.mark.parametrize("checker", sorted(CHECKERS))
def test_right(checker: str, tmp_path: Path) -> None:
    assert CHECKERS[checker](CASES / "right.py", tmp_path) == {}


@pytest.mark.parametrize("checker", sorted(CHECKERS))
def test_wrong(checker: str, tmp_path: Path) -> None:
    file = CASES / "wrong.py"
    marked = {n for n, line in enumerate(file.read_text().splitlines(), 1) if re.search(r"# error: \w", line)}
    assert len(marked) > 100
    found = CHECKERS[checker](file, tmp_path)
    lines = file.read_text().splitlines()
    missed = [f"{n}: {lines[n - 1].strip()}" for n in sorted(marked - set(found))]
    extra = {n: messages for n, messages in found.items() if n not in marked}
    assert (missed, extra) == ([], {})


def test_what_is_right_also_runs() -> None:
    done = subprocess.run(
        [sys.executable, "right.py"], cwd=CASES, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
