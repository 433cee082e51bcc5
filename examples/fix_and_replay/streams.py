"""Payments by card, and what a model that looks for fraud sees of them. It has a bug: docs/guide/fix-and-replay.md."""

from datetime import datetime

import leftfold as lf


class Payment(lf.Event):
    """A card was used, with success or without."""

    card: str
    shop: str
    amount: float
    outcome: str  # "approved" or "declined"
    at: datetime


# A terminal without a line keeps its payments for up to three hours.
payments = lf.Topic("payments", Payment, key=Payment.card, time=Payment.at, rate="2k/s", retention="14d", lateness="3h")


class CardActivity(lf.Features, of=payments, by=Payment.card):
    """What was tried with a card lately."""

    payments_1h = lf.count("1h")
    declined_1h = lf.count("1h", where=Payment.outcome == "decline")
    spent_24h = lf.sum(Payment.amount, "24h")
    declined_share = declined_1h / payments_1h


class FraudInput(lf.Vector):
    """What the model sees of a payment: in training, and when it is served."""

    payments_1h = CardActivity.payments_1h
    declined_1h = CardActivity.declined_1h
    declined_share = CardActivity.declined_share.default(0.0)
    amount = lf.request(float)
