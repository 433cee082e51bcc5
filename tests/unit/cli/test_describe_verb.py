"""The verb describe: a name of the new project, with and without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leftfold.app import App
from leftfold.cli.main import cli
from leftfold.run.status import ViewStatus

Verb = Callable[..., Result]


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.chdir(tmp_path)
    run: Verb = lambda *arguments: CliRunner().invoke(cli, arguments, catch_exceptions=False)  # noqa: E731 # as a fixture
    run("init", "shop")
    monkeypatch.chdir(tmp_path / "shop")
    return run


def test_without_a_cluster(verb: Verb) -> None:
    told = verb("describe", "user_activity")
    assert told.exit_code == 0
    assert told.stdout.startswith("features user_activity   (streams.py:")
    for part in ("What a person did lately.", "used by", "vectors ranker_input", "features:", "count(1h)"):
        assert part in told.stdout
    assert "its builds are not known: the local cluster is not running" in told.stderr
    document = json.loads(verb("describe", "user_activity", "--json").stdout)
    assert (document["builds"], document["unreachable"]) == (None, "the local cluster is not running")
    assert document["described"][0]["values"][0] == {"name": "clicks_1h", "type": "int", "meaning": "count(1h)"}


def test_what_has_no_builds_asks_no_cluster(verb: Verb) -> None:
    told = verb("describe", "clicks")
    assert told.exit_code == 0
    assert "topic clicks" in told.stdout
    assert told.stderr == ""


def test_builds(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(self: App, view: str) -> ViewStatus:
        build = "0123456789ab-11111111" if view == "item" else None
        return ViewStatus(view, build, 4, {}, 2, staged="ab-2" if build else None)

    monkeypatch.setattr(App, "view_status", status)
    told = verb("describe", "ranker_input").stdout
    assert "builds of item: 0123456789ab-11111111, batch 4, 2 behind; staged ab-2" in told
    assert "builds of user_activity: none yet" in told
    assert len(json.loads(verb("describe", "ranker_input", "--json").stdout)["builds"]) == 2
