from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import click
import pytest
from click.testing import CliRunner

from leftfold.cli.given import Moment, Pair, names_option
from leftfold.cli.main import cli


@pytest.mark.parametrize("written", ["2026-03-01T12:00:00", "2026-03-01T12:00:00Z", "2026-03-01 13:00:00+01:00"])
def test_a_moment_is_in_utc_unless_it_says_so(written: str) -> None:
    assert Moment().convert(written, None, None) == datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_moment_keeps_its_zone() -> None:
    found = Moment().convert("2026-03-01T12:00:00+05:30", None, None)
    assert found.utcoffset() == timezone(timedelta(hours=5, minutes=30)).utcoffset(None)


def test_what_is_not_a_moment_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="'noon' is not a time like 2026-03-01T12:00:00Z"):
        Moment().convert("noon", None, None)


def test_a_pair() -> None:
    assert Pair("NAME=COLUMN").convert("user_id=uid", None, None) == ("user_id", "uid")
    assert Pair("NAME=COLUMN").convert("a=b=c", None, None) == ("a", "b=c")


@pytest.mark.parametrize("written", ["user_id", "=uid", "user_id=", ""])
def test_half_a_pair_is_refused(written: str) -> None:
    with pytest.raises(click.BadParameter, match=f"'{written}' is not NAME=COLUMN"):
        Pair("NAME=COLUMN").convert(written, None, None)


@pytest.mark.parametrize(("given", "expected"), [([], ()), (["--views", "a, b"], ("a", "b")), (["--views", ""], ())])
def test_names(given: list[str], expected: tuple[str, ...]) -> None:
    found: list[tuple[str, ...]] = []

    @click.command()
    @names_option("--views", "Views to run.")
    def verb(views: tuple[str, ...]) -> None:
        found.append(views)

    assert CliRunner().invoke(verb, given).exit_code == 0
    assert found == [expected]


@pytest.mark.parametrize(
    ("verb", "option"), [("consume", "--consumers"), ("run", "--views"), ("serve", "--scorers")], ids=lambda text: text
)
def test_a_name_without_its_option(verb: str, option: str) -> None:
    refused = CliRunner().invoke(cli, [verb, "ranker", "notify"])
    assert refused.exit_code == 2
    assert f"Error: Names are given by an option: {option} ranker,notify" in refused.stderr
    assert f"Usage: cli {verb} [OPTIONS]\n" in refused.stderr
