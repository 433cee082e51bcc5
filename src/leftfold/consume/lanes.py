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
        *("alone", "event", "failed_at", "failing_since", "failures", "lane"),
        *("message", "offset", "outcome", "output", "part"),
    )

    def __init__(self, part: Settled, offset: int, lane: Hashable, event: Any, outcome: str, message: Any) -> None:
        self.part = part
        self.offset = offset
        self.lane = lane
        self.event = event  # None if the record is no event
        self.outcome = outcome
        self.message = message  # as it was fetched
        self.failures = 0
        self.failed_at = 0.0  # when its last call failed, on the monotonic clock
        self.failing_since = 0.0  # when its first call failed; 0 while it has not failed
        self.output: list[Outgoing] | None = None  # the events that the handler returned, encoded
        self.alone = False  # not in a batch with others: the batch that it was in has failed


@dataclass(eq=False)
class Hand:
    """The records that one worker has in hand. `at` is the index of the record that its handler works on."""

    works: list[Work] = field(default_factory=list)
    at: int = 0
    abandoned: bool = False


class Lanes:
    """All records that were taken and not settled, by lane. Every method may be called by any thread.

    `done` gets lists of works that were handled, `failed` works and their error; both are read by one thread only,
    which is woken when `report_at` works are handled. `last_done` is when the last of them was handled.
    """

    def __init__(self, *, report_at: int = 1) -> None:
        self.done: deque[list[Work]] = deque()
        self.last_done = float("-inf")
        self.failed: deque[tuple[list[Work], BaseException]] = deque()
        self.wake: Callable[[], None] = lambda: None  # called when a worker without a thread may have work
        self._report_at = report_at
        self._unreported = 0  # works that were handled since the reading thread was woken
        self._lock = threading.Condition()
        self._ready: deque[Work] = deque()  # the first record of each lane that a worker may take
        # Lanes with a record that is ready, in a worker's hands, or failing; and the records that wait behind it.
        self._lanes: dict[Hashable, deque[Work] | None] = {}
        self._probes: deque[list[Work]] = deque()  # handed over even while everything else is halted
        self._failing: set[Hashable] = set()  # lanes whose first record failed and was not handed over again
        self._hands: set[Hand] = set()  # those that hold records
        self._finished = threading.Event()
        self._closed = False
        self._halted = False

    def put(self, works: Iterable[Work]) -> None:
        """Add records in the order of their offsets."""
        with self._lock:
            lanes, ready = self._lanes, self._ready
            for work in works:
                lane = work.lane
                if lane not in lanes:
                    lanes[lane] = None
                    ready.append(work)
                elif (waiting := lanes[lane]) is not None:
                    waiting.append(work)
                else:
                    lanes[lane] = deque((work,))
            self._notify()

    def tick(self) -> None:
        """Hand over what has waited long enough. Called from time to time."""

    def hurry(self) -> None:
        """Hand over what waits for more records: no more will be fetched before these are handled."""

    def _notify(self) -> None:
        """Wake as many workers as there are lanes for: waking all of them would cost more than most handlers."""
        if self._has_work():
            self._lock.notify(len(self._ready) + len(self._probes))
            self.wake()

    def _has_work(self) -> bool:
        return bool(self._probes) or (not self._halted and bool(self._ready))

    def take(self, hand: Hand, pace_s: float, *, wait: bool = True) -> bool:
        """Put the next records into a worker's hand. Returns False if it is to end, or if nothing is there.

        `pace_s` is the time that the worker needs for one record. `wait=False` does not wait for records.
        """
        with self._lock:
            while not self._closed and not hand.abandoned:
                if self._has_work():
                    hand.at, hand.works = 0, self._probes.popleft() if self._probes else self._next(pace_s)
                    self._hands.add(hand)
                    return True
                if not wait:
                    return False
                self._lock.wait()
            return False

    def _next(self, pace_s: float) -> list[Work]:
        most = max(1, min(_MOST_AT_ONCE, int(_AT_ONCE_S / max(pace_s, 1e-6))))
        works: list[Work] = []
        ready, lanes = self._ready, self._lanes
        while ready and len(works) < most:
            work = ready.popleft()
            works.append(work)
            if waiting := lanes[work.lane]:
                while waiting and len(works) < most:
                    works.append(waiting.popleft())
        return works

    def finish(self, hand: Hand, error: BaseException | None = None) -> None:
        """Report what a worker did: works before `hand.at` are handled; with an error, the work there failed.

        What a worker has left goes back to the head of its lane.
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
        hand.works, hand.at = [], 0
        failed = [] if error is None else self._failed_of(works, at)
        now = clock.monotonic()
        if at:
            self.done.append(works[:at] if at < len(works) else works)
            self.last_done = now
            self._unreported += at
        if error is not None:
            self.failed.append((failed, error))
            for work in failed:
                work.failed_at = now
                self._failing.add(work.lane)
        for work in reversed(works[at + len(failed) :]):
            self._put_first(work)
        for lane in dict.fromkeys([work.lane for work in works]):
            if lane not in self._failing:
                self._release(lane)
        if self._unreported >= self._report_at or self.failed or not (self._hands or self._has_work()):
            self._unreported = 0
            self._finished.set()
        self._notify()

    def _failed_of(self, works: list[Work], at: int) -> list[Work]:
        """Return the works that failed with the one that the handler was called for."""
        return [works[at]]

    def _put_first(self, work: Work) -> None:
        """Put a record that a worker has, or had, before those that wait in its lane."""
        if (waiting := self._lanes[work.lane]) is not None:
            waiting.appendleft(work)
        else:
            self._lanes[work.lane] = deque((work,))

    def _release(self, lane: Hashable) -> None:
        """Go on with a lane of which no record is ready, in a worker's hands, or failing."""
        self._make_ready(lane)

    def _make_ready(self, lane: Hashable) -> None:
        """Make the next record of a lane ready, or forget the lane if there is none."""
        if waiting := self._lanes[lane]:
            self._ready.append(waiting.popleft())
        else:
            del self._lanes[lane]

    def wait(self, seconds: float) -> None:
        """Wait until workers have handled many records, or all that they have, or one failed; at most so long."""
        self._finished.wait(seconds)
        self._finished.clear()

    def again(self, works: list[Work], *, probe: bool = False) -> None:
        """Hand failed records over again: they are the next of their lane. A probe is not halted."""
        with self._lock:
            self._failing.discard(works[0].lane)
            if probe:
                self._probes.append(works)
            else:
                for work in reversed(works):
                    self._put_first(work)
                self._make_ready(works[0].lane)
            self._notify()

    def probe(self) -> bool:
        """Hand over the next record that has not failed, although all are halted. Returns False if there is none."""
        with self._lock:
            if (new := self._new()) is None:
                return False
            self._ready.remove(new)
            self._probes.append([new])
            self._notify()
            return True

    def has_new(self) -> bool:
        """Return whether a record that has not failed could be handed over."""
        with self._lock:
            return self._new() is not None

    def is_awaited(self, lane: Hashable) -> bool:
        """Return whether records wait behind the first one of a lane."""
        with self._lock:
            return bool(self._lanes.get(lane))

    def _new(self) -> Work | None:
        return next((work for work in self._ready if not work.failures), None)

    def let_go(self, works: list[Work]) -> None:
        """Free the lane of failed records that are settled in another way."""
        with self._lock:
            self._failing.discard(works[0].lane)
            self._release(works[0].lane)
            self._notify()

    def drop(self, gone: Callable[[Work], bool]) -> list[Work]:
        """Remove records that wait, and return them. Those in a worker's hands stay there."""
        with self._lock:
            dropped = [work for work in self._ready if gone(work)]
            if dropped:
                self._ready = deque(work for work in self._ready if not gone(work))
            free = {work.lane for work in dropped}
            for lane, waiting in self._lanes.items():
                if waiting and (out := [work for work in waiting if gone(work)]):
                    dropped += out
                    self._lanes[lane] = deque(work for work in waiting if not gone(work))
            for lane in free:
                self._release(lane)
            return dropped

    def has(self, wanted: Callable[[Work], bool]) -> bool:
        """Return whether a record waits, or is in a worker's hands."""
        with self._lock:
            queues = [self._ready, *self._probes, *(hand.works for hand in self._hands), *self._lanes.values()]
            return any(wanted(work) for queue in queues for work in queue or ())

    def behind(self, lane: Hashable, most: int) -> list[Work]:
        """Return the first records that wait in a lane, without taking them."""
        with self._lock:
            return list(islice(self._lanes.get(lane) or (), most))

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


