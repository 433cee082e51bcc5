"""The list of verbs: each is there under its name, and the list itself loads none of them."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from leftfold.cli.main import VERBS, cli


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_is_there(name: str) -> None:
    verb = cli.get_command(click.Context(cli), name)
    assert verb is not None
    assert verb.name == name
    assert verb.help, "it says more than the list does"


def test_every_line_of_the_help_is_whole_on_a_narrow_terminal() -> None:
    told = CliRunner().invoke(cli, ["--help"], terminal_width=78).stdout.splitlines()
    for name, (_, what) in VERBS.items():
        (line,) = [line for line in told if line.split()[:1] == [name]]
        assert line.split(maxsplit=1)[1] == what


def test_a_verb_that_is_not_there() -> None:
    ended = CliRunner().invoke(cli, ["promot"])
    assert ended.exit_code == 2
    assert "No such command 'promot'. Did you mean 'promote'?" in ended.stderr


def test_the_help_loads_no_verb_and_builds_no_model() -> None:
    code = "import sys\nfrom leftfold.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
    code += "print(*sorted(m for m in sys.modules if m.startswith(('pydantic', 'leftfold.'))), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert "Commands:" in ran.stdout
    own = {"cli", "cli.main", "cli.output", "clock", "errors", "private"}
    assert set(ran.stderr.split()) == {f"leftfold.{name}" for name in own}
