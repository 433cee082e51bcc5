"""The fenced blocks of pages parse: YAML, TOML, JSON, Python, and the shell lines of a workflow."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs.website.tree import markdown_files

ROOT = Path(__file__).parents[2]


def _python(text: str) -> None:
    """`...` stands for anything, and examples of an event loop await at the top."""
    compile(text, "page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _json(text: str) -> None:
    """`…` stands for parts that are left out."""
    json.loads(re.sub(r"^ *…$|, *…(?=[]}])", "", text, flags=re.MULTILINE))


PARSERS: dict[str, Callable[[str], Any]] = {
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
    "json": _json,
    "python": _python,
    "py": _python,
}
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The language and the text of each block, without its indentation."""
    for _, language, body in BLOCK.findall(text):
        yield language, textwrap.dedent(body)


@pytest.mark.parametrize("source", markdown_files(ROOT))
def test_blocks_parse(source: str) -> None:
    for language, body in blocks((ROOT / source).read_text()):
        if language in PARSERS:
            PARSERS[language](body)


def test_the_check_reads_blocks_and_finds_faults() -> None:
    text = "- x\n  ```yaml\n  a: [1\n  ```\n\n```python\nawait x\n```\n"
    (one, wrong), (other, right) = blocks(text)
    assert (one, other) == ("yaml", "python")
    with pytest.raises(yaml.YAMLError):
        PARSERS[one](wrong)
    PARSERS[other](right)
    with pytest.raises(SyntaxError):
        PARSERS[other]("def f(:\n")


def test_the_workflow_is_one_of_jobs_whose_scripts_parse() -> None:
    page = (ROOT / "docs" / "operate" / "ci.md").read_text()
    workflow = next(yaml.safe_load(body) for language, body in blocks(page) if language == "yaml")
    jobs = workflow["jobs"]
    assert {needed for job in jobs.values() for needed in [job.get("needs")] if needed} <= set(jobs)
    for job in jobs.values():
        for step in job["steps"]:
            assert len({"uses", "run"} & set(step)) == 1
            script = re.sub(r"\$\{\{.*?\}\}", "x", step.get("run", ""))
            done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
