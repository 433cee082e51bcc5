"""The verb wait: its goal, and what it prints. How it waits is tested in tests/unit/run/test_waiting.py."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

import leftfold
from leftfold.cli.main import cli
from leftfold.run.status import ViewStatus

STATUS = ViewStatus("views", "0123456789ab-11111111", 3, {"accepted": 8, "late": 1}, 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    class Stub:
        def wait(self, view: str, **options: Any) -> ViewStatus:
            calls.append((view, options))
            return STATUS

    monkeypatch.setattr(leftfold, "open", lambda profile=None: Stub())
    return calls


def wait(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["wait", *arguments], catch_exceptions=False)


def test_it_says_what_readers_follow(asked: list[Any]) -> None:
    ended = wait("views")
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "✓ views: 9 records applied, build 0123456789ab-11111111, batch 3" in ended.stderr
    assert "next: leftfold get views KEY" in ended.stderr
    assert asked == [("views", {"records": None, "timeout": timedelta(seconds=60)})]


def test_a_number_of_records_and_a_timeout(asked: list[Any]) -> None:
    document = json.loads(wait("views", "--for", "1000", "--timeout", "5m", "--json").stdout)
    assert asked == [("views", {"records": 1_000, "timeout": timedelta(minutes=5)})]
    assert (document["verb"], document["lag"], document["records"]) == ("wait", 0, {"accepted": 8, "late": 1})


@pytest.mark.parametrize("goal", ["0", "-1", "soon", "1.5"])
def test_a_goal_that_is_none(asked: list[Any], goal: str) -> None:
    ended = wait("views", "--for", goal)
    assert ended.exit_code == 2
    assert asked == []
