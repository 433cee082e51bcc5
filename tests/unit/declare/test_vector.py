from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.rows import make_row
from leftfold.errors import DeclarationError
from leftfold.fold.vector import Input, Part
from tests.unit.declare.declared import NOON, Click, clicks


class ItemUpdate(lf.Event):
    item_id: str
    category: str
    tags: list[str] = []  # noqa: RUF012 # pydantic copies it
    since: datetime | None = None


items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)


class User(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spend = lf.sum(Click.price, "24h")
    per_click = spend / clicks_1h
    recent = lf.last_n(Click.item_id, "7d", n=3)
    seen = lf.max(Click.at, None)


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category
    tags = ItemUpdate.tags
    since = ItemUpdate.since


@lf.view(clicks, by="item_id")
def trending(records: Any) -> Any:
    return records


class Ranker(lf.Vector):
    """What a model sees."""

    clicks_now = User.clicks_1h
    cart = lf.request(float)
    each = User.per_click.default(0)
    category = Item.category
    tags = Item.tags
    trend = trending.column("n", int).default(-1)
    spend = User.spend
    member = lf.request(bool)


# Without a checker that would rightly object.
ANY: Any = User
ANY_ITEM: Any = Item


def vector(**parts: Any) -> type[lf.Vector]:
    return type("Made", (lf.Vector,), parts)


def test_the_definition() -> None:
    definition = Ranker.__leftfold_definition__
    assert definition.name == "ranker"
    assert definition.parts == (
        Part("clicks_now", "user", "clicks_1h"),
        Part("each", "user", "per_click", 0.0),
        Part("category", "item", "category"),
        Part("tags", "item", "tags"),
        Part("trend", "trending", "n", -1),
        Part("spend", "user", "spend"),
    )
    assert definition.inputs == (Input("cart", "float"), Input("member", "bool"))
    assert definition.order == ("clicks_now", "cart", "each", "category", "tags", "trend", "spend", "member")
    assert definition.views == ("user", "item", "trending")


def test_a_default_of_the_vector_is_not_the_views() -> None:
    """The view's own default comes first; the vector's stands in for what is missing after that."""
    kept = {f.name: f.default for f in User.__leftfold_definition__.features}
    assert kept["per_click"] is None
    row: Any = User.compute([], at=NOON, user_id="u")
    assert row.per_click is None


def test_a_vector_has_its_own_copies() -> None:
    first: Any = User.clicks_1h
    mine: Any = Ranker.clicks_now
    assert (first.name, first.owner) == ("clicks_1h", User)
    assert (mine.name, mine.owner) == ("clicks_now", Ranker)


def test_a_row() -> None:
    values = {**dict.fromkeys(Ranker.__leftfold_names__), "clicks_now": 3, "cart": 2.5}
    row = make_row(Ranker, values, found=True, read_at=NOON, provenance=())
    assert (row.clicks_now, row.cart, row.values["spend"]) == (3, 2.5, None)


def test_features_of_one_name_and_a_name_of_its_own() -> None:
    class Two(lf.Vector, name="two-of-them"):
        first = User.clicks_1h
        second = User.clicks_1h

    assert Two.__leftfold_definition__.name == "two-of-them"
    assert [p.feature for p in Two.__leftfold_definition__.parts] == ["clicks_1h", "clicks_1h"]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (vector, "no-features"),
        (lambda: vector(cart=lf.request(float)), "no-features"),
        (lambda: vector(n=lf.count("1h")), "feature-of-no-view"),
        (lambda: vector(n=User.spend / User.clicks_1h), "feature-of-no-view"),
        (lambda: vector(n=Ranker.clicks_now), "feature-of-no-view"),
        (lambda: vector(n=User.clicks_1h, user_id=lf.request(str)), "request-is-key"),
        (lambda: vector(n=trending.column("n", int), item_id=lf.request(str)), "request-is-key"),
        (lambda: vector(n=Item.category, item_id=lf.request(str)), "request-is-key"),
        (lambda: vector(found=User.clicks_1h), "reserved-name"),
        (lambda: vector(n=User.clicks_1h, _cart=lf.request(float)), "reserved-name"),
        (lambda: vector(n=ANY.spend.default("none")), "default-kind"),
        (lambda: vector(n=ANY.recent.default([])), "default-kind"),
        (lambda: vector(n=ANY.seen.default(NOON)), "default-kind"),
        (lambda: vector(n=ANY_ITEM.category.default(1)), "default-kind"),
        (lambda: vector(n=ANY_ITEM.tags.default([])), "default-kind"),
        (lambda: vector(n=ANY_ITEM.since.default(NOON)), "default-kind"),
        (lambda: vector(n=trending.column("n", int).default(ANY)), "default-kind"),
        (lambda: lf.request(ANY), "request-kind"),
        (lambda: lf.request(datetime), "request-kind"),  # type: ignore[type-var] # what is refused
        (lambda: type("Made", (lf.Vector,), {"n": User.clicks_1h}, name="a:b"), "view-name"),
    ],
)
def test_refused(make: Callable[[], object], code: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert caught.value.code == code
    assert caught.value.source is not None
    assert caught.value.source.file == __file__
