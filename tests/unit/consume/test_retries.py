"""Decisions about records that fail: an outage of what the handler calls, or records that are bad by themselves."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from typing import Any

import leftfold as lf
from leftfold import clock
from leftfold.consume.lanes import Hand, Lanes, Work
from leftfold.consume.progress import ConsumerProgress
from leftfold.consume.retries import Retries
from leftfold.consume.settled import Committed, Settled


class Click(lf.Event):
    user_id: str
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)
PART = Settled("clicks", "id", 0, Committed(0))


@lf.consumer(clicks, start="beginning", name="notify", retry=lf.Retry(attempts=4, first="1ms", most="1ms"))
def notify(click: Click) -> None: ...


class Notified:
    """A consumer whose handler fails for some records."""

    def __init__(self) -> None:
        self.lanes, self.dead = Lanes(), list[int]()
        self.retries = Retries(
            notify,
            self.lanes,
            ConsumerProgress("notify"),
            bury=lambda work, _, __: self.dead.append(work.offset),
            forget=lambda _: None,
            has_all=lambda: self.has_all,
        )
        self.has_all = False

    def take(self, *offsets: int) -> None:
        self.lanes.put([Work(PART, n, f"key {n}", None, "accepted", None) for n in offsets])

    def take_of(self, key: str, *offsets: int) -> None:
        self.lanes.put([Work(PART, n, key, None, "accepted", None) for n in offsets])

    def turn(self, bad: Container[int]) -> list[int]:
        """Handle what is handed over, and return its offsets."""
        handled: list[int] = []
        hand = Hand()
        while self.lanes.take(hand, 1.0, wait=False):
            (work,) = hand.works
            handled.append(work.offset)
            hand.at = 0 if work.offset in bad else 1
            self.lanes.finish(hand, ValueError("no") if work.offset in bad else None)
            while self.lanes.done:
                self.retries.handled(len(self.lanes.done.popleft()))
            while self.lanes.failed:
                self.retries.failed(*self.lanes.failed.popleft())
        return handled

    def turns(self, seconds: float, bad: Container[int]) -> list[int]:
        """Handle what is handed over during some time, and return the offsets of what did not fail."""
        handled: list[int] = []
        deadline = clock.monotonic() + seconds
        while clock.monotonic() < deadline:
            self.retries.hand_over_due()
            handled += [n for n in self.turn(bad) if n not in bad]
        return handled

    def until_outage(self, bad: range) -> None:
        deadline = clock.monotonic() + 10
        while not self.retries.is_outage:
            assert clock.monotonic() < deadline, "no outage"
            self.turn(bad)
            self.retries.hand_over_due()

    def try_one(self, bad: range) -> list[int]:
        self.retries._breaker.next_try = clock.monotonic()
        self.retries.hand_over_due()
        return self.turn(bad)


def test_bad_records_are_told_from_an_outage_by_a_new_one() -> None:
    one = Notified()
    one.take(*range(6))
    one.until_outage(range(6))
    assert one.dead == [], "it may be an outage"
    one.take(6)
    tried: list[Any] = [one.try_one(range(6)) for _ in range(2)]
    assert [6] in [handled[:1] for handled in tried], "one that has not failed is tried, too"
    assert not one.retries.is_outage
    deadline = clock.monotonic() + 10
    while len(one.dead) < 6:
        assert clock.monotonic() < deadline, one.dead
        one.retries.hand_over_due()
        one.turn(range(6))
    assert sorted(one.dead) == list(range(6))


def test_the_first_new_record_is_tried_at_once() -> None:
    """Six keys with a bad record each are no outage, and nobody is to wait a second for that to show."""
    one = Notified()
    one.take(*range(6))
    one.until_outage(range(6))
    one.retries.hand_over_due()
    assert one.turn(range(6)) == [], "all that is there has failed"
    assert one.retries.lacks_new
    one.take(6, 7)
    assert not one.retries.lacks_new
    one.retries.hand_over_due()
    assert one.turn(range(6))[0] == 6
    assert not one.retries.is_outage


def test_in_an_outage_one_new_record_is_tried_at_once() -> None:
    one = Notified()
    one.take(*range(6))
    one.until_outage(range(100))
    one.take(*range(6, 12))
    tried: list[int] = []
    for _ in range(100):
        one.retries.hand_over_due()
        tried += one.turn(range(100))
    assert tried == [6]


def test_an_outage_writes_no_dead_letter() -> None:
    one = Notified()
    one.take(*range(8))
    one.until_outage(range(100))
    one.take(8, 9)
    for _ in range(50):
        one.try_one(range(100))
    assert one.dead == []
    assert one.retries.is_outage


def test_keys_with_a_bad_record_each_do_not_wait_for_each_other_for_ever() -> None:
    """Nothing else is in the log, so nothing can show that the handler works but what waits behind a bad record."""
    one = Notified()
    one.take_of("a", *range(0, 10))
    one.take_of("b", *range(10, 20))
    bad = {0, 10}
    assert one.turns(0.2, bad) == [], "another record may come and show it"
    one.has_all = True
    assert sorted(one.turns(0.5, bad)) == [n for n in range(20) if n not in bad]
    assert sorted(one.dead) == [0, 10]


def test_in_an_outage_of_few_keys_few_records_are_given_up() -> None:
    one = Notified()
    one.has_all = True
    one.take_of("a", *range(0, 10))
    one.take_of("b", *range(10, 20))
    one.turns(0.5, range(20))
    assert len(one.dead) == 1, "one to see whether the next of its key is handled; it is not"
    one.turns(1.0, range(20))
    assert len(one.dead) == 2


def test_records_that_failed_before_others_were_handled_are_no_outage() -> None:
    """The results of several calls are collected at once: what succeeded later shows that the handler works."""
    one = Notified()
    one.take(*range(8))
    bad, hand = range(0, 8, 2), Hand()
    for _ in range(8):
        assert one.lanes.take(hand, 1.0, wait=False)
        (work,) = hand.works
        hand.at = 0 if work.offset in bad else 1
        one.lanes.finish(hand, ValueError("no") if work.offset in bad else None)
    while one.lanes.done:
        one.retries.handled(len(one.lanes.done.popleft()))
    while one.lanes.failed:
        one.retries.failed(*one.lanes.failed.popleft())
    assert not one.retries.lacks_new
    one.turns(0.2, bad)
    assert sorted(one.dead) == list(bad)
