"""Decisions about records that fail: an outage of what the handler calls, or records that are bad by themselves."""

from __future__ import annotations

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
        )

    def take(self, *offsets: int) -> None:
        self.lanes.put([Work(PART, n, f"key {n}", None, "accepted", None) for n in offsets])

    def turn(self, bad: range) -> list[int]:
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
