"""A position of a topic as a value."""

from __future__ import annotations

import json

from leftfold.training.position import FrozenPosition


def test_a_position_survives_json() -> None:
    position = FrozenPosition("ns.clicks", "id", {0: 5, 1: 0}, {0: 9, 1: 0}, 3, (1, 4), (7,))
    document = json.loads(json.dumps(position.as_json()))
    assert FrozenPosition.from_json(document) == position
    assert document["ranges"] == {"ns.clicks": {"0": [[5, 9]]}}
