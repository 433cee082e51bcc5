"""The queries that one process keeps running, each in its own thread: while one waits, the others continue.

The caller's thread never waits for an engine. It looks at the queries, shows progress, reacts to a request to stop, and
abandons a thread that does not end. The threads are daemons for that reason. An abandoned thread does no more harm than
a process that died at the same line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.run.running import Running
from leftfold.run.turns import Turns
from leftfold.spark.threads import enter_thread, ready_for_threads

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

# The interval of the watching loop. A user's eye and a SIGTERM can wait this long; a batch does not depend on it.
_LOOK_EVERY_S = 0.2
# How long to wait for queries that were asked to end and have no batch under way. A cancelled job takes about 1 s.
LEAVE_AFTER_S = 2.5
# A build counts as running for two minutes after a beat (`store.writer.RUNNING_S`).
_BEAT_EVERY_S = 5.0


class Crew:
    """The queries of one process and their threads. One thread uses it, in a `with` block.

    At the end of the block every query is asked to stop, and the crew waits for them for a moment (`LEAVE_AFTER_S`).
    """

    def __init__(self, session: SparkSession, stop: threading.Event, *, until_caught_up: bool) -> None:
        """Take `stop`, an event that the caller sets when all queries shall end."""
        ready_for_threads(session)
        self._session = session
        self._stop = stop
        self._until_caught_up = until_caught_up
        self._turns = Turns()
        self._threads: dict[threading.Thread, Running] = {}
        self._failures: list[BaseException] = []  # appended to by any thread
        self._deadline: float | None = None  # until then the crew waits for queries without a batch under way

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        while self._alive and not self._overdue:
            time.sleep(_LOOK_EVERY_S)
            self._end()
        for one in self._alive:
            one.progress.error, one.progress.state = None, "stopped"

    def take(self, one: Running, *, after: Sequence[Running] = ()) -> None:
        """Start a query once all queries in `after` have ended, and look after it until it ends."""
        thread = threading.Thread(target=self._live, args=(one, after), name=f"leftfold {one.name}", daemon=True)
        self._threads[thread] = one
        thread.start()

    def watch(self, look: Callable[[], None]) -> None:
        """Wait until all queries have ended. After a request to stop, wait long only for a batch under way.

        `look` is called on every round. A `LeftfoldError` stays in the progress of the query that it hit. Any other
        error of a query's thread is raised here, and so is "spark-died", which ends all queries.
        """
        while self._alive and not self._overdue:
            time.sleep(_LOOK_EVERY_S)
            if self._stop.is_set():
                self._end()
                if any(one.in_batch for one in self._alive):
                    self._deadline = clock.monotonic() + LEAVE_AFTER_S
            self._raise()
            look()
        self._raise()

    @property
    def _alive(self) -> list[Running]:
        return [one for thread, one in self._threads.items() if thread.is_alive()]

    @property
    def _overdue(self) -> bool:
        return self._deadline is not None and clock.monotonic() >= self._deadline

    def _end(self) -> None:
        """Ask each query to end. Called repeatedly: a start runs one job after another, and each must be cancelled."""
        if self._deadline is None:
            self._deadline = clock.monotonic() + LEAVE_AFTER_S
        for one in self._alive:
            one.stop()

    def _raise(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _live(self, one: Running, after: Sequence[Running]) -> None:
        """Run one query from start to end, on its own thread."""
        try:
            enter_thread(self._session, one.name)
            while any(other.running for other in after) and not self._stop.is_set():
                time.sleep(_LOOK_EVERY_S)
            if self._stop.is_set():
                one.stop()
            one.start(self._session, until_caught_up=self._until_caught_up, turns=self._turns)
            one.wait()
            one.close()
        except BaseException as error:  # noqa: BLE001 # it is raised by the thread that watches
            self._failures.append(error)


class Beating(Protocol):
    def beat(self) -> None:
        """Mark the build in the store as running."""


class Pulse:
    """Calls `beat` on all its objects regularly, from its own thread, whatever they are doing. For a `with` block.

    A store that does not answer is not a failure here: the code that needs the store reports it. The mark is then late,
    or expires.
    """

    def __init__(self, beating: Sequence[Beating]) -> None:
        self._beating = beating
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="leftfold pulse", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Ask the thread to end, without waiting for it: it may hang in a store that does not answer."""
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_EVERY_S):
            for one in self._beating:
                with suppress(StoreError):
                    one.beat()
