"""Limits how many views start or are repaired at the same time. A request to stop ends the wait for a turn."""

from __future__ import annotations

import threading

# A start spends most of its time waiting for engines, and holds its view's newest receipts in memory. Four starts keep
# a driver busy.
STARTS_AT_ONCE = 4
# A repair takes all the cores it gets, and disk for its shuffle. After a store was emptied, some views are back soonest
# if the others wait. Two at once, so that a short repair does not always wait for a long one.
REPAIRS_AT_ONCE = 2
_LOOK_EVERY_S = 0.2


class StoppedError(Exception):
    """A stop was requested. The work under way is abandoned, and done again at the next start."""


class Turn:
    """One of a limited number of places, held during a `with` block or until `end` is called."""

    def __init__(self, places: threading.Semaphore, stopping: threading.Event) -> None:
        self._places = places
        self._stopping = stopping
        self._held = False

    def __enter__(self) -> Turn:
        while not self._held:
            if self._stopping.is_set():
                raise StoppedError
            self._held = self._places.acquire(timeout=_LOOK_EVERY_S)
        return self

    def end(self) -> None:
        """Give the place back early, before work that takes long: others need not wait for that."""
        if self._held:
            self._held = False
            self._places.release()

    def __exit__(self, *_: object) -> None:
        self.end()


class Turns:
    """The places for starts and repairs, shared by all queries of one process."""

    def __init__(self) -> None:
        self._starts = threading.Semaphore(STARTS_AT_ONCE)
        self._repairs = threading.Semaphore(REPAIRS_AT_ONCE)

    def start(self, stopping: threading.Event) -> Turn:
        return Turn(self._starts, stopping)

    def repair(self, stopping: threading.Event) -> Turn:
        return Turn(self._repairs, stopping)
