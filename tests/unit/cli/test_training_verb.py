"""What `training-set` refuses before anything is opened."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from leftfold.cli.main import cli


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
