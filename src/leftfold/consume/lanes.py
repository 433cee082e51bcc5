"""The queues between the thread that fetches records and the workers that handle them.

Records of a key form a lane. One worker at a time has a lane in hand, so the order of a key is kept while many keys are
handled at once. A record that failed stays at the head of its lane; the lane waits, and all others go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from leftfold import clock
from leftfold.consume.settled import Settled
from leftfold.kafka.transactions import Outgoing

# How many records of slow and fast handlers a worker takes at once: as many as it handles in about this time.
_AT_ONCE_S = 0.002
_MOST_AT_ONCE = 256


class Work:
    """One record in flight: its event, its place, and how often it failed."""

    __slots__ = (
        *("alone", "by_broker", "event", "failing_since", "failures"),
        *("lane", "log_us", "message", "offset", "outcome", "output", "part"),
    )

    def __init__(self, part: Settled, offset: int, lane: Hashable, event: Any, outcome: str, message: Any) -> None:
        self.part = part
        self.offset = offset
        self.lane = lane
        self.event = event  # None if the record is no event
        self.outcome = outcome
        self.message = message  # as it was fetched
        self.log_us = 0
        self.by_broker = True  # whether `log_us` was set by a broker
        self.failures = 0
        self.failing_since = 0.0  # on the monotonic clock; 0 while it has not failed
        self.output: list[Outgoing] = []  # the events that the handler returned, encoded
        self.alone = False  # not in a batch with others: the batch that it was in has failed


@dataclass(eq=False)
class Hand:
    """The records that one worker has in hand. `at` is the index of the record that its handler works on."""

    works: list[Work] = field(default_factory=list)
    at: int = 0
    began: float = 0.0  # when the present call began; 0 between two calls
    abandoned: bool = False


class Lanes:
    """All records that were taken and not settled, by lane. Every method may be called by any thread.

    `done` gets the works that were handled, `failed` works and their error; both are read by one thread only, which
    is woken when `report_at` works are handled.
    """

    def __init__(
        self,
        *,
        exclusive: bool,
        batch: int | None = None,
        whole: bool = True,
        within_s: float = 0.0,
        report_at: int = 1,
    ) -> None:
        self.done: deque[Work] = deque()
        self.failed: deque[tuple[list[Work], BaseException]] = deque()
        self.wake: Callable[[], None] = lambda: None  # called when a worker without a thread may have work
        self._exclusive = exclusive
        self._batch = batch
        self._whole = batch is not None and whole  # a batch succeeds or fails as a whole
        self._within_s = within_s
        self._report_at = report_at
        self._lock = threading.Condition()
        # Records that wait, by lane. A lane that is here and does not fill is ready, in a worker's hands, or failing.
        self._lanes: dict[Hashable, deque[Work]] = {}
        self._filling: dict[Hashable, float] = {}  # lanes that wait for a batch to fill, and since when
        self._ready: deque[Hashable] = deque()
        self._loose: deque[Work] = deque()  # records without an order
        self._probes: deque[list[Work]] = deque()  # handed over even while everything else is halted
        self._failing: set[Hashable] = set()  # lanes whose first record failed and was not handed over again
        self._hands: set[Hand] = set()  # those that hold records
        self._finished = threading.Event()
        self._closed = False
        self._halted = False

    def put(self, works: Iterable[Work]) -> None:
        """Add records in the order of their offsets."""
        with self._lock:
            if not self._exclusive:
                self._loose.extend(works)
            elif self._batch is not None:
                self._fill(works)
            else:
                lanes, ready = self._lanes, self._ready
                for work in works:
                    if (waiting := lanes.get(work.lane)) is not None:
                        waiting.append(work)
                    else:
                        lanes[work.lane] = deque((work,))
                        ready.append(work.lane)
            self._notify()

    def _fill(self, works: Iterable[Work]) -> None:
        now = clock.monotonic()
        for work in works:
            if (waiting := self._lanes.get(work.lane)) is not None:
                waiting.append(work)
            else:
                self._lanes[work.lane] = deque((work,))
                self._filling[work.lane] = now
        self._hand_over_full()

    def _hand_over_full(self) -> None:
        """Make lanes ready whose batch is full, or has waited long enough."""
        for name in [name for name in self._filling if self._is_due(name)]:
            del self._filling[name]
            self._ready.append(name)

    def _is_due(self, name: Hashable) -> bool:
        waiting, now = self._lanes[name], clock.monotonic()
        full = self._batch is None or len(waiting) >= self._batch or waiting[0].alone
        return full or now - self._filling.get(name, now) >= self._within_s

    def tick(self) -> None:
        """Hand over batches that are not full and have waited long enough. Called from time to time."""
        if self._batch is not None:
            with self._lock:
                self._hand_over_full()
                self._notify()

    def _notify(self) -> None:
        """Wake as many workers as there are lanes for: waking all of them would cost more than most handlers."""
        if self._has_work():
            self._lock.notify(len(self._ready) + len(self._loose) + len(self._probes))
            self.wake()

    def _has_work(self) -> bool:
        return bool(self._probes) or (not self._halted and bool(self._ready or self._loose))

    def take(self, hand: Hand, pace_s: float, *, wait: bool = True) -> bool:
        """Put the next records into a worker's hand. Returns False if it is to end, or if nothing is there.

        `pace_s` is the time that the worker needs for one record. `wait=False` does not wait for records.
        """
        with self._lock:
            while not self._closed and not hand.abandoned:
                if self._has_work():
                    hand.works, hand.at = self._next(pace_s), 0
                    self._hands.add(hand)
                    return True
                if not wait:
                    return False
                self._lock.wait()
            return False

    def _next(self, pace_s: float) -> list[Work]:
        if self._probes:
            return self._probes.popleft()
        if self._batch is not None:
            return self._next_batch(self._lanes[self._ready.popleft()], self._batch)
        most = max(1, min(_MOST_AT_ONCE, int(_AT_ONCE_S / max(pace_s, 1e-6))))
        if self._loose:
            return [self._loose.popleft() for _ in range(min(most, len(self._loose)))]
        works: list[Work] = []
        while self._ready and len(works) < most:
            waiting = self._lanes[self._ready.popleft()]
            works.extend(waiting.popleft() for _ in range(min(most - len(works), len(waiting))))
        return works

    @staticmethod
    def _next_batch(waiting: deque[Work], most: int) -> list[Work]:
        works = [waiting.popleft()]
        while waiting and len(works) < most and not (works[0].alone or waiting[0].alone):
            works.append(waiting.popleft())
        return works

    def finish(self, hand: Hand, error: BaseException | None = None) -> None:
        """Report what a worker did: works before `hand.at` are handled; with an error, the work there failed.

        A batch that is one call succeeds or fails as a whole. What a worker has left goes back.
        """
        with self._lock:
            if not hand.abandoned:
                self._finish(hand, error)

    def abandon(self, hand: Hand, error: BaseException) -> None:
        """Give up a worker whose call takes too long. What it reports later is ignored."""
        with self._lock:
            if hand.works and not hand.abandoned:
                hand.abandoned = True
                self._finish(hand, error)
            hand.abandoned = True

    def _finish(self, hand: Hand, error: BaseException | None) -> None:
        self._hands.discard(hand)
        works, at = hand.works, hand.at
        hand.works, hand.at, hand.began = [], 0, 0.0
        if self._whole and error is None:
            at = len(works)
        failed = [] if error is None else works if self._whole else [works[at]]
        self.done.extend(works[:at])
        if error is not None:
            self.failed.append((failed, error))
        left = works[at + len(failed) :]
        if self._exclusive:
            for work in reversed(left):
                self._lanes[work.lane].appendleft(work)
            self._failing.update(work.lane for work in failed)
            for name in dict.fromkeys(work.lane for work in works):
                if name not in self._failing:
                    self._release(name)
        else:
            self._loose.extendleft(reversed(left))
        if len(self.done) >= self._report_at or self.failed or not (self._hands or self._has_work()):
            self._finished.set()
        self._notify()

    def wait(self, seconds: float) -> None:
        """Wait until workers have handled many records, or all that they have, or one failed; at most so long."""
        self._finished.wait(seconds)
        self._finished.clear()

    def _release(self, name: Hashable) -> None:
        """Make a lane ready again that is no longer in a worker's hands, or forget it if it is empty."""
        if not self._lanes[name]:
            del self._lanes[name]
        elif self._is_due(name):
            self._ready.append(name)
        else:
            self._filling[name] = clock.monotonic()

    def again(self, works: list[Work], *, probe: bool = False) -> None:
        """Hand failed records over again: they are the next of their lane. A probe is not halted."""
        with self._lock:
            self._failing.discard(works[0].lane)
            if probe:
                self._probes.append(works)
            elif not self._exclusive:
                self._loose.extend(works)
            else:
                self._lanes[works[0].lane].extendleft(reversed(works))
                self._ready.append(works[0].lane)
            self._notify()

    def let_go(self, works: list[Work]) -> None:
        """Free the lane of failed records that are settled in another way."""
        with self._lock:
            self._failing.discard(works[0].lane)
            if self._exclusive:
                self._release(works[0].lane)
            self._notify()

    def drop(self, gone: Callable[[Work], bool]) -> list[Work]:
        """Remove records that wait, and return them. Those in a worker's hands stay there."""
        with self._lock:
            dropped = [work for queue in (self._loose, *self._lanes.values()) for work in queue if gone(work)]
            if not dropped:
                return []
            self._loose = deque(work for work in self._loose if not gone(work))
            for name, waiting in self._lanes.items():
                self._lanes[name] = deque(work for work in waiting if not gone(work))
            in_use = {work.lane for hand in self._hands for work in hand.works} | self._failing
            in_use.update(work.lane for works in self._probes for work in works)
            for name in [name for name, waiting in self._lanes.items() if not waiting and name not in in_use]:
                del self._lanes[name]
                self._filling.pop(name, None)
            self._ready = deque(name for name in self._ready if self._lanes.get(name))
            return dropped

    def has(self, wanted: Callable[[Work], bool]) -> bool:
        """Return whether a record waits, or is in a worker's hands."""
        with self._lock:
            queues = [self._loose, *self._lanes.values(), *(hand.works for hand in self._hands), *self._probes]
            return any(wanted(work) for queue in queues for work in queue)

    def behind(self, lane: Hashable, most: int) -> list[Work]:
        """Return the first records that wait in a lane, without taking them."""
        with self._lock:
            return list(islice(self._lanes.get(lane, ()), most))

    def halt(self, halted: bool) -> None:
        """Hand nothing over until it is called again with False."""
        with self._lock:
            self._halted = halted
            self._notify()

    def close(self) -> None:
        """End all workers after what they have in hand."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
            self.wake()
