"""Execution of pages of docs/ exactly as they are written, in a shell on the shared cluster.

The commands of `console` blocks are run, and their output is compared. `diff` blocks change a file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leftfold.local.endpoints import Endpoints
from tests.engine import projects
from tests.engine.pages import Block, Done, Following, Shell

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


def follow(page: Path, shell: Shell, *, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Execute every block of the page, in order, and print how long each command took."""

    def see(_block: Block, done: Done) -> None:
        with capsys.disabled():
            print(f"    {done.seconds:6.1f} s  {done.command}")

    def clean(output: str) -> str:
        return output.replace(f"{namespace}.", "")  # the pages show names without a namespace

    Following(page, shell, clean=clean, see=see).follow()
