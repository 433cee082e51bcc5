"""The workers that call a person's handler: threads, or tasks of one event loop for an async handler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from leftfold import clock
from leftfold.consume.lanes import Hand, Lanes, Work

Call = Callable[[Any], Any]  # calls the handler for a Work, or with batches for a list of them
_SMOOTH = 0.2  # weight of the newest call in the pace of a worker


class _Seen(NamedTuple):
    """The record that a worker had in hand, and when it was first seen there."""

    works: list[Work]
    at: int
    since: float


class Threads:
    """Worker threads. A thread whose call takes too long is abandoned, because Python cannot end it."""

    def __init__(self, lanes: Lanes, call: Call, *, number: int, batches: bool, name: str) -> None:
        self.abandoned = 0
        self._lanes = lanes
        self._call = call
        self._batches = batches
        self._name = name
        self._hands = [self._start() for _ in range(number)]
        self._seen: dict[Hand, _Seen] = {}

    def _start(self) -> Hand:
        hand = Hand()
        work = self._handle_batches if self._batches else self._handle_each
        # Daemons: a handler that never returns must not keep the process from ending.
        threading.Thread(target=work, args=(hand,), name=f"leftfold-{self._name}", daemon=True).start()
        return hand

    def _handle_each(self, hand: Hand) -> None:
        pace_s, lanes, call = 1.0, self._lanes, self._call
        while lanes.take(hand, pace_s):
            works, began = hand.works, clock.monotonic()
            error: BaseException | None = None
            try:
                for hand.at, work in enumerate(works):  # a look from another thread reads it
                    if work.part.owned:
                        call(work)
                hand.at = len(works)
            except BaseException as raised:  # noqa: BLE001 # a person's handler may raise anything, sys.exit too
                error = raised
            took = (clock.monotonic() - began) / len(works)
            pace_s = took if pace_s == 1.0 else pace_s + _SMOOTH * (took - pace_s)
            lanes.finish(hand, error)

    def _handle_batches(self, hand: Hand) -> None:
        while self._lanes.take(hand, 1.0):
            error: BaseException | None = None
            try:
                if hand.works[0].part.owned:
                    self._call(hand.works)
                hand.at = len(hand.works)
            except BaseException as raised:  # noqa: BLE001 # a person's handler may raise anything, sys.exit too
                error = raised
            self._lanes.finish(hand, error)

    def watch(self, timeout_s: float) -> None:
        """Abandon threads whose call takes longer than the timeout, and start others in their place.

        A call is seen to go on if two looks find the same record in the same hand. So no call needs a clock.
        """
        now, seen = clock.monotonic(), self._seen
        self._seen = {}
        for index, hand in enumerate(self._hands):
            works, at = hand.works, self._called_for(hand)
            if not works or at is None:
                continue
            before = seen.get(hand)
            if before is None or before.works is not works or before.at != at:
                self._seen[hand] = _Seen(works, at, now)
            elif now - before.since <= timeout_s:
                self._seen[hand] = before
            else:
                self._abandon(hand, works, at, TimeoutError(f"the call took more than {timeout_s:g} s"))
                self.abandoned += 1
                self._hands[index] = self._start()

    def _called_for(self, hand: Hand) -> int | None:
        """Return the index of the record that a handler works on; None if none is called at the moment."""
        return hand.at

    def _abandon(self, hand: Hand, works: list[Work], at: int, error: TimeoutError) -> None:
        self._lanes.abandon(hand, error)

    def close(self) -> None:
        """Nothing to do: threads end when their lanes are closed."""


class Tasks:
    """Tasks of one event loop, which runs in a thread of its own."""

    def __init__(self, lanes: Lanes, call: Call, *, number: int, batches: bool, timeout_s: float, name: str) -> None:
        self.abandoned = 0
        self._lanes = lanes
        self._call = call
        self._batches = batches
        self._timeout_s = timeout_s
        self._idle = [Hand() for _ in range(number)]
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=f"leftfold-{name}", daemon=True).start()
        self._woken = False
        lanes.wake = self._wake

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._woken = False
        while self._idle:
            hand = self._idle.pop()
            if not self._lanes.take(hand, 1.0, wait=False):
                self._idle.append(hand)
                return
            task = self._loop.create_task(self._handle(hand))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, hand: Hand) -> None:
        error: BaseException | None = None
        scope = asyncio.timeout(self._timeout_s)
        try:
            if hand.works[0].part.owned:
                async with scope:
                    await self._call(hand.works if self._batches else hand.works[0])
            hand.at = len(hand.works)
        except BaseException as raised:  # noqa: BLE001 # a person's handler may raise anything, sys.exit too
            error = raised
        if scope.expired():
            error = TimeoutError(f"the call took more than {self._timeout_s:g} s")
            self.abandoned += 1
        self._lanes.finish(hand, error)
        self._idle.append(hand)
        self._hand_out()

    def watch(self, timeout_s: float) -> None:
        """Nothing to do: the event loop cancels a task that takes too long."""

    def close(self) -> None:
        """End the event loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
