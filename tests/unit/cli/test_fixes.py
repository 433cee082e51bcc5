"""Fixes for the profile at hand: their commands name it, and never skip a question."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from leftfold.cli.explained import DATA
from leftfold.cli.fixes import GROUPS, WITHOUT_PROFILE, fix_for
from leftfold.cli.main import VERBS, cli, main
from leftfold.errors import start_or_check

TOML = """
[project]
name = "shop"
declarations = []

[profile.prod]
kafka = { bootstrap = "127.0.0.1:1" }
registry = { url = "http://127.0.0.1:1" }
online = { url = "redis://127.0.0.1:1/0" }

[profile.staging]
namespace = "staging"
"""


@pytest.mark.parametrize(
    ("fix", "expected"),
    [
        ("leftfold apply", "leftfold apply --profile prod"),
        ("leftfold apply creates the topic", "leftfold apply --profile prod creates the topic"),
        (
            "run it again: leftfold run --views a; or wait",
            "run it again: leftfold run --profile prod --views a; or wait",
        ),
        ("leftfold rejects list clicks", "leftfold rejects list --profile prod clicks"),
        ("leftfold plan --profile other", "leftfold plan --profile other"),
        ("leftfold logs registry (local), or ask", "leftfold logs registry (local), or ask"),
        (
            start_or_check("online.url of the profile"),
            "leftfold status --profile prod shows what runs; check online.url in [profile.prod]",
        ),
        ("correct registry.password of the profile", "correct registry.password in [profile.prod]"),
        ("leftfold up", "leftfold up"),
        ("pip install 'leftfold[spark]'", "pip install 'leftfold[spark]'"),
        ("leftfold is not a verb here", "leftfold is not a verb here"),
    ],
)
def test_commands_name_the_profile(fix: str, expected: str) -> None:
    assert fix_for(fix, "prod", elsewhere=True) == expected


def test_a_profile_on_the_local_cluster_can_be_started() -> None:
    fix = start_or_check("online.url of the profile")
    expected = "leftfold status --profile staging shows what runs; leftfold up starts the local cluster"
    assert fix_for(fix, "staging", elsewhere=False) == expected


def test_the_local_cluster_has_no_part_for_engines_elsewhere() -> None:
    fix = fix_for(start_or_check("online.url of the profile"), "local", elsewhere=False)
    assert fix == "leftfold status shows what runs; leftfold up starts the local cluster"


def test_the_tables_are_of_these_verbs() -> None:
    verbs = {name: cli.get_command(click.Context(cli), name) for name in VERBS}
    assert {name for name, verb in verbs.items() if isinstance(verb, click.Group)} == GROUPS
    taking = {name for name, verb in verbs.items() if verb and any("--profile" in p.opts for p in verb.params)}
    assert set(VERBS) - taking - GROUPS == WITHOUT_PROFILE


def test_no_fix_skips_a_question() -> None:
    fixes = [e["fix"] for error in json.loads(DATA.read_text())["errors"].values() for e in error["examples"]]
    assert len(fixes) > 200
    assert [fix for fix in fixes if re.search(r"--yes\b", fix)] == []


@pytest.mark.parametrize(
    ("arguments", "variable", "named"),
    [
        (["--profile", "prod"], None, True),
        (["--profile=prod"], None, True),
        ([], "prod", True),
        ([], None, False),
        (["--profile", "local"], "prod", False),
    ],
)
def test_an_error_of_a_verb(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    variable: str | None,
    named: bool,
) -> None:
    (tmp_path / "leftfold.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    if variable:
        monkeypatch.setenv("LEFTFOLD_PROFILE", variable)
    monkeypatch.setattr(sys, "argv", ["leftfold", "get", "views", "ada", "--json", *arguments])
    with pytest.raises(SystemExit):
        main()
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == ("store-unreachable" if named else "cluster-down")
    if named:
        assert error["fix"].startswith(
            "leftfold status --profile prod shows what runs; check host and port in online.url"
        )
        assert "in [profile.prod]" in error["fix"]
    else:
        assert error["fix"] == "leftfold up"


def test_outside_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(cli, ["check", "--profile", "prod"])
    assert getattr(ended.exception, "code", None) == "no-project"
