"""What a function does, not how it is written down. Each variant is a file of its own, as a project's would be."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leftfold.declare.code import code_fingerprint
from leftfold.errors import DeclarationError, SourceLine

HERE = SourceLine(__file__, 1)
BASE = """\
from statistics import mean

LIMIT = 3
RATES = {"a": 1.0, "b": [2, 3]}
WANTED = {"x", "y"}

def helper(value):
    return value * LIMIT

HANDLERS = [helper]

def decorated(function):
    return function

def outer():
    inside = 5

    def view(records, size=LIMIT):
        kept = [helper(r) for r in records if r < 10]
        more = list(map(lambda r: r + RATES["a"], kept))
        return more, size, inside, mean(kept), WANTED, HANDLERS

    return view

view = outer()
"""


def printed(tmp_path: Path, source: str) -> str:
    path = tmp_path / f"made_{abs(hash(source))}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return code_fingerprint(module.view, HERE)


def changed(old: str, new: str) -> str:
    assert old in BASE
    return BASE.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        kept =", "        # a comment\n        kept ="),
        ("        kept = [helper(r) for r", "        kept = [\n            helper(r)\n            for r"),
        ("    def view(records, size=LIMIT):\n", '    def view(records, size=LIMIT):\n        """Says what."""\n'),
        ("def view(records, size=LIMIT):", "def view(records: list[int], size: int = LIMIT) -> object:"),
        ("        kept =", "        kept: list[int] ="),
        ("        kept =", "        unused: int\n        kept ="),
        ("    return value * LIMIT", '    """A helper\'s docstring."""\n    return value * LIMIT'),
        ("def helper(value):", "def helper(value: int) -> int:"),
        ("    def view(", "    @decorated\n    def view("),
        (
            "def decorated(function):\n    return function",
            "def decorated(function):\n    return (function)  # unused",
        ),
        ('WANTED = {"x", "y"}', 'WANTED = {"y", "x"}'),
        ("LIMIT = 3", "LIMIT = 3\nUNUSED = 4"),
        ('RATES["a"]', "RATES['a']"),
    ],
)
def test_a_change_of_text_is_the_same(tmp_path: Path, old: str, new: str) -> None:
    assert printed(tmp_path, changed(old, new)) == printed(tmp_path, BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("r < 10", "r < 11"),
        ("r < 10", "r <= 10"),
        ("LIMIT = 3", "LIMIT = 4"),  # used by a helper, and as a default
        ("return value * LIMIT", "return value + LIMIT"),
        ('"a": 1.0', '"a": 1.5'),  # used only in a lambda
        ("[2, 3]", "[2, 4]"),
        ('WANTED = {"x", "y"}', 'WANTED = {"x", "z"}'),
        ("inside = 5", "inside = 6"),  # a variable of the function around it
        ("size=LIMIT", "size=4"),
        ("HANDLERS = [helper]", "HANDLERS = [helper, mean]"),
    ],
)
def test_a_change_of_what_it_does_is_another(tmp_path: Path, old: str, new: str) -> None:
    assert printed(tmp_path, changed(old, new)) != printed(tmp_path, BASE)


def test_a_function_of_a_list_counts_by_what_it_does(tmp_path: Path) -> None:
    listed = "def one(x):\n    return x + 1\n\nSTEPS = [one]\n\ndef view(records):\n    return STEPS\n"
    assert printed(tmp_path, listed) != printed(tmp_path, listed.replace("x + 1", "x + 2"))


def test_a_default_counts_by_its_value(tmp_path: Path) -> None:
    given = "SIZE = 3\n\ndef view(records, size=SIZE):\n    return size\n"
    assert printed(tmp_path, given) != printed(tmp_path, given.replace("SIZE = 3", "SIZE = 4"))


def test_functions_that_call_each_other_come_to_an_end(tmp_path: Path) -> None:
    mutual = "def a(n):\n    return b(n)\n\ndef b(n):\n    return a(n)\n\ndef view(records):\n    return a(records)\n"
    assert printed(tmp_path, mutual) != printed(tmp_path, mutual.replace("return a(n)", "return a(n - 1)"))


STREAMED = """\
from datetime import datetime
import leftfold as lf

class Click(lf.Event):
    user_id: str
    at: datetime

clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)

@lf.stream(clicks, event=Click)
def cleaned(records):
    return records.where("user_id != 'bot'")

def view(records):
    return cleaned(records)
"""


def test_a_stream_that_is_called_counts_by_what_it_does(tmp_path: Path) -> None:
    assert printed(tmp_path, STREAMED) != printed(tmp_path, STREAMED.replace("bot", "robot"))


def test_it_does_not_depend_on_the_process(tmp_path: Path) -> None:
    """Nor on PYTHONHASHSEED or on addresses: a set, and functions in a list, are among what it uses."""
    (tmp_path / "made.py").write_text(BASE)
    script = (
        "import made\nfrom leftfold.errors import SourceLine\nfrom leftfold.declare.code import code_fingerprint\n"
        "print(code_fingerprint(made.view, SourceLine('x', 1)))"
    )
    prints = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={"PYTHONHASHSEED": seed},
            cwd=tmp_path,
        )
        prints.add(done.stdout)
    assert len(prints) == 1


@pytest.mark.parametrize("function", [len, eval("lambda records: records"), int])
def test_without_its_source_it_is_refused(function: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        code_fingerprint(function, HERE)
    assert caught.value.code == "no-source"
