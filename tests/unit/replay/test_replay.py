"""From moments to offsets, with the brokers' answers written down by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from leftfold.offsets import Range, Ranges
from leftfold.replay.replay import as_offsets, frozen


def admin(at: dict[int, dict[int, int | None]]) -> Any:
    return SimpleNamespace(
        start_offsets=lambda *_: {0: 10, 1: 0, 2: 5},
        stable_offsets=lambda *_: {0: 50, 1: 20, 2: 5},
        offsets_at=lambda _topic, _partitions, moment: at[moment],
    )


def test_all_there_is() -> None:
    found = frozen(admin({}), "t", 3)
    assert found.ranges == Ranges.of([Range("t", 0, 10, 50), Range("t", 1, 0, 20)])
    assert (found.starts[2], found.ends[2]) == (5, 5)


def test_between_two_moments() -> None:
    """The brokers may know of a record that no transaction has ended for, and of one that retention has taken since."""
    found = frozen(admin({1: {0: 3, 1: 4, 2: None}, 9: {0: 60, 1: 8, 2: None}}), "t", 3, start=1, end=9)
    assert found.ranges == Ranges.of([Range("t", 0, 10, 50), Range("t", 1, 4, 8)])


def test_after_everything() -> None:
    found = frozen(admin({1: dict.fromkeys(range(3))}), "t", 3, start=1)
    assert found.ranges == Ranges()
    assert found.starts == {0: 50, 1: 20, 2: 5}


def test_every_partition_is_named_to_a_read() -> None:
    starts, ends = as_offsets(Ranges.of([Range("t", 1, 4, 8)]), "t", 3)
    assert starts == {"t": {0: 0, 1: 4, 2: 0}}
    assert ends == {"t": {0: 0, 1: 8, 2: 0}}
