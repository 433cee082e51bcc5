"""Rows as people hold them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.rows import Provenance, Read, Row
from leftfold.errors import StoreError
from leftfold.store.serving import rows_of, target_of
from tests.unit.declare.declared import NOON, Click, clicks


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    last_item = lf.last(Click.item_id, "7d")


class Seen(lf.Vector):
    recently = UserActivity.clicks_1h


@lf.view(clicks, by="item_id")
def trending(records: Any) -> Any:
    return records


READ = Read({"clicks_1h": 3, "last_item": None}, NOON, (Provenance("user_activity", "b1", 7, found=True),))


def row(view: Any = "user_activity") -> Any:
    (made,) = rows_of(view, [READ])
    return made


def test_what_is_asked_for() -> None:
    assert [target_of(v) for v in ("any", UserActivity, trending)] == ["any", "user_activity", "trending"]
    assert target_of(Seen) is Seen.__leftfold_definition__


def test_a_row_by_name() -> None:
    assert (row().clicks_1h, row().last_item, row().values["clicks_1h"]) == (3, None, 3)
    assert (row().found, row().read_at) == (True, NOON)
    assert repr(row()) == "user_activity(clicks_1h=3, last_item=None)"
    assert repr(row(trending)) == "trending(clicks_1h=3, last_item=None)"


def test_a_row_by_class() -> None:
    typed = row(UserActivity)
    assert isinstance(typed, UserActivity)
    assert (typed.clicks_1h, typed.found, typed.provenance) == (3, True, READ.provenance)


def test_a_feature_that_the_store_does_not_have_yet() -> None:
    older = Read({"clicks_1h": 3}, NOON, READ.provenance)
    with pytest.raises(StoreError) as caught:
        rows_of(UserActivity, [older])
    assert caught.value.code == "feature-not-built"
    assert "user_activity.last_item" in caught.value.what


def test_a_row_is_found_if_all_of_its_views_know_the_entity() -> None:
    half = (*READ.provenance, Provenance("item", "b2", 1, found=False))
    assert not Read({}, NOON, half).found


def test_a_misspelt_feature() -> None:
    with pytest.raises(AttributeError, match="user_activity has no feature 'clicks_2h'; it has clicks_1h, last_item"):
        _ = row().clicks_2h
    assert not hasattr(row(), "clicks_2h")


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_a_row_can_be_copied(twin: Callable[[Row], Row]) -> None:
    assert twin(row()).values == row().values
