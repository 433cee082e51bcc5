"""What a notebook shows, asked of IPython itself."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter, HTMLFormatter
from pydantic import Field

import leftfold as lf


class Click(lf.Event):
    user_id: str = Field(min_length=1)
    item_id: str
    price: float = Field(ge=0, le=1_000)
    coupon: lf.Personal[str] | None = "<b>"
    tags: list[str] = []  # noqa: RUF012 # pydantic copies it
    at: datetime


class ItemUpdate(lf.Event):
    item_id: str
    category: str
    tags: list[str] = []  # noqa: RUF012 # as above


NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, external=True)
items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)


class UserActivity(lf.Features, of=clicks, by=(Click.user_id, Click.item_id)):
    clicks_1h = lf.count("1h")
    big = lf.count(None, where=(Click.price > 100) & (Click.coupon != None), ttl="90d")  # noqa: E711 # a condition
    since = lf.count("1d", where=(Click.at >= NOON) | (Click.item_id == Click.user_id))
    spend = lf.sum(Click.price, "24h", step="5m").default(0.0)
    recent = lf.last_n(Click.item_id, "7d", n=5)
    per_click = spend / clicks_1h
    scaled = (lf.mean(Click.price, "1h") * 2).default(0.5)


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = lf.latest(ItemUpdate.category).default("none")
    tags = ItemUpdate.tags


@lf.view(clicks, by="item_id", latest="at", ttl="1d")
def trending(clicks: Any) -> Any:
    return clicks


class RankerInput(lf.Vector):
    cart_value = lf.request(float)
    spend = UserActivity.spend
    per_click = UserActivity.per_click.default(0.0)
    category = Item.category
    at = trending.column("at", datetime)


@pytest.fixture(scope="module")
def html() -> HTMLFormatter:
    """As `%load_ext leftfold` leaves it."""
    display = DisplayFormatter()
    lf.load_ipython_extension(SimpleNamespace(display_formatter=display))
    formatter = display.formatters["text/html"]
    assert isinstance(formatter, HTMLFormatter)
    return formatter


def shown(html: HTMLFormatter, thing: object) -> list[list[str]] | None:
    """The rows of the table that is shown, its caption first."""
    made = html(thing)
    if made is None:
        return None
    assert "style" not in made  # no colours: readable on any ground
    (caption,) = re.findall(r"<caption>(.*?)</caption>", made)
    cells = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", made)]
    return [[caption], *cells]


def test_an_event_class(html: HTMLFormatter) -> None:
    assert shown(html, Click) == [
        ["event Click"],
        ["field", "kind", "rules"],
        ["user_id", "string", "length &gt;= 1"],
        ["item_id", "string", ""],
        ["price", "float", "price &gt;= 0.0, price &lt;= 1000.0"],
        ["coupon", "string", "personal, optional, default &#x27;&lt;b&gt;&#x27;"],
        ["tags", "list of string", "default []"],
        ["at", "datetime", ""],
    ]


def test_a_view(html: HTMLFormatter) -> None:
    assert shown(html, UserActivity) == [
        ["view user_activity of clicks by user_id, item_id"],
        ["feature", "aggregate", "window", "step", "default"],
        ["clicks_1h", "count()", "1h", "5m", ""],
        ["big", "count() where (price &gt; 100.0) and (coupon is there)", "ever, forgotten after 90d", "", ""],
        ["since", f"count() where (at &gt;= {NOON.isoformat()}) or (item_id = user_id)", "1d", "1h", ""],
        ["spend", "sum(price)", "1d", "5m", "0.0"],
        ["recent", "last_n(item_id, 5)", "7d", "1h", ""],
        ["per_click", "spend / clicks_1h", "", "", ""],
        ["scaled", "(mean(price)) * 2", "", "", "0.5"],
    ]


def test_a_table(html: HTMLFormatter) -> None:
    assert shown(html, Item) == [
        ["view item of items by item_id"],
        ["column", "field", "kind", "default"],
        ["category", "category", "string", "&#x27;none&#x27;"],
        ["tags", "tags", "list of string", ""],
    ]


def test_a_vector(html: HTMLFormatter) -> None:
    assert shown(html, RankerInput) == [
        ["vector ranker_input"],
        ["value", "from", "what", "default"],
        ["cart_value", "the caller", "float", ""],
        ["spend", "user_activity", "spend", ""],  # the view's own default is the view's
        ["per_click", "user_activity", "per_click", "0.0"],
        ["category", "item", "category", ""],
        ["at", "trending", "at", ""],
    ]


def test_what_shows_itself(html: HTMLFormatter) -> None:
    click = Click(user_id="u", item_id="<i>", price=1.0, at=NOON)
    assert (shown(html, click) or [])[:4] == [
        ["Click"],
        ["user_id", "&#x27;u&#x27;"],
        ["item_id", "&#x27;&lt;i&gt;&#x27;"],
        ["price", "1.0"],
    ]
    row = UserActivity.compute([click], at=NOON, user_id="u", item_id="<i>")
    assert (shown(html, row) or [])[0] == ["UserActivity at 2026-01-05 12:00:00 UTC"]
    topic = shown(html, clicks)
    assert topic is not None
    assert topic[0] == ["topic clicks"]
    assert ["owner", "somebody else"] in topic
    assert ["kept", "the newest record of each key"] in (shown(html, items) or [])
    assert shown(html, trending) == [
        ["view trending, a function"],
        ["of", "clicks"],
        ["by", "item_id"],
        ["newest by", "at"],
        ["kept", "1d after its last write"],
    ]


@pytest.mark.parametrize("other", [int, str, lf.Event, lf.Features, lf.Table, lf.Vector, lf.Row, object(), None, 3])
def test_other_things_look_as_always(html: HTMLFormatter, other: object) -> None:
    assert shown(html, other) is None
