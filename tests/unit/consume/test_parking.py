"""Parked keys: what becomes of later records of a key, before, during and after a re-drive."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from leftfold.consume.lanes import Work
from leftfold.consume.parking import Parking
from leftfold.consume.settled import Committed, Settled
from leftfold.kafka.dead_letters import RecordPlace

PART = Settled("orders", "id", 0, Committed(0))
KEY = b"c1"


def place(offset: int) -> RecordPlace:
    return RecordPlace("orders", 0, offset)


class Letters:
    """Dead letters that are followed; the log tells `tell` what it has."""

    def __init__(self) -> None:
        self.open: dict[bytes, set[RecordPlace]] = {}
        self.redriven: deque[tuple[bytes, RecordPlace]] = deque()
        self._told: list[RecordPlace] = []

    def add(self, key: bytes, place: RecordPlace) -> None:
        self.open.setdefault(key, set()).add(place)

    def removed(self, *offsets: int) -> None:
        self._told += [place(offset) for offset in offsets]

    def look(self) -> None:
        for one in self._told:
            self.open[KEY].discard(one)
            self.redriven.append((KEY, one))
        self._told.clear()
        if not self.open.get(KEY, True):
            del self.open[KEY]

    def catch_up(self) -> None:
        self.look()


class Parked:
    """A consumer whose record 1 of the key has failed."""

    def __init__(self, *, most: int = 10) -> None:
        self.letters, self.parked = Letters(), list[int]()
        followed: Any = self.letters
        self.parking = Parking(followed, self._park, most=most)
        self.parking.failed(KEY, place(1))

    def _park(self, work: Work) -> RecordPlace:
        self.parked.append(work.offset)
        return place(work.offset)

    def goes_on(self, offset: int, key: bytes = KEY) -> bool:
        message = SimpleNamespace(key=lambda: key)
        return self.parking.may_go_on(Work(PART, offset, key, None, "accepted", message))

    def came_back(self, offset: int) -> list[int]:
        return [work.offset for work in self.parking.came_back(KEY, place(offset))]

    def look(self) -> list[int]:
        return [work.offset for work in self.parking.look()]


def test_later_records_of_the_key_are_parked() -> None:
    one = Parked()
    assert not one.goes_on(2)
    assert one.goes_on(3, b"other")
    assert one.parked == [2]


def test_later_records_follow_those_that_come_back() -> None:
    one = Parked()
    one.goes_on(2)
    one.letters.removed(1, 2)
    assert one.look() == []
    assert not one.goes_on(4), "1 and 2 are on their way"
    assert one.parked == [2]
    assert one.came_back(1) == []
    assert one.came_back(2) == [4]
    assert one.goes_on(5)


def test_a_record_that_comes_back_before_its_letter_is_seen_to_be_removed() -> None:
    one = Parked()
    assert one.came_back(1) == []
    assert not one.goes_on(4), "the letter is there, as far as is known"
    assert one.parked == [4]
    one.letters.removed(1)
    one.look()
    assert not one.goes_on(5)
    one.letters.removed(4, 5)
    one.look()
    assert one.came_back(4) == []
    assert one.came_back(5) == []
    assert one.goes_on(6), "nothing of the key is to come any more"


def test_a_record_that_fails_again_parks_those_that_wait() -> None:
    one = Parked()
    one.goes_on(2)
    one.letters.removed(1, 2)
    one.look()
    one.goes_on(4)
    one.came_back(1)
    one.parking.failed(KEY, place(1))
    assert one.came_back(2) == [], "4 does not pass 1"
    assert one.look() == []
    assert one.parked == [2, 4]


def test_no_more_wait_than_there_is_room_for() -> None:
    one = Parked(most=2)
    one.letters.removed(1)
    one.look()
    for offset in (2, 3, 4):
        assert not one.goes_on(offset)
    assert one.parked == [4]
    assert one.look() == []
    assert one.parked == [4, 2, 3], "a key is parked as a whole"


def test_a_new_assignment_begins_with_what_is_to_come() -> None:
    one = Parked()
    one.letters.removed(1)
    one.parking.begin([(KEY, place(1))])
    assert not one.goes_on(2)
    assert one.parked == []
    assert one.came_back(1) == [2]


def test_records_of_lost_partitions_are_forgotten() -> None:
    one = Parked()
    one.letters.removed(1)
    one.look()
    one.goes_on(2)
    PART.owned = False
    try:
        assert [work.offset for work in one.parking.drop_lost()] == [2]
    finally:
        PART.owned = True
    assert one.came_back(1) == []
