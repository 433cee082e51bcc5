"""Queues between the fetching thread and the workers: order per key, retries in the lane, batches."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from typing import Any

import pytest

from leftfold.consume.lanes import BatchLanes, Hand, Lanes, Work
from leftfold.consume.settled import Committed, Settled
from leftfold.consume.workers import Tasks, Threads

PART = Settled("payments", "id", 0, Committed(0))


def work(lane: str, offset: int) -> Work:
    return Work(PART, offset, lane, f"{lane}{offset}", "accepted", None)


def works(text: str) -> list[Work]:
    return [work(lane, offset) for offset, lane in enumerate(text)]


def taken(lanes: Lanes, pace_s: float = 1.0) -> Hand | None:
    hand = Hand()
    return hand if lanes.take(hand, pace_s, wait=False) else None


def handled(lanes: Lanes, hand: Hand | None) -> None:
    """Report that all records in a hand are handled."""
    assert hand is not None
    hand.at = len(hand.works)
    lanes.finish(hand)


def done(lanes: Lanes) -> list[Any]:
    return [work.event for works in lanes.done for work in works]


def events(hand: Hand | None) -> list[Any]:
    assert hand is not None
    return [work.event for work in hand.works]


def test_a_lane_is_in_one_hand() -> None:
    lanes = Lanes()
    lanes.put(works("aab"))
    first, second = taken(lanes), taken(lanes)
    assert first is not None
    assert (events(first), events(second)) == (["a0"], ["b2"])
    assert taken(lanes) is None
    first.at = 1
    lanes.finish(first)
    assert events(taken(lanes)) == ["a1"]


def test_a_fast_worker_takes_many() -> None:
    lanes = Lanes()
    lanes.put(works("abab"))
    assert events(taken(lanes, 1e-6)) == ["a0", "a2", "b1", "b3"]


def test_a_failure_holds_its_lane_only() -> None:
    lanes = Lanes()
    lanes.put(works("abab"))
    hand = taken(lanes, 1e-6)
    assert hand is not None
    hand.at = 0
    lanes.finish(hand, ValueError("no"))
    ((failed, error),) = lanes.failed
    assert [w.event for w in failed] == ["a0"]
    assert isinstance(error, ValueError)
    rest = taken(lanes, 1e-6)
    assert events(rest) == ["b1", "b3"], "the records behind it in the hand went back"
    lanes.again(failed)
    assert events(taken(lanes, 1e-6)) == ["a0", "a2"]


def test_giving_up_frees_the_lane() -> None:
    lanes = Lanes()
    lanes.put(works("aa"))
    hand = taken(lanes)
    assert hand is not None
    lanes.finish(hand, ValueError())
    assert taken(lanes) is None
    lanes.let_go(lanes.failed.popleft()[0])
    assert events(taken(lanes)) == ["a1"]


def test_without_an_order_nothing_waits() -> None:
    """Each record has a lane of its own then."""
    lanes = Lanes()
    lanes.put(works("abc"))
    assert [events(taken(lanes)) for _ in range(3)] == [["a0"], ["b1"], ["c2"]]


def test_a_probe_is_not_halted() -> None:
    lanes = Lanes()
    lanes.put(works("ab"))
    hand = taken(lanes)
    assert hand is not None
    lanes.finish(hand, ValueError())
    lanes.halt(True)
    assert taken(lanes) is None
    lanes.again(lanes.failed.popleft()[0], probe=True)
    assert events(taken(lanes)) == ["a0"]
    assert taken(lanes) is None
    lanes.halt(False)
    assert events(taken(lanes)) == ["b1"]


def test_batches_fill_or_wait() -> None:
    lanes = BatchLanes(3, 0.05)
    lanes.put(works("pppp"))
    hand = taken(lanes)
    assert events(hand) == ["p0", "p1", "p2"]
    handled(lanes, hand)
    assert done(lanes) == ["p0", "p1", "p2"]
    assert taken(lanes) is None, "one record waits for others"
    time.sleep(0.06)
    lanes.tick()
    assert events(taken(lanes)) == ["p3"]


def test_a_batch_that_failed_is_taken_apart() -> None:
    lanes = BatchLanes(3, 60)
    lanes.put(works("pppp"))
    hand = taken(lanes)
    assert hand is not None
    lanes.finish(hand, ValueError())
    failed, _ = lanes.failed.popleft()
    assert [w.event for w in failed] == ["p0", "p1", "p2"]
    for one in failed:
        one.alone = True
    lanes.again(failed)
    for expected in ("p0", "p1", "p2"):
        hand = taken(lanes)
        assert events(hand) == [expected]
        handled(lanes, hand)


def test_a_slice_of_one_lane_may_fail_in_the_middle() -> None:
    lanes = BatchLanes(3, 0.0, whole=False)
    lanes.put(works("aaaab"))
    hand = taken(lanes)
    assert events(hand) == ["a0", "a1", "a2"], "of one lane, and at once"
    assert hand is not None
    hand.at = 1
    lanes.finish(hand, ValueError("the second"))
    assert done(lanes) == ["a0"]
    (failed, _) = lanes.failed.popleft()
    assert [one.event for one in failed] == ["a1"]
    assert events(taken(lanes)) == ["b4"]
    assert taken(lanes) is None, "what is behind it waits"
    lanes.again(failed)
    hand = taken(lanes)
    assert events(hand) == ["a1", "a2", "a3"]
    assert hand is not None
    hand.at = 2
    lanes.finish(hand)
    assert events(taken(lanes)) == ["a3"], "what was not done goes back"


def test_drop_leaves_what_is_in_a_hand() -> None:
    lanes = Lanes()
    lanes.put(works("aabb"))
    hand = taken(lanes)
    assert len(lanes.drop(lambda _: True)) == 3
    assert lanes.has(lambda _: True)
    assert taken(lanes) is None
    assert hand is not None
    hand.at = 1
    lanes.finish(hand)
    assert not lanes.has(lambda _: True)
    lanes.put(works("a"))
    assert events(taken(lanes)) == ["a0"], "the lane was not forgotten as busy"


def test_an_abandoned_worker_is_not_heard() -> None:
    lanes = Lanes()
    lanes.put(works("aab"))
    hand = taken(lanes, 1e-6)
    assert hand is not None
    hand.at = 1  # the first is handled, the second hangs
    lanes.abandon(hand, TimeoutError())
    assert done(lanes) == ["a0"]
    ((failed, _),) = lanes.failed
    assert [w.event for w in failed] == ["a1"]
    assert events(taken(lanes)) == ["b2"]
    hand.at = 3
    lanes.finish(hand)
    assert len(done(lanes)) == 1


@pytest.mark.parametrize("number", [1, 8])
def test_threads_keep_the_order_of_a_key(number: int) -> None:
    lanes, rnd = Lanes(), random.Random(7)
    seen: dict[Any, list[int]] = defaultdict(list)
    running: set[Any] = set()
    overlaps: list[Any] = []

    def call(one: Work) -> None:
        if one.lane in running:
            overlaps.append(one.lane)
        running.add(one.lane)
        if rnd.random() < 0.05:
            time.sleep(0.001)
        running.discard(one.lane)
        if one.offset % 50 == 0 and one.failures == 0:
            one.failures = 1
            raise ValueError
        seen[one.lane].append(one.offset)

    Threads(lanes, call, number=number, batches=False, name="t")
    total = 4_000
    for start in range(0, total, 100):
        lanes.put([work(rnd.choice("abcdefghij"), offset) for offset in range(start, start + 100)])
    done, deadline = 0, time.monotonic() + 30
    while done < total and time.monotonic() < deadline:
        lanes.wait(0.05)
        while lanes.failed:
            lanes.again(lanes.failed.popleft()[0])
        while lanes.done:
            done += len(lanes.done.popleft())
    lanes.close()
    assert done == total
    assert not overlaps
    assert all(offsets == sorted(offsets) for offsets in seen.values())


def test_a_thread_that_hangs_is_replaced() -> None:
    lanes, hang, handled = Lanes(), threading.Event(), threading.Event()

    def call(one: Work) -> None:
        if one.lane == "a":
            hang.wait(30)
        else:
            handled.set()

    threads = Threads(lanes, call, number=1, batches=False, name="t")
    lanes.put(works("a"))
    deadline = time.monotonic() + 10
    while not lanes.failed and time.monotonic() < deadline:
        threads.watch(0.05)
        time.sleep(0.01)
    assert isinstance(lanes.failed[0][1], TimeoutError)
    assert threads.abandoned == 1
    lanes.put([work("b", 1)])
    assert handled.wait(10)
    hang.set()
    lanes.close()


def test_tasks_of_one_loop() -> None:
    import asyncio

    lanes, running, most = Lanes(), [0], [0]
    seen: dict[Any, list[int]] = defaultdict(list)

    async def call(one: Work) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.001)
        running[0] -= 1
        seen[one.lane].append(one.offset)
        if one.offset == 13:
            await asyncio.sleep(30)

    Tasks(lanes, call, number=4, batches=False, timeout_s=0.5, name="t")
    lanes.put(works("abcdefgh" * 50))
    deadline = time.monotonic() + 30
    while len(done(lanes)) + len(lanes.failed) < 400 - 48 and time.monotonic() < deadline:
        lanes.wait(0.05)
    lanes.close()
    assert most[0] == 4
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    ((failed, error),) = lanes.failed
    assert (failed[0].offset, type(error)) == (13, TimeoutError)
