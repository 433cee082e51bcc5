"""The list of verbs: each is there under its name, and the list itself loads none of them. The help of all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from leftfold.cli.main import GROUPS, VERBS, cli, main
from tests.unit.cli.commands import ALL

LINE = 50  # characters of a command's line in a list


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_is_there(name: str) -> None:
    verb = cli.get_command(click.Context(cli), name)
    assert verb is not None
    assert verb.name == name


def test_no_verb_is_in_two_groups() -> None:
    assert len(VERBS) == sum(map(len, GROUPS.values()))


@pytest.mark.parametrize("name", VERBS)
def test_the_line_of_a_verb_is_the_first_sentence_of_its_help(name: str) -> None:
    _, what = VERBS[name]
    assert ALL[f"leftfold {name}"].get_short_help_str(LINE) == what


@pytest.mark.parametrize("name", [name for name in ALL if name != "leftfold"])
def test_nothing_is_cut(name: str) -> None:
    line = ALL[name].get_short_help_str(LINE)
    assert line.endswith(".")
    assert not line.endswith("...")


@pytest.mark.parametrize("name", ALL)
def test_the_help_fits_80_columns(name: str) -> None:
    arguments = [*name.split()[1:], "--help"]
    told = CliRunner().invoke(cli, arguments, env={"COLUMNS": "80"}, prog_name="leftfold").stdout.splitlines()
    assert [line for line in told if len(line) > 80] == []
    below = ALL[name]
    if isinstance(below, click.Group):
        for each in below.list_commands(click.Context(below)):
            (line,) = [line for line in told if line.split()[:1] == [each]]
            assert line.split(maxsplit=1)[1] == ALL[f"{name} {each}"].get_short_help_str(LINE)


def test_a_verb_that_is_not_there() -> None:
    ended = CliRunner().invoke(cli, ["promot"])
    assert ended.exit_code == 2
    assert "No such command 'promot'. Did you mean 'promote'?" in ended.stderr


def test_the_help_loads_no_verb_and_builds_no_model() -> None:
    code = "import sys\nfrom leftfold.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
    code += "print(*sorted(m for m in sys.modules if m.startswith(('pydantic', 'leftfold.'))), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert [line for line in ran.stdout.splitlines() if line.endswith(":")] == ["Options:", *(f"{g}:" for g in GROUPS)]
    own = {"cli", "cli.main", "cli.output", "clock", "errors", "private"}
    assert set(ran.stderr.split()) == {f"leftfold.{name}" for name in own}


# The directory to start in --------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a directory that has the name of a verb; the test stands above it."""
    below = tmp_path / "plan"
    below.mkdir()
    (below / "leftfold.toml").write_text('[project]\nname = "shop"\ndeclarations = ["streams.py"]\n')
    (below / "streams.py").write_text("import leftfold as lf\n\nclass Click(lf.Event):\n    user: str\n")
    monkeypatch.chdir(tmp_path)
    return below


@pytest.mark.parametrize("option", ["-C", "--project-dir"])
def test_a_project_elsewhere(project: Path, option: str) -> None:
    ended = CliRunner().invoke(cli, [option, "plan", "check"], catch_exceptions=False)
    assert ended.exit_code == 0
    assert "shop: 0 topics" in ended.stderr


@pytest.mark.parametrize("option", [["-C", "none"], ["--project-dir=plan/leftfold.toml"]])
def test_a_directory_that_is_none(project: Path, option: list[str]) -> None:
    assert CliRunner().invoke(cli, [*option, "check"]).exit_code == 2


def test_an_error_there_names_the_verb_and_is_traced_there(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["leftfold", "-C", "plan", "check", "--profile", "other", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verb"], told["error"]["code"]) == ("check", "unknown-profile")
    assert "unknown-profile" in (project / ".leftfold" / "logs" / "errors.log").read_text()


# Completion -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("leftfold pro", {"promote"}),
        ("leftfold re", {"read", "rebuild", "rejects", "render", "replay", "reset", "resume"}),
    ],
)
def test_verbs_complete_without_loading_one(words: str, expected: set[str]) -> None:
    code = "import sys\nfrom leftfold.cli.main import cli\n"
    code += "try:\n    cli(prog_name='leftfold')\nexcept SystemExit:\n    pass\n"
    code += "print(*(m for m in sys.modules if m.endswith('_verbs')), file=sys.stderr)"
    environment = {"_LEFTFOLD_COMPLETE": "zsh_complete", "COMP_WORDS": words, "COMP_CWORD": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert set(ran.stdout.splitlines()[1::3]) == expected
    assert ran.stderr.strip() == ""


# Wrong usage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "verb", "what"),
    [
        (["promot", "--json"], "leftfold", "No such command 'promot'. Did you mean 'promote'?"),
        (["rejects", "show", "clicks", "--json"], "rejects", "Missing argument 'POSITION'."),
        (["run", "--json", "--fres", "v"], "run", "No such option '--fres'."),
        (["wait", "v", "--for", "ever", "--json"], "wait", "Invalid value for '--for': 'ever' is neither caught-up"),
        (["apply", "--json"], "apply", "--json asks no questions: add --yes"),
        (["-C", "none", "check", "--json"], "check", "Invalid value for '-C' / '--project-dir': Directory 'none'"),
    ],
)
def test_wrong_usage_as_json(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    verb: str,
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["leftfold", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["version"], document["verb"], document["error"]["code"]) == (1, verb, "usage")
    assert document["error"]["what"].startswith(what)
    assert document["error"]["fix"].startswith("run leftfold")
    assert told.err == ""


def test_wrong_usage_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["leftfold", "rejects", "show", "clicks"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("Usage: ")
    assert told.err.rstrip().endswith("Error: Missing argument 'POSITION'.")
