"""What `outcomes` refuses before anything is opened, and how counts are shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from leftfold.cli.main import cli
from leftfold.cli.outcome_verbs import _show
from leftfold.offsets import Range, Ranges
from leftfold.spark.quality.outcomes import OutcomeCounts

COUNTS = OutcomeCounts(1_200, 1_000, 190, 10, 300, 310, 4, 0)


@pytest.mark.parametrize(
    "arguments", [[], ["a", "b"], ["a", "--append", "--out", "d"], ["a", "--append", "--to", "2026-01-05"]]
)
def test_usage(arguments: list[str]) -> None:
    done = CliRunner().invoke(cli, ["outcomes", *arguments])
    assert done.exit_code == 2, done.output


def made() -> Any:
    return SimpleNamespace(
        report=lambda: COUNTS,
        closed_until=datetime(2026, 1, 5, tzinfo=UTC),
        ranges={"scores": Ranges((Range("scores", 0, 3, 7),))},
    )


def test_counts_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    _show("ranker_outcome", made(), "rows", 1_000, as_json=False)
    told = capsys.readouterr().err
    assert "1,200 predictions: 1,000 closed, 190 open" in told
    assert "310 events are credited" in told
    assert "10 predictions are older" in told
    assert "repeat" not in told
    assert "1,000 closed rows are in rows" in told


def test_counts_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    _show("ranker_outcome", made(), None, None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["counts"]["events_without_prediction"] == 4
    assert told["closed_until"] == "2026-01-05 00:00:00+00:00"
    assert told["ranges"] == {"scores": {"scores": {"0": [[3, 7]]}}} or told["ranges"]["scores"]
