"""The ranker: what it sees, what it answers, and what came of that."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from streams import ItemActivity, Purchase, UserActivity, purchases

import leftfold as lf

MODEL = "models/ranker.npy"
Numbers = NDArray[np.float64]


class RankerInput(lf.Vector):
    """What the ranker sees of a person and an item."""

    clicks_1h = UserActivity.clicks_1h
    mean_price_1h = UserActivity.mean_price_1h.default(0.0)
    item_clicks_1h = ItemActivity.item_clicks_1h
    price = lf.request(float)


class RankerScore(lf.Prediction, of=RankerInput):
    """How likely the person buys the item."""

    score: float = Field(ge=0, le=1)


ranker_scores = lf.Predictions("ranker_scores", RankerScore, partitions=6, lateness="5s")


class RankerOutcome(
    lf.Outcome,
    of=ranker_scores,
    by=purchases,
    within="5s",
    on={"user_id": Purchase.user_id, "item_id": Purchase.item_id},
):
    """What the person did after a recommendation. A real shop waits a day; this one has no time."""

    bought = lf.happened()


def columns(matrix: Numbers) -> Numbers:
    """Turn rows of the vector into the columns that are weighted. Training and serving share this function."""
    clicks, mean_price, item_clicks, price = matrix.T
    away = np.abs(price - mean_price) / np.maximum(mean_price, 1.0)
    return np.column_stack([np.ones_like(price), np.log1p(clicks), np.log1p(item_clicks), np.minimum(away, 3.0)])


def likelihood(weights: Numbers, matrix: Numbers) -> Numbers:
    answer: Numbers = 1 / (1 + np.exp(-(columns(matrix) @ weights)))
    return answer


def load(path: str) -> Numbers:
    weights: Numbers = np.load(path)
    return weights


@lf.scorer(RankerInput, to=ranker_scores, model=lf.ModelFile(MODEL, load))
def ranker(weights: Numbers, rows: lf.Rows[RankerInput]) -> Sequence[float]:
    """Score people and items."""
    return likelihood(weights, rows.matrix()).tolist()  # type: ignore[no-any-return] # numpy's own type
