"""Team features: what a person did lately, for a model."""

from clicks import Click, clicks

import leftfold as lf


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    """What a person did in the last day."""

    clicks_24h = lf.count("24h")
    spend_24h = lf.sum(Click.price, "24h")
