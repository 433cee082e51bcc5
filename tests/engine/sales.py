"""An event with every type of field that can be aggregated, and every aggregate of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import leftfold as lf


class Sale(lf.Event):
    shop: str
    item: str | None
    price: float | None
    pieces: int
    at: datetime


sales = lf.Topic("sales", Sale, key=Sale.shop, time=Sale.at, partitions=6, lateness="30m")


def over(window: str) -> dict[str, Any]:
    return {
        f"count_{window}": lf.count(window, where=Sale.pieces > 1),
        f"sum_{window}": lf.sum(Sale.price, window),
        f"mean_{window}": lf.mean(Sale.pieces, window),
        f"min_{window}": lf.min(Sale.price, window),
        f"max_{window}": lf.max(Sale.at, window),
        f"last_{window}": lf.last(Sale.item, window),
        f"last_n_{window}": lf.last_n(Sale.item, window, n=5),
        f"distinct_{window}": lf.distinct(Sale.item, window),
    }
