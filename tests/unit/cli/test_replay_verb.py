"""What may be asked of replay together; nothing is connected to."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from leftfold.cli.main import cli

MORNING, NOON = "2026-01-05T06:00:00Z", "2026-01-05T12:00:00Z"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "give one of --out DIR, --verify DIR and --into TOPIC"),
        (["--out", "d", "--into", "t"], "give one of"),
        (["--verify", "d", "--from", NOON], "leave out --from and --to"),
        (["--out", "d", "--follow"], "--follow goes with --into"),
        (["--into", "t", "--follow", "--to", NOON], "has no --to"),
        (["--out", "d", "--from", NOON, "--to", MORNING], "--from must be before --to"),
        (["--out", "d", "--from", "noon"], "is not a time like"),
    ],
)
def test_options_that_do_not_go_together(options: list[str], says: str) -> None:
    done = CliRunner().invoke(cli, ["replay", "clicks", *options])
    assert done.exit_code == 2
    assert says in done.output
