"""Execution of pages of docs/ exactly as they are written, in a shell on the shared cluster.

The commands of `console` blocks are run, and their output is compared. `diff` blocks change a file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leftfold.local.endpoints import Endpoints
from tests.engine import projects
from tests.engine.test_tutorial import Block, Shell, blocks, matches

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def shop(root: Path, endpoints: Endpoints, namespace: str) -> Iterator[Shell]:
    """A shell in the shop of the tutorial, with a profile that names the given cluster."""
    shell = Shell(root)
    try:
        assert shell.run("leftfold init shop && cd shop").code == 0
        projects.name_engines(shell.directory, endpoints, namespace)
        yield shell
    finally:
        shell.close()


@contextmanager
def example(name: str, root: Path, endpoints: Endpoints, namespace: str) -> Iterator[Shell]:
    """A shell in a copy of a project of examples/."""
    shell = Shell(copied(name, root, endpoints, namespace))
    try:
        yield shell
    finally:
        shell.close()


def copied(name: str, root: Path, endpoints: Endpoints, namespace: str) -> Path:
    """Copy a project of examples/, with a profile that names the given cluster, and return its directory."""
    directory = root / name
    shutil.copytree(EXAMPLES / name, directory)
    projects.name_engines(directory, endpoints, namespace)
    return directory


def check_read(page: Path) -> None:
    """Check that every block of a page is found. A block that the pattern misses would never be run."""
    assert len(blocks(page)) == len(re.findall(r"^```\w+$", page.read_text(encoding="utf-8"), re.MULTILINE))


def patched(text: str, diff: str) -> str:
    """Return the text with a diff applied. The old lines must occur in it exactly once, as one block."""
    lines = diff.splitlines()
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in signs) for signs in (" -", " +"))
    assert text.count(old) == 1, f"not there, or more than once:\n{old}"
    return text.replace(old, new)


def follow(page: Path, shell: Shell, *, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Execute every block of the page, in order."""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language == "diff":
            file = shell.directory / block.note.removeprefix("file: ")
            file.write_text(patched(file.read_text(encoding="utf-8"), block.body), encoding="utf-8")
        else:
            assert block.language == "console", f"{where}: a block that nobody executes"
            _run(block, where, shell, namespace, capsys)


def _run(block: Block, where: str, shell: Shell, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = int(block.note.removeprefix("exit: ")) if block.note else 0
    for command, shown in block.commands():
        done = shell.run(command)
        with capsys.disabled():
            print(f"    {done.seconds:6.1f} s  {command}")
        output = done.output.replace(f"{namespace}.", "")  # the pages show names without a namespace
        assert done.code == expected, f"{where}: $ {command}\nexit code {done.code}\n{output}"
        assert matches(shown, output), f"{where}: $ {command}\nshown:\n{shown}\nprinted:\n{output}"