class BatchLanes(Lanes):
    """Lanes whose records are handed over in batches: up to `most` records of a lane, which wait for more `within_s`.

    A batch is one call, so it fails as a `whole`; or its records are done up to the one that failed.
    """

    def __init__(self, most: int, within_s: float, *, whole: bool = True, report_at: int = 1) -> None:
        super().__init__(report_at=report_at)
        self._whole = whole
        self._most = most
        self._within_s = within_s
        self._filling: dict[Hashable, float] = {}  # lanes that wait for a batch to fill, and since when

    def put(self, works: Iterable[Work]) -> None:
        with self._lock:
            for work in works:
                if (waiting := self._lanes.get(work.lane)) is not None:
                    waiting.append(work)
                else:
                    self._lanes[work.lane] = deque((work,))
                    self._filling[work.lane] = clock.monotonic()
            self._hand_over_full(self._within_s)

    def tick(self) -> None:
        with self._lock:
            self._hand_over_full(self._within_s)

    def hurry(self) -> None:
        with self._lock:
            self._hand_over_full(0.0)

    def _hand_over_full(self, within_s: float) -> None:
        """Make lanes ready whose batch is full, or has waited so long."""
        now = clock.monotonic()
        for lane, since in list(self._filling.items()):
            if self._is_full(lane) or now - since >= within_s:
                del self._filling[lane]
                self._make_ready(lane)
        self._notify()

    def _is_full(self, lane: Hashable) -> bool:
        waiting = self._lanes[lane]
        return False if not waiting else len(waiting) >= self._most or waiting[0].alone

    def _next(self, pace_s: float) -> list[Work]:
        works = [self._ready.popleft()]
        waiting = self._lanes[works[0].lane]
        while waiting and len(works) < self._most and not (works[0].alone or waiting[0].alone):
            works.append(waiting.popleft())
        return works

    def _failed_of(self, works: list[Work], at: int) -> list[Work]:
        return works if self._whole else super()._failed_of(works, at)

    def _release(self, lane: Hashable) -> None:
        if not self._lanes[lane] or not self._within_s or self._is_full(lane):
            self._make_ready(lane)
        else:
            self._filling[lane] = clock.monotonic()

    def drop(self, gone: Callable[[Work], bool]) -> list[Work]:
        dropped = super().drop(gone)
        with self._lock:
            for lane in [lane for lane in self._filling if not self._lanes.get(lane)]:
                del self._filling[lane]
                del self._lanes[lane]
        return dropped
