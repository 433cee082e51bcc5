from __future__ import annotations

import json

from leftfold.fold.vector import Input, Part, VectorDefinition

RANKER = VectorDefinition(
    name="ranker",
    parts=(Part("clicks", "user", "clicks_1h"), Part("price", "item", "price", 0.0), Part("spend", "user", "spend")),
    inputs=(Input("cart", "float"),),
    order=("clicks", "cart", "price", "spend"),
)


def test_each_view_is_read_once() -> None:
    assert RANKER.views == ("user", "item")


def test_json_round_trip() -> None:
    assert VectorDefinition.from_json(json.loads(json.dumps(RANKER.as_json()))) == RANKER
