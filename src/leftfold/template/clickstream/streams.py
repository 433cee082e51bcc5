"""What happens in the shop, what a model that ranks items wants to know at any moment, and what it says."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

import leftfold as lf


class Click(lf.Event):
    """A person clicked an item."""

    user_id: str
    item_id: str
    price: float
    at: datetime  # when it happened; always with a time zone


# Keyed by person: the clicks of one person stay in order. A click that reaches the log more than ten minutes after it
# happened is late, and counts nowhere: not live, not on replay.
clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, rate="20k/s", retention="14d", lateness="10m")


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    """What a person did lately."""

    clicks_1h = lf.count("1h")
    big_1h = lf.count("1h", where=Click.price > 100)
    clicks_24h = lf.count("24h")
    spend_24h = lf.sum(Click.price, "24h")
    last_item = lf.last(Click.item_id, "7d")
    per_click = spend_24h / clicks_24h  # computed when it is read


class ItemUpdate(lf.Event):
    """An item was added to the shop, or changed."""

    item_id: str
    category: str


# Compacted: Kafka keeps the newest record of every item, for ever.
items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    """What an item is now."""

    category = ItemUpdate.category


class RankerInput(lf.Vector):
    """What the ranking model sees of a person and an item, in one read."""

    clicks_1h = UserActivity.clicks_1h
    per_click = UserActivity.per_click.default(0.0)
    category = Item.category
    cart_value = lf.request(float)  # known to the caller only


class RankerScore(lf.Prediction, of=RankerInput):
    """How likely the person buys the item. It holds the values that it was made from."""

    score: float = Field(ge=0, le=1)


# Predictions are events, too: they can be read, replayed, and folded into features.
ranker_scores = lf.Predictions("ranker_scores", RankerScore)


def load() -> lf.Model[float]:
    """Load the model. This one is a single weight; `lf.ModelFile`, `lf.Onnx` and `lf.MLflow` load trained ones."""
    return lf.Model(0.02, version="1")


# It scores each click, as if the item were all that is in the cart. A program may ask it, too.
@lf.scorer(RankerInput, to=ranker_scores, model=load, on=lf.each(clicks, start="now", cart_value=Click.price))
def ranker(weight: float, rows: lf.Rows[RankerInput]) -> Sequence[float]:
    """Score people and items."""
    return [min(1.0, weight * row.clicks_1h) for row in rows]
