"""The merge of a source's partitions, without brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from leftfold.kafka.copy import Lane, merged


@dataclass(frozen=True)
class Record:
    place: int
    number: int
    log_us: int

    def offset(self) -> int:
        return self.number

    def __len__(self) -> int:
        return 10


def lane(partition: int, times: list[int], *, at_end: bool, end: int | None = None) -> Lane:
    made = Lane(partition, 0, end)
    for number, log_us in enumerate(times):
        made.add(log_us, cast(Any, Record(partition, number, log_us)))
    if at_end:
        made.reach(max(len(times), end or 0))
    return made


def merge(*lanes: Lane, most: int = 1_000) -> list[Record]:
    return cast(list[Record], list(merged({made.partition: made for made in lanes}, most)))


def test_the_oldest_comes_first() -> None:
    found = merge(lane(0, [1, 4, 9], at_end=True), lane(1, [2, 3, 10], at_end=True))
    assert [r.log_us for r in found] == [1, 2, 3, 4, 9, 10]


def test_nothing_is_taken_while_a_partition_may_have_something_older() -> None:
    assert merge(lane(0, [1, 2], at_end=True), lane(1, [], at_end=False)) == []


def test_it_stops_when_it_is_no_longer_known_what_comes_next() -> None:
    found = merge(lane(0, [1, 5], at_end=False), lane(1, [2, 3, 9], at_end=True))
    assert [r.log_us for r in found] == [1, 2, 3, 5]


def test_an_end_leaves_out_what_comes_after_and_skips_offsets_without_a_record() -> None:
    cut, short = lane(0, [1, 2, 3], at_end=False, end=2), lane(1, [4], at_end=True, end=7)
    assert [r.log_us for r in merge(cut, short)] == [1, 2, 4]
    assert (cut.position, short.position) == (2, 7)
    assert cut.done
    assert short.done


def test_what_comes_a_second_time_is_left_out() -> None:
    one = lane(0, [1, 2], at_end=False)
    one.add(1, cast(Any, Record(0, 0, 1)))
    one.add(2, cast(Any, Record(0, 1, 2)))
    one.reach(1)  # the end of what was fetched before
    assert not one.at_end
    one.add(3, cast(Any, Record(0, 2, 3)))
    one.reach(5)
    assert (len(one.waiting), one.bytes, one.fetched, one.at_end) == (3, 30, 5, True)
    assert [r.log_us for r in merge(one)] == [1, 2, 3]
    assert (one.position, one.bytes) == (3, 0)


def test_a_log_that_ends_before_the_end_is_waited_for() -> None:
    one = lane(0, [1], at_end=False, end=5)
    one.reach(3)
    assert [r.log_us for r in merge(one)] == [1]
    assert not one.done
    one.reach(6)
    assert one.done


def test_a_slice_is_no_longer_than_asked_for() -> None:
    one = lane(0, [1, 2, 3], at_end=True, end=3)
    assert len(merge(one, most=2)) == 2
    assert (one.position, one.done) == (2, False)


@given(st.lists(st.lists(st.integers(0, 50), max_size=20), min_size=1, max_size=4), st.integers(1, 7))
def test_slices_hold_every_record_once_in_its_partitions_order(times: list[list[int]], most: int) -> None:
    lanes = [lane(p, mine, at_end=True, end=len(mine)) for p, mine in enumerate(times)]
    found: list[Record] = []
    while chunk := merge(*lanes, most=most):
        found += chunk
    for p, mine in enumerate(times):
        assert [(r.number, r.log_us) for r in found if r.place == p] == list(enumerate(mine))
    assert all(made.done for made in lanes)


@given(st.lists(st.lists(st.integers(0, 50), max_size=20).map(sorted), min_size=1, max_size=4), st.integers(1, 7))
def test_partitions_in_order_make_a_copy_in_order(times: list[list[int]], most: int) -> None:
    lanes = [lane(p, mine, at_end=True, end=len(mine)) for p, mine in enumerate(times)]
    found: list[int] = []
    while chunk := merge(*lanes, most=most):
        found += [r.log_us for r in chunk]
    assert found == sorted(found)
