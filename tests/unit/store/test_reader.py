"""Rows as people hold them. The read path itself needs a Redis and is tested in tests/engine."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from leftfold.spec.features import Provenance
from leftfold.store.reader import Row

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def row() -> Row:
    values = {"clicks_1h": 3, "last_item": None}
    return Row(values, found=True, read_at=NOON, provenance=Provenance("user_activity", "b1", 7))


def test_a_row_by_name() -> None:
    assert (row().clicks_1h, row().last_item, row().values["clicks_1h"]) == (3, None, 3)
    assert (row().found, row().read_at) == (True, NOON)
    assert repr(row()) == "user_activity(clicks_1h=3, last_item=None)"


def test_a_misspelt_feature() -> None:
    with pytest.raises(AttributeError, match="user_activity has no feature 'clicks_2h'; it has clicks_1h, last_item"):
        _ = row().clicks_2h
    assert not hasattr(row(), "clicks_2h")


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_a_row_can_be_copied(twin: Callable[[Row], Row]) -> None:
    assert twin(row()).values == row().values
