"""A scorer for unit tests: its vector, its prediction, and rows as a store would give them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

import leftfold as lf
from leftfold.declare.rows import Provenance, Read


class Click(lf.Event):
    user_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spent_1h = lf.sum(Click.price, "1h")
    last_prices = lf.last_n(Click.price, "1h", n=3)


class RankerInput(lf.Vector):
    clicks_1h = UserActivity.clicks_1h
    spent_1h = UserActivity.spent_1h
    cart_value = lf.request(float)


class RankerScore(lf.Prediction, of=RankerInput):
    score: float = Field(ge=0, le=1)


scores = lf.Predictions("scores", RankerScore)
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def read(clicks_1h: int | None = 3, *, found: bool = True, batch: int = 7) -> Read:
    values: dict[str, Any] = {"clicks_1h": clicks_1h, "spent_1h": 1.5, "cart_value": 9.0}
    return Read(values, NOON, (Provenance("user_activity", "b1", batch, found),))


def half(model: Any, rows: lf.Rows[RankerInput]) -> Sequence[float]:
    return [0.5] * len(rows)
