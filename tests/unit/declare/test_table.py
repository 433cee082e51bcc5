from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from pydantic import Field

import leftfold as lf
from leftfold.errors import DeclarationError
from leftfold.fold.latest import TakenColumn
from tests.unit.declare.declared import NOON, Click, clicks


class ItemUpdate(lf.Event):
    item_id: str
    shop: int
    category: str = Field(max_length=20)
    stock: int | None = None
    price: float = 0.0
    tags: list[str] = []  # noqa: RUF012 # pydantic copies it
    since: datetime | None = None
    raw: bytes = b""


items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)
more = lf.Topic("more", ItemUpdate, key=ItemUpdate.item_id, compacted=True)
by_shop = lf.Topic("by_shop", ItemUpdate, key=(ItemUpdate.shop, ItemUpdate.item_id), compacted=True)


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category
    left = lf.latest(ItemUpdate.stock).default(0)
    price = lf.latest(ItemUpdate.price).default(1)
    tags = ItemUpdate.tags
    since = lf.latest(ItemUpdate.since).default(NOON)


ANY: Any = ItemUpdate  # its fields, without a checker that would rightly object


def table(by: Any = ItemUpdate.item_id, of: Any = items, **columns: Any) -> type[lf.Table]:
    return type("Made", (lf.Table,), columns or {"c": ItemUpdate.category}, of=of, by=by)


def test_the_definition() -> None:
    definition = Item.__leftfold_definition__
    assert (definition.view, definition.origins[0].topic, definition.code, definition.ttl) == (
        "item",
        "items",
        None,
        None,
    )
    assert [(k.name, k.kind) for k in definition.keys] == [("item_id", "string")]
    assert definition.columns == (
        TakenColumn("category", "category", "string"),
        TakenColumn("left", "stock", "int", default=0),
        TakenColumn("price", "price", "float", default=1.0),
        TakenColumn("tags", "tags", "string", repeated=True),
        TakenColumn("since", "since", "datetime", default=1_767_614_400_000_000),
    )
    assert definition.as_json()["rules"] == [["length", "<=", ["field", "category", "string"], 20]]
    assert Item.__leftfold_names__ == ("category", "left", "price", "tags", "since")


def test_a_mark_of_personal_data_is_the_same_build() -> None:
    class Marked(lf.Event):
        item_id: lf.Personal[str]
        category: lf.Personal[str] = Field(max_length=20)

    topic = lf.Topic("items", Marked, key=Marked.item_id, compacted=True)
    made = table(of=topic, by=Marked.item_id, c=Marked.category)
    assert made.__leftfold_definition__.fingerprint == table().__leftfold_definition__.fingerprint


def test_a_column_is_a_feature_of_its_table() -> None:
    column: Any = Item.category
    assert isinstance(column, lf.Feature)
    assert (column.name, column.owner) == ("category", Item)


def test_a_row_that_is_not_there() -> None:
    assert Item.__leftfold_definition__.row(None) == {
        **{"category": None, "left": 0, "price": 1.0, "tags": None, "since": NOON},
    }


def test_a_key_of_several_parts_is_the_topics() -> None:
    made = table(of=by_shop, by=(ItemUpdate.shop, ItemUpdate.item_id))
    assert [k.name for k in made.__leftfold_definition__.keys] == ["shop", "item_id"]


@lf.stream(clicks, event=Click)
def same(records: Any) -> Any:
    return records


@pytest.mark.parametrize(
    ("declare", "code"),
    [
        (lambda: table(of="items"), "not-a-topic"),
        (lambda: table(of=clicks, by=Click.user_id, c=Click.item_id), "topic-not-compacted"),
        (lambda: table(of=(items, more)), "table-of-one-topic"),
        (lambda: table(of=same, by=Click.user_id, c=Click.item_id), "table-of-one-topic"),
        (lambda: table(by=ItemUpdate.shop), "table-key"),
        (lambda: table(of=by_shop), "table-key"),
        (lambda: table(of=by_shop, by=(ItemUpdate.item_id, ItemUpdate.shop)), "table-key"),
        (lambda: table(by=ItemUpdate.price), "by-kind"),
        (lambda: table(x=3), "no-features"),
        (lambda: table(found=ItemUpdate.category), "reserved-name"),
        (lambda: table(n=lf.count("1h")), "aggregate-in-table"),
        (lambda: table(n=lf.latest(ANY.stock) + 1), "aggregate-in-table"),
        (lambda: table(n=Click.item_id), "field-of-other-event"),
        (lambda: table(n=lf.latest("nothing")), "unknown-field"),
        (lambda: table(n=ItemUpdate.raw), "column-kind"),
        (lambda: table(n=lf.latest(ANY.stock).default("none")), "default-kind"),
        (lambda: table(n=lf.latest(ANY.tags).default([])), "default-kind"),
        (lambda: type("Made", (lf.Table,), {"c": ANY.category}, of=items, by="item_id", name="a:b"), "view-name"),
    ],
)
def test_refused(declare: Callable[[], object], code: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare()
    assert caught.value.code == code
    assert caught.value.source is not None
    assert caught.value.source.file == __file__


def test_an_aggregation_of_a_compacted_topic_is_refused() -> None:
    """Compaction deletes what it would have counted."""
    with pytest.raises(DeclarationError) as caught:
        type("Made", (lf.Features,), {"n": lf.count("1h")}, of=items, by="item_id")
    assert caught.value.code == "topic-compacted"
