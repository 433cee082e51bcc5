"""What people look at, and what a model of offers sees of them."""

from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    """A person has looked at an item."""

    user_id: str
    item_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, rate="1k/s", lateness="10m", partitions=6)


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    """What a person looked at lately."""

    clicks_1h = lf.count("1h")
    mean_price_1h = lf.mean(Click.price, "1h")


class OfferInput(lf.Vector):
    """What the model sees of a person and an offer."""

    clicks_1h = UserActivity.clicks_1h
    mean_price_1h = UserActivity.mean_price_1h.default(0.0)
    price = lf.request(float)
