"""Scores each payment as it arrives, by the rule: of what the view holds, and of the payment itself."""

from collections.abc import Sequence

from payments import CardActivity, is_stolen, payments
from pydantic import Field

import leftfold as lf

ALERT = 0.5  # a card with this score or a higher one is blocked


class FraudInput(lf.Vector):
    """What the rule sees of a payment. The view may not hold the payment yet, so its country is asked for."""

    lowest_country_1h = CardActivity.lowest_country_1h
    highest_country_1h = CardActivity.highest_country_1h
    country = lf.request(int)


class FraudScore(lf.Prediction, of=FraudInput):
    """How likely it is that the card is stolen."""

    score: float = Field(ge=0, le=1)


fraud_scores = lf.Predictions("fraud_scores", FraudScore, partitions=6)


def load() -> lf.Model[float]:
    """Load the model. It is one number: how likely a card is stolen to which the rule applies."""
    return lf.Model(0.97, version="1")


@lf.scorer(FraudInput, to=fraud_scores, model=load, on=lf.each(payments, start="now"))
def fraud(model: float, rows: lf.Rows[FraudInput]) -> Sequence[float]:
    """Score payments."""
    return [
        model if is_stolen(row.lowest_country_1h, row.highest_country_1h, row.country) else 1 - model for row in rows
    ]
