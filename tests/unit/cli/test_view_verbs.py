from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from leftfold.app import App
from leftfold.cli.main import cli
from leftfold.cli.view_verbs import _doing, parsed_key
from leftfold.declare.rows import Provenance, Read
from leftfold.errors import RunError
from leftfold.run.progress import Failing, Progress
from tests.unit.conftest import MakeProject

TEXT = {"user_id": "string"}
WHOLE = {"shop": "int"}
PAIR = {"user_id": "string", "shop": "int"}
VECTOR = {**PAIR, "cart_value": "float", "member": "bool"}


@pytest.mark.parametrize(
    ("kinds", "given", "expected"),
    [
        (TEXT, ["u1"], {"user_id": "u1"}),
        (TEXT, ["user_id=u1"], {"user_id": "u1"}),
        (TEXT, ["a=b"], {"user_id": "a=b"}),  # a value may hold an equals sign
        (TEXT, ["user_id=a=b"], {"user_id": "a=b"}),
        (TEXT, [""], {"user_id": ""}),
        (TEXT, ["7"], {"user_id": "7"}),
        (WHOLE, ["7"], {"shop": 7}),
        (WHOLE, ["-7"], {"shop": -7}),
        (WHOLE, ["shop=7"], {"shop": 7}),
        (PAIR, ["user_id=u1", "shop=7"], {"user_id": "u1", "shop": 7}),
        (PAIR, ["shop=7", "user_id=u1"], {"user_id": "u1", "shop": 7}),
        (PAIR, ["u1", "7"], {"user_id": "u1", "shop": 7}),  # without names, in the order of the key
        (PAIR, ["shop=7", "u1"], {"user_id": "u1", "shop": 7}),
        (VECTOR, ["u1", "7", "31.5", "true"], {"user_id": "u1", "shop": 7, "cart_value": 31.5, "member": True}),
        (VECTOR, ["cart_value=-3", "u1", "7"], {"cart_value": -3.0, "user_id": "u1", "shop": 7}),
        (VECTOR, ["cart_value=dear", "member=maybe"], {"cart_value": "dear", "member": "maybe"}),
    ],
)
def test_keys(kinds: dict[str, str], given: list[str], expected: dict[str, Any]) -> None:
    assert parsed_key(kinds, tuple(given)) == expected


@pytest.mark.parametrize("text", ["x", "", "7.0", "--7", "²", "7-", "1_000", "٧"])
def test_what_is_no_whole_number_is_left_for_the_message(text: str) -> None:
    """The reader says which key it needs; a ValueError would say nothing."""
    assert parsed_key(WHOLE, (text,)) in ({"shop": text}, {"shop": 7 if text == "٧" else text})


@pytest.mark.parametrize("given", [["user_id=u1", "shp=x"], ["u1", "7", "x"], ["shop=7", "u1", "x"]])
def test_a_part_too_many_is_not_dropped_in_silence(given: list[str]) -> None:
    """It is in the key that the reader will refuse, and so in the message."""
    assert "x" in repr(parsed_key(PAIR, tuple(given)))


def test_get_needs_a_key() -> None:
    result = CliRunner().invoke(cli, ["get", "user_activity"])
    assert result.exit_code == 2
    assert "KEY" in result.output


# get, on a store that knows one row -----------------------------------------------------------------------------------

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture
def stored(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_project())
    values = {"clicks_1h": 3, "spend_24h": None, "last_at": NOON, "recent": ["i2", "i1"]}
    read = Read(
        values, NOON, (Provenance("user_activity", "abc-1", 7, found=True), Provenance("item", "d-2", 4, False))
    )
    reader = SimpleNamespace(keys=lambda view: PAIR, read=lambda target, asked, at: [read])
    monkeypatch.setattr(App, "reader", reader)


@pytest.mark.usefixtures("stored")
def test_get_shows_values_and_where_they_came_from() -> None:
    result = CliRunner().invoke(cli, ["get", "user_activity", "u1", "shop=7"])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "  clicks_1h  3",
        "  spend_24h  –",
        "  last_at    2026-01-05 12:00:00+00:00",
        "  recent     ['i2', 'i1']",
    ]
    assert "user_activity: build abc-1, batch 7\n" in result.stderr
    assert "item: build d-2, batch 4   (it holds nothing of this key)" in result.stderr


@pytest.mark.usefixtures("stored")
def test_get_json() -> None:
    read = json.loads(CliRunner().invoke(cli, ["get", "user_activity", "u1", "7", "--json"]).stdout)
    assert (read["view"], read["key"], read["found"]) == ("user_activity", ["u1", "7"], False)
    assert read["features"]["last_at"] == "2026-01-05T12:00:00+00:00"
    assert read["provenance"][0] == {"view": "user_activity", "build": "abc-1", "batch": 7, "found": True}


@pytest.mark.parametrize(
    ("state", "failing", "said"),
    [
        ("failed", None, "failed for good: error[log-overtaken]: "),
        (
            "waiting",
            Failing(2, 0.0, 0.0),
            "failed 2 times since 00:00:00 UTC, tries again in 0 s: error[log-overtaken]: ",
        ),
    ],
)
def test_the_line_of_a_view_in_trouble_has_the_code_to_look_up(state: str, failing: Failing | None, said: str) -> None:
    error = RunError("log-overtaken", "activity has not read offsets", why="they are gone", fix="leftfold run")
    assert _doing(Progress("activity", state=state, failing=failing, error=error)).startswith(said)
