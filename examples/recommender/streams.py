"""What people look at and buy, and what is known of people and items at any moment."""

from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    """A person has looked at an item."""

    user_id: str
    item_id: str
    price: float
    at: datetime


class Purchase(lf.Event):
    """A person has bought an item."""

    user_id: str
    item_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, rate="1k/s", lateness="2h", partitions=6)
purchases = lf.Topic(
    "purchases", Purchase, key=Purchase.user_id, time=Purchase.at, rate="100/s", lateness="5s", partitions=6
)


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    """What a person looked at lately."""

    clicks_1h = lf.count("1h")
    mean_price_1h = lf.mean(Click.price, "1h")


class ItemActivity(lf.Features, of=clicks, by=Click.item_id):
    """How often an item was looked at lately."""

    item_clicks_1h = lf.count("1h")
