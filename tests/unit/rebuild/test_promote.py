from __future__ import annotations

from typing import Any

import pytest

from leftfold.errors import RunError
from leftfold.rebuild.promote import behind, promote
from leftfold.store.layout import LedgerRow
from leftfold.store.standings import Standing

DAY = 86_400_000_000


def row(partition: int, offset: int, outcome: str = "accepted") -> LedgerRow:
    return LedgerRow("clicks", partition, outcome, 1, 0, 0, offset)


def test_behind_counts_what_the_other_has_and_this_has_not() -> None:
    followed = [row(0, 99), row(0, 120, "late"), row(1, 50), row(2, 7)]
    assert behind(followed, followed) == 0
    assert behind([], []) == 0
    assert behind([row(0, 110), row(1, 80)], followed) == 10 + 8  # further in one partition makes up for no other


class Store:
    def __init__(self, staged: int) -> None:
        self._offsets = {"new": staged, "old": 5_000}
        self.kept: int | None = None

    def of(self, view: str) -> Standing:
        return Standing(view, "old", "new", None)

    def waiting_for(self, view: str, build: str) -> str | None:
        return None

    def position(self, view: str, build: str) -> tuple[int, list[LedgerRow]]:
        return 3, [row(0, self._offsets[build])]

    def promote(self, found: Standing, *, keep: int) -> Standing:
        self.kept = keep
        return found


@pytest.mark.parametrize(("staged", "most"), [(5_000, 0), (4_990, 10), (9_000, 0)])
def test_a_build_that_is_as_far_is_promoted(staged: int, most: int) -> None:
    store: Any = Store(staged)
    promote("activity", store, keep=DAY, most_behind=most)
    assert store.kept == DAY


def test_one_that_is_not_is_refused() -> None:
    store: Any = Store(4_989)
    with pytest.raises(RunError, match="11 records behind old"):
        promote("activity", store, keep=DAY, most_behind=10)
    assert store.kept is None
