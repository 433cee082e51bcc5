"""Which batches a lake takes, from nothing but offsets."""

from __future__ import annotations

import pytest

from leftfold.errors import RunError
from leftfold.spark.sinks.lake import continues


@pytest.mark.parametrize(
    ("found", "starts", "first", "expected"),
    [
        ({0: 5, 1: 7}, {0: 5, 1: 7}, False, True),
        ({0: 9, 1: 9}, {0: 5, 1: 7}, False, False),  # written before a crash
        ({}, {0: 3}, True, True),  # an empty table, and a log that starts at 3
        ({0: 5}, {0: 5, 1: 0}, True, True),  # a partition that is new to the table
    ],
)
def test_continues(found: dict[int, int], starts: dict[int, int], first: bool, expected: bool) -> None:
    assert continues("activity", found, starts, {0: 9, 1: 9}, first=first) is expected


@pytest.mark.parametrize(
    ("found", "starts", "first"),
    [
        ({0: 6, 1: 7}, {0: 5, 1: 7}, False),
        ({0: 4, 1: 7}, {0: 5, 1: 7}, False),
        ({}, {0: 5, 1: 7}, False),  # the table was emptied under a running query
        ({0: 6}, {0: 5, 1: 0}, True),
    ],
)
def test_refuses(found: dict[int, int], starts: dict[int, int], first: bool) -> None:
    with pytest.raises(RunError, match="another query"):
        continues("activity", found, starts, {0: 9, 1: 9}, first=first)
