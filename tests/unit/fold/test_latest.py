from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from leftfold.fold.definition import Key, Origin
from leftfold.fold.expressions import FieldRef, from_micros
from leftfold.fold.latest import Latest, TakenColumn

PRICE = FieldRef("price", "float")
ITEM = Latest(
    view="item",
    origins=(Origin("items", 600_000_000, "broker"),),
    keys=(Key("item_id", "string"),),
    columns=(
        TakenColumn("category", "category", "string", default="none"),
        TakenColumn("cost", "price", "float"),
        TakenColumn("since", "since", "datetime", default=7),
        TakenColumn("prices", "prices", "float", repeated=True),
        TakenColumn("changes", "changes", "datetime", repeated=True),
        TakenColumn("pieces", "pieces", "int"),
    ),
    rules=(PRICE >= 0.0,),
)


def test_a_row() -> None:
    """Whole numbers in JSON are floats again where the column is one, and moments are moments."""
    assert ITEM.row(["toys", 3, 1, [1, 2.5], [0], 4]) == {
        **{"category": "toys", "cost": 3.0, "since": from_micros(1), "prices": [1.0, 2.5]},
        **{"changes": [from_micros(0)], "pieces": 4},
    }


def test_a_row_that_is_not_there_and_one_of_nulls_show_the_defaults() -> None:
    nothing = {
        **{"category": "none", "cost": None, "since": from_micros(7), "prices": None, "changes": None, "pieces": None},
    }
    assert ITEM.row(None) == ITEM.row([None] * 6) == nothing


def test_json_round_trip() -> None:
    back = Latest.from_json(json.loads(json.dumps(ITEM.as_json())))
    assert back == ITEM
    assert hash(back) == hash(ITEM)
    assert back.visible == ("category", "cost", "since", "prices", "changes", "pieces")


def test_what_it_reads() -> None:
    assert ITEM.fields() == {"item_id", "category", "price", "since", "prices", "changes", "pieces"}


CHANGED: dict[str, dict[str, Any]] = {
    "view": {"view": "other"},
    "topic": {"origins": (Origin("others", 600_000_000, "broker"),)},
    "key": {"keys": (Key("item_id", "int"),)},
    "column's name": {"columns": (replace(ITEM.columns[0], name="kind"), *ITEM.columns[1:])},
    "column's field": {"columns": (replace(ITEM.columns[0], field="kind"), *ITEM.columns[1:])},
    "default": {"columns": (replace(ITEM.columns[0], default="?"), *ITEM.columns[1:])},
    "rules": {"rules": ()},
    "code": {"code": "0123456789ab"},
    "ttl": {"ttl": 1},
}


@pytest.mark.parametrize("change", sorted(CHANGED))
def test_every_change_of_meaning_is_another_build(change: str) -> None:
    assert replace(ITEM, **CHANGED[change]).fingerprint != ITEM.fingerprint
