"""What `training-set` refuses before anything is opened, and how a report is shown."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from leftfold.cli.main import cli
from leftfold.cli.training_verb import show
from leftfold.training.report import Report


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["labels.csv", "ranker_input"],
        ["labels.csv", "ranker_input", "--time", "ts"],
        ["labels.csv", "ranker_input", "--time", "ts", "--out", "d", "--column", "user_id"],
        ["labels.csv", "ranker_input", "--time", "ts", "--out", "d", "--as-of", "now"],
        ["labels.csv", "ranker_input", "--time", "ts", "--verify", "d"],
        ["--verify", "d", "--out", "e"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    done = CliRunner().invoke(cli, ["training-set", *arguments])
    assert done.exit_code == 2, done.output


def test_a_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(Report("log", 1_200, 0, 7, 0, {"clicks_1h": 3}, {("event", "log"): {"clicks_1h": 45}}))
    told = capsys.readouterr().err
    assert "1,200 labels, as of log" in told
    assert "7 reach back beyond what the log still has" in told
    assert "moment" not in told
    assert [line.split() for line in told.splitlines()[-2:]] == [
        ["feature", "missing", "event", "≠", "log"],
        ["clicks_1h", "3", "45"],
    ]
