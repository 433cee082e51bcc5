"""Payments by card, where a card was used lately, and the rule that all ways of watching share."""

from datetime import datetime

import leftfold as lf


class Payment(lf.Event):
    """A card has paid."""

    card: str
    country: int  # of the shop, by its number in ISO 3166: 276 is Germany
    amount: float
    at: datetime


payments = lf.Topic(
    "payments", Payment, key=Payment.card, time=Payment.at, rate="1k/s", retention="14d", lateness="10m", partitions=6
)


class CardActivity(lf.Features, of=payments, by=Payment.card):
    """The countries in which a card was used. It was used in several if the two differ."""

    lowest_country_1h = lf.min(Payment.country, "1h")
    highest_country_1h = lf.max(Payment.country, "1h")


def is_stolen(*countries: int | None) -> bool:
    """The rule: within an hour a card was used in two countries. None is a country that is not known."""
    return len(set(countries) - {None}) > 1
