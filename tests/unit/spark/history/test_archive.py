"""What is compacted, and what a table holds after a batch."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from leftfold.spark.history import archive
from leftfold.spark.history.archive import Day, files_of, to_compact

FIRST, SECOND = date(2026, 11, 1), date(2026, 11, 2)
LATER = datetime(2026, 11, 2, 1, 0, tzinfo=UTC)


def test_a_closed_date_with_many_files_is_due() -> None:
    many = Day(FIRST, 40, 4_000_000, 1_000)
    assert to_compact([many, Day(SECOND, 90, 1, 1)], LATER) == many


@pytest.mark.parametrize(
    ("found", "now"),
    [
        ([Day(FIRST, 40, 1, 1)], LATER),  # no later date: records of it may still come
        ([Day(FIRST, 40, 1, 1), Day(SECOND, 1, 1, 1)], datetime(2026, 11, 2, 0, 59, tzinfo=UTC)),
        ([Day(FIRST, 4, 1, 1), Day(SECOND, 1, 1, 1)], LATER),  # few enough
        ([], LATER),
    ],
)
def test_not_due(found: list[Day], now: datetime) -> None:
    assert to_compact(found, now) is None


def test_a_large_date_has_more_files() -> None:
    assert files_of(Day(FIRST, 999, 10 * archive.FILE_BYTES + 1, 1)) == 11


def test_holds_join_where_ranges_meet() -> None:
    before = {0: [[0, 10]], 1: [[5, 7]]}
    read = {0: (10, 30), 1: (9, 12), 2: (0, 4), 3: (0, 0)}
    assert archive._joined(before, read) == {0: [[0, 30]], 1: [[5, 7], [9, 12]], 2: [[0, 4]]}
