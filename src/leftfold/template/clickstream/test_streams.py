"""Features are tested without any engine: `compute` has the same meaning as the live view."""

from datetime import UTC, datetime, timedelta

from streams import Click, RankerInput, UserActivity, ranker

import leftfold as lf

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def click(minutes_ago: float, *, price: float, item: str = "i1") -> Click:
    return Click(user_id="u1", item_id=item, price=price, at=NOON - timedelta(minutes=minutes_ago))


def test_windows() -> None:
    events = [click(180, price=250.0), click(30, price=120.0), click(5, price=9.5, item="i2")]
    row = UserActivity.compute(events, at=NOON)
    assert (row.clicks_1h, row.big_1h, row.clicks_24h) == (2, 1, 3)
    assert (row.spend_24h, row.per_click) == (379.5, 126.5)
    assert row.last_item == "i2"


def test_nobody() -> None:
    row = UserActivity.compute([click(5, price=9.5)], at=NOON, user_id="somebody else")
    assert (row.clicks_1h, row.spend_24h, row.per_click, row.found) == (0, None, None, False)


def test_ranker() -> None:
    rows = lf.Rows.of(RankerInput, [{"clicks_1h": 10}, {"clicks_1h": 1_000}])
    assert ranker(0.02, rows) == [0.2, 1.0]
