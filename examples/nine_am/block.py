"""Blocks a card as soon as a prediction says that it is stolen."""

import time
from pathlib import Path

from fraud import ALERT, FraudScore, fraud_scores

import leftfold as lf


@lf.consumer(fraud_scores, start="now")
def block(prediction: FraudScore) -> None:
    """Note the card, and the moment. After a crash it is noted twice, which changes nothing."""
    if prediction.score >= ALERT:
        with Path("blocked.txt").open("a") as blocked:
            blocked.write(f"{prediction.card} {time.time():.6f}\n")  # type: ignore[attr-defined] # a key of the vector
