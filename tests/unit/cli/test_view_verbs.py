from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from leftfold.cli.main import cli
from leftfold.cli.view_verbs import _key
from leftfold.errors import LeftfoldError
from leftfold.fold.definition import Key
from tests.unit.fold.test_definition import ONE

TEXT = replace(ONE, keys=(Key("user_id", "string"),))
WHOLE = replace(ONE, keys=(Key("shop", "int"),))
PAIR = replace(ONE, keys=(Key("user_id", "string"), Key("shop", "int")))


@pytest.mark.parametrize(
    ("definition", "given", "expected"),
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
    ],
)
def test_keys(definition: Any, given: list[str], expected: dict[str, Any]) -> None:
    assert _key(definition, tuple(given)) == expected


@pytest.mark.parametrize("text", ["x", "", "7.0", "--7", "²", "7-", "1_000", "٧"])
def test_what_is_no_whole_number_is_left_for_the_message(text: str) -> None:
    """The reader says which key it needs; a ValueError would say nothing."""
    assert _key(WHOLE, (text,)) in ({"shop": text}, {"shop": 7 if text == "٧" else text})


@pytest.mark.parametrize("given", [["u1", "7"], ["user_id=u1", "shp=7"], ["user_id=u1", "7"]])
def test_a_part_that_has_no_name_is_not_dropped_in_silence(given: list[str]) -> None:
    """Either it is an error that shows what was given, or it is in the key that the reader will refuse."""
    try:
        shown = repr(_key(PAIR, tuple(given)))
    except LeftfoldError as error:
        shown = str(error)
    assert "7" in shown


def test_get_needs_a_key() -> None:
    result = CliRunner().invoke(cli, ["get", "user_activity"])
    assert result.exit_code == 2
    assert "KEY" in result.output
