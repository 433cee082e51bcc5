"""What `score` refuses before anything is opened."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from leftfold.cli.main import cli


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["ranker", "labels.csv", "--time", "ts"],
        ["ranker", "labels.csv", "--out", "d"],
        ["ranker", "labels.csv", "--time", "ts", "--out", "d", "--as-of", "now"],
        ["ranker", "labels.csv", "--time", "ts", "--out", "d", "--batch", "activity"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    done = CliRunner().invoke(cli, ["score", *arguments])
    assert done.exit_code == 2, done.output
