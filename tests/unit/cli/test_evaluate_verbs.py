"""The tables of `evaluate` and `drift`, what they refuse before anything is opened, and their exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

import leftfold
from leftfold.cli.main import cli
from leftfold.fold.profiles import Cells, ColumnProfile, drift_of
from leftfold.fold.scores import counted
from leftfold.quality.drift import Drift, GroupDrift
from leftfold.quality.evaluation import Evaluation, Judged

EDGES = (0.1, 0.2, 0.3)
GOOD = [(0.05, False)] * 300 + [(0.2, True)] * 20 + [(0.2, False)] * 60 + [(0.9, True)] * 80
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE = datetime(2026, 3, 1, 13, tzinfo=UTC)


def evaluation(by: tuple[str, ...], *groups: Judged) -> Evaluation:
    return Evaluation("ranker", "bought", "score", "bought", by, groups)


def invoked(method: str, result: Any, *arguments: str) -> Any:
    app = mock.Mock(spec=leftfold.App)
    getattr(app, method).return_value = result
    with mock.patch("leftfold.open", return_value=app):
        return CliRunner().invoke(cli, [method, *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "ranker"],
        ["evaluate", "--outcome", "bought"],
        ["evaluate", "ranker", "--outcome", "bought", "--from", "monday"],
        ["drift"],
        ["drift", "ranker", "--against", "d", "--fail-above", "-1"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, arguments).exit_code == 2


def test_an_evaluation_for_people() -> None:
    few = Judged({"version": "8"}, counted(GOOD[-10:], EDGES), open=40)
    good = Judged({"version": "7"}, counted(GOOD, EDGES), open=1_200, fallback=3)
    shown = invoked("evaluate", evaluation(("version",), good, few), "ranker", "--outcome", "bought", "--by", "version")
    assert shown.exit_code == 0
    lines = shown.stderr.splitlines()
    assert lines[0] == "score of ranker against bought of bought"
    assert lines[1].split() == ["version", "closed", "positive", "AUC", "log", "loss", "Brier", "calibration"]
    assert lines[2].split() == ["7", "460", "21.74%", "0.9833", "±", "0.0091", "0.1509", "0.0364", "0.0587"]
    assert lines[3].split() == ["8", "10", "100.00%", "–", "–", "–", "–"]
    assert lines[4:] == [
        "  7: left out are 1,200 open, 3 fallbacks",
        "  8: 0 negatives: fewer than 50 say too little",
        "  8: left out are 40 open",
    ]
    assert max(len(line) for line in lines) <= 80


def test_hours_are_shown_with_their_sum() -> None:
    hours = [Judged({"version": "7", "hour": hour}, counted(GOOD, EDGES), open=1) for hour in (NOON, ONE)]
    found = evaluation(("version", "hour"), *hours)
    shown = invoked("evaluate", found, "ranker", "--outcome", "bought", "--by", "version, hour", "--json")
    document = json.loads(shown.stdout)
    assert [group["by"]["hour"] for group in document["groups"]] == [NOON.isoformat(), ONE.isoformat()]
    (total,) = document["over_hours"]
    assert (total["by"], total["rows"], total["open"]) == ({"version": "7"}, 2 * len(GOOD), 2)
    assert total["auc"] == document["groups"][0]["auc"]
    people = invoked("evaluate", found, "ranker", "--outcome", "bought", "--by", "version,hour").stderr
    assert "2026-03-01 12:00" in people
    assert people.count("AUC") == 2


def drift(now: tuple[int, ...], missing: int) -> Drift:
    before = ColumnProfile(Cells("number", (1.0, 2.0), 0.0, 9.0), (400, 300, 300), 0)
    texts = ColumnProfile(Cells("text", texts=("a", "b")), (500, 400, 100), 0, new=100)
    cart = drift_of("cart", before, ColumnProfile(before.cells, now, missing))
    page = drift_of("page", texts, ColumnProfile(texts.cells, (250, 200, 50), 0, new=50))
    return Drift("ranker", "sets/march", (GroupDrift({"version": "7"}, (cart, page)),), {"since": "has no profile"})


def test_a_drift_for_people() -> None:
    shown = invoked("drift", drift((100, 100, 250), 50), "ranker", "--against", "sets/march")
    assert shown.exit_code == 0
    lines = shown.stderr.splitlines()
    assert lines[:2] == ["ranker against sets/march", "version 7: 500 predictions"]
    assert lines[2].split() == ["column", "PSI", "noise", "KS", "noise", "missing", "new"]
    assert lines[3].split()[:3] == ["✗", "cart", "0.8085"]
    assert lines[3].split()[-6:] == ["0.0%", "→", "10.0%", "0.0%", "→", "0.0%"]
    assert lines[4].split() == ["page", "0.0000", "0.0060", "–", "–", "0.0%", "→", "0.0%", "10.0%", "→", "10.0%"]
    assert lines[5:] == [
        "  since is not compared: has no profile",
        "✗ 1 of the columns have moved by more than chance explains",
    ]


@pytest.mark.parametrize(
    ("found", "limit", "code"),
    [
        (drift((100, 100, 250), 50), "0.2", 4),
        (drift((100, 100, 250), 50), "0.9", 0),
        (drift((200, 150, 150), 0), "0", 0),
        (drift((0, 0, 1), 0), "0.2", 0),  # one row: chance alone makes as much
        (drift((0, 0, 0), 0), "99", 4),  # nothing was compared, which is no pass
        (Drift("ranker", "sets/march", (), {}), "99", 4),
    ],
)
def test_drift_ends_with_4_above_a_limit(found: Drift, limit: str, code: int) -> None:
    if all(column.now == 0 for group in found.groups for column in group.columns[:1]):
        found = Drift("ranker", "sets/march", (), {})
    shown = invoked("drift", found, "ranker", "--against", "sets/march", "--fail-above", limit, "--json")
    assert shown.exit_code == code
    assert json.loads(shown.stdout)["failed"] is (code == 4)


def test_without_a_limit_drift_does_not_fail() -> None:
    assert invoked("drift", drift((0, 0, 900), 0), "ranker", "--against", "d").exit_code == 0
    empty = invoked("drift", Drift("ranker", "d", (), {}), "ranker", "--against", "d")
    assert "nothing could be compared" in empty.stderr
