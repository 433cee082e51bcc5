"""One project's worth of declarations, for the tests of this room."""

from __future__ import annotations

from datetime import UTC, datetime

import leftfold as lf


class Click(lf.Event):
    """A person clicked an item."""

    user_id: str
    item_id: str
    price: float
    pieces: int = 1
    coupon: str | None = None
    tags: list[str] = []  # noqa: RUF012 # pydantic copies it
    seen: list[datetime] | None = None
    raw: bytes = b""
    gift: bool = False
    at: datetime


class Purchase(lf.Event):
    user_id: str
    price: str  # another kind than Click's
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
