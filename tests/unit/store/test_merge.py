"""The rule of the fence, without a store. tests/engine/test_store.py compares it with the one that Redis runs."""

from __future__ import annotations

from itertools import permutations

import pytest

from leftfold.store.merge import DELETED_S, merged

Row = dict[bytes, bytes]


def tiles(**fields: str) -> list[bytes]:
    return [part for name, value in fields.items() for part in (name.encode(), value.encode())]


def test_the_order_of_writers_does_not_matter() -> None:
    """Of one slot the highest index stays, and of that the newest batch."""
    writes = [tiles(s=value) for value in ("[1,9,10]", "[2,3,20]", "[2,4,21]", "[1,5,11]")]
    for order in permutations(writes):
        row: Row = {}
        for write in order:
            row = merged(row, write, 60, repairs=False).row
        assert row == {b"s": b"[2,4,21]"}


@pytest.mark.parametrize(("older", "newer"), [(2**53, 2**53 + 1), (-(2**63), -(2**63) + 1), (-10, -9), (9, 10)])
def test_positions_are_whole_numbers(older: int, newer: int) -> None:
    held = {b"row": b"[%d,1,1]" % newer}
    assert not merged(held, tiles(row=f"[{older},2,0]"), 60, repairs=False).is_changed


def test_what_is_written_again_counts_and_changes_nothing() -> None:
    held = {b"s": b"[1,4,10]"}
    again = merged(held, tiles(s="[1,4,10]"), 60, repairs=False)
    assert (again.written, again.is_changed) == (1, False)


def test_a_late_row_of_an_older_batch_than_what_was_packed() -> None:
    held = {b"packed": b"...", b"packed_batch": b"6:00000000", b"s": b"[3,6,1]"}
    late = tiles(s="[4,5,1]", t="[9,5,1]")
    refused = merged(held, late, 60, repairs=False)
    assert (refused.row, refused.written, refused.is_changed) == (held, 0, False)
    repaired = merged(held, late, 60, repairs=True)
    assert repaired.row == {b"s": b"[4,5,1]", b"t": b"[9,5,1]"}
    assert merged(held, tiles(s="[4,6,1]"), 60, repairs=False).row[b"packed"] == b"..."


def test_only_a_deleted_row_goes_after_a_day() -> None:
    assert merged({}, tiles(row="[9,5]"), 0, repairs=False).ttl_s == DELETED_S
    assert merged({}, tiles(row='[9,5,"books"]'), 0, repairs=False).ttl_s == 0
    assert merged({}, tiles(a="[9,5]", b="[9,5]"), 60, repairs=False).ttl_s == 60
