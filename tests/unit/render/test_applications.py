"""Which views share an application."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.errors import LeftfoldError
from leftfold.render.applications import applications


class Click(lf.Event):
    user_id: str
    at: datetime


CLICKS, ITEMS, PAGES = (lf.Topic(n, Click, key=Click.user_id, time=Click.at) for n in ("clicks", "items", "pages"))


def view(name: str, *topics: lf.Topic[Click]) -> Any:
    def function(rows: Any) -> Any:
        return rows

    function.__name__ = name
    return lf.view(topics, by="user_id", latest="at")(function)


def made(*views: Any, groups: dict[str, tuple[str, ...]] | None = None) -> dict[str, tuple[str, ...]]:
    catalog, problems = Catalog.of(views)
    assert problems == []
    return {one.name: one.views for one in applications("shop", catalog, tuple((groups or {}).items()))}


def refused(*views: Any, groups: dict[str, tuple[str, ...]]) -> LeftfoldError:
    with pytest.raises(LeftfoldError) as caught:
        made(*views, groups=groups)
    return caught.value


def test_a_view_that_shares_no_topic_has_one_of_its_own() -> None:
    assert made(view("user_activity", CLICKS), view("item", ITEMS)) == {
        "shop-clicks": ("user_activity",),
        "shop-items": ("item",),
    }


def test_views_of_one_topic_stay_together() -> None:
    assert made(view("a", CLICKS), view("b", ITEMS), view("c", CLICKS)) == {
        "shop-clicks": ("a", "c"),
        "shop-items": ("b",),
    }


def test_another_view_renames_no_application() -> None:
    """A new name would start the same views once more, beside the old application."""
    assert list(made(view("b", CLICKS))) == ["shop-clicks"]
    assert list(made(view("b", CLICKS), view("c", CLICKS))) == ["shop-clicks"]
    assert list(made(view("a", CLICKS), view("b", CLICKS))) == ["shop-clicks"]


def test_also_by_way_of_a_third() -> None:
    assert made(view("a", CLICKS), view("b", ITEMS), view("c", CLICKS, ITEMS)) == {"shop-clicks": ("a", "b", "c")}
    assert made(view("a", CLICKS), view("b", PAGES), view("c", PAGES, CLICKS), view("d", ITEMS)) == {
        "shop-clicks": ("a", "b", "c"),
        "shop-items": ("d",),
    }


def test_a_group_that_was_asked_for_comes_first() -> None:
    views = (view("a", CLICKS), view("b", ITEMS), view("c", PAGES))
    assert made(*views, groups={"light": ("c", "b")}) == {"shop-light": ("c", "b"), "shop-clicks": ("a",)}


@pytest.mark.parametrize("groups", [{"x": ("a",)}, {"x": ("a",), "y": ("b",)}])
def test_a_topic_is_not_split(groups: dict[str, tuple[str, ...]]) -> None:
    """Two intakes on one checkpoint would undo each other's commits."""
    error = refused(view("a", CLICKS), view("b", CLICKS), groups=groups)
    assert error.code == "topic-split"
    assert error.fix.endswith("--group x=a,b")


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ({"x": ("a", "a")}, "view a is named twice"),
        ({"x": ("a",), "y": ("a",)}, "view a is named twice"),
        ({"items": ("a",)}, "two applications would be called shop-items"),
    ],
)
def test_groups_that_mean_nothing(groups: dict[str, tuple[str, ...]], what: str) -> None:
    error = refused(view("a", CLICKS), view("b", ITEMS), groups=groups)
    assert error.code == "bad-groups"
    assert what in error.what


def test_a_group_that_is_named_twice() -> None:
    catalog, _ = Catalog.of([view("a", CLICKS), view("b", ITEMS)])
    with pytest.raises(LeftfoldError, match="group x is named twice"):
        applications("shop", catalog, (("x", ("a",)), ("x", ("b",))))


def test_a_view_that_is_not_declared() -> None:
    assert refused(view("a", CLICKS), groups={"x": ("b",)}).code == "unknown-view"


def test_names_that_differ_only_by_what_kubernetes_does_not_take() -> None:
    likes = lf.Topic("a_b", Click, key=Click.user_id, time=Click.at)
    error = refused(view("a", likes), view("c", ITEMS), groups={"a-b": ("c",)})
    assert "shop-a-b" in error.what
