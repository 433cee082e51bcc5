"""The topic that all teams read. Nothing in it says who reads it."""

from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    """A person has clicked on an item."""

    user_id: str
    item_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, rate="2k/s", retention="14d", lateness="10m")
