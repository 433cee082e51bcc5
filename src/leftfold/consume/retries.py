"""Decides about records whose call failed: they are handed over again later, or written as dead letters.

A record that fails waits at the head of its lane, longer after each failure. After its last attempt it becomes a dead
letter, unless the failures look like an outage of what the handler calls: then everything waits.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leftfold import clock
from leftfold.consume.booking import DatabaseAway, PartitionOvertaken, RecordAtFault, RejectedRecord
from leftfold.consume.breaker import Breaker, Budget
from leftfold.consume.lanes import Lanes, Work
from leftfold.consume.progress import ConsumerProgress
from leftfold.declare.consumer import Consumer
from leftfold.declare.record import NotNow, Unprocessable
from leftfold.errors import LeftfoldError, RunError

if TYPE_CHECKING:
    from leftfold.consume.sql_rows import SqlRows

_OVERTAKEN_S = 120.0  # how long a partition that another process has claimed may stay with this member


class Retries:
    """The records of one consumer that have failed and are not settled. One thread owns it.

    `bury` writes a dead letter: it gets the work, the outcome and the reason. `forget` drops works of partitions that
    are no longer ours. `has_all` tells whether no record can be taken that is not at hand.
    """

    def __init__(
        self,
        consumer: Consumer[..., Any],
        lanes: Lanes,
        progress: ConsumerProgress,
        *,
        bury: Callable[[Work, str, str], None],
        forget: Callable[[list[Work]], None],
        has_all: Callable[[], bool],
        rows: SqlRows | None = None,  # those of a consumer with a database
    ) -> None:
        self._consumer = consumer
        self._lanes = lanes
        self._progress = progress
        self._bury = bury
        self._forget = forget
        self._has_all = has_all
        self._rows = rows
        self._final = consumer.delivery == "at_most_once"  # no record is handed over twice
        self._breaker, self._budget = Breaker(), Budget(consumer.most_dead)
        self._held: list[tuple[float, int, list[Work]]] = []  # by the time at which they are handed over again
        self._holds = 0
        self._tried_new = True  # whether a record that had not failed was tried in this outage
        self._try_new = False  # whether the next record to be tried is one that has not failed
        self._paused = False

    @property
    def is_outage(self) -> bool:
        """True while what the handler calls seems to be away: then nothing more is to be taken."""
        return self._breaker.is_open

    @property
    def lacks_new(self) -> bool:
        """True if all records at hand have failed, or wait behind one. Only another can show that the handler works."""
        return self._breaker.is_in_doubt and not self._lanes.has_new()

    @property
    def holds_any(self) -> bool:
        return bool(self._held)

    def pause(self, paused: bool) -> None:
        """Hand nothing over while a person has paused the consumer."""
        self._paused = paused
        self._halt_or_go_on()

    def _halt_or_go_on(self) -> None:
        self._lanes.halt(self._paused or self._breaker.is_open)

    def handled(self, records: int) -> None:
        """Note that calls have succeeded."""
        self._budget.handled(records)
        was_open = self._breaker.is_open
        self._breaker.succeeded(self._lanes.last_done)
        if was_open:
            self._halt_or_go_on()
            self._held = [(0.0, number, works) for _, number, works in self._held]

    def failed(self, works: list[Work], error: BaseException) -> None:
        """Decide about records whose call failed."""
        first, now, retry = works[0], clock.monotonic(), self._consumer.retry
        if isinstance(error, LeftfoldError):
            raise error
        if not first.part.owned:
            self._forget(works)
            self._breaker.next_try = min(self._breaker.next_try, now)  # it may have been the one that was tried
            return
        if isinstance(error, NotNow | Unprocessable):  # if it was the one that was tried, it has told nothing
            self._breaker.next_try = min(self._breaker.next_try, now + 1.0)
        if isinstance(error, NotNow):
            self._hold(works, now + error.after_s)
            return
        if self._rows is not None and self._is_no_failure(first, error, now):
            return
        error = error.error if isinstance(error, RecordAtFault) else error
        if not isinstance(error, Unprocessable):  # that is about the record, not about what the handler calls
            self._note_failure(first, now)
        for work in works:
            work.failures += 1
            work.failing_since = work.failing_since or work.failed_at
        self._progress.failures += 1
        final = isinstance(error, Unprocessable) or self._final
        spent = first.failures >= retry.attempts and self._may_give_up(first, now)
        if not final and not spent:
            wait = retry.wait_s(min(first.failures, retry.attempts), random.uniform(-1, 1))
            self._hold(works, now + wait)
        elif len(works) > 1 and not self._final:
            for work in works:  # which of them it was is found by handing them over one by one
                work.alone, work.failures, work.failing_since = True, 0, 0.0
            self._lanes.again(works)
        else:
            self._give_up(works, error)

    def _note_failure(self, work: Work, now: float) -> None:
        was_open = self._breaker.is_open
        self._breaker.failed(work.lane, now, work.failing_since or work.failed_at)
        if self._breaker.is_open and not was_open:
            self._tried_new, self._try_new = self._final, True
        self._halt_or_go_on()

    def _may_give_up(self, work: Work, now: float) -> bool:
        if self._breaker.may_give_up(work.failing_since):
            return True
        if not self.lacks_new or not self._has_all():
            return False
        return self._breaker.must_give_up(now, work.failing_since, awaited=self._lanes.is_awaited(work.lane))

    def _is_no_failure(self, work: Work, error: BaseException, now: float) -> bool:
        """Decide about a record that was not booked, and whose handler has not failed. Returns False if it has."""
        match error:
            case DatabaseAway():
                self._breaker.away(now)
                self._halt_or_go_on()
                self._hold([work], now)
            case PartitionOvertaken():  # another process has claimed it: the group is about to take it away
                work.failing_since = work.failing_since or now
                if now - work.failing_since > _OVERTAKEN_S:
                    assert self._rows is not None
                    raise self._rows.overtaken(work.part)
                self._hold([work], now + 1.0)
            case RejectedRecord():
                self.give_up(work, "rejected", str(error))
            case _:
                self._breaker.back()
                if isinstance(error, RecordAtFault):
                    self._breaker.succeeded(now)
                self._halt_or_go_on()
                return False
        return True

    def _give_up(self, works: list[Work], error: BaseException) -> None:
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        if self._consumer.failure == "stop":
            place = f"{works[0].part.topic}/{works[0].part.partition}/{works[0].offset}"
            raise RunError(
                "handler-failed",
                f"{self._consumer.name} failed for {place}, at attempt {works[0].failures}",
                why=reason,
                state='nothing is committed past it; failure="stop" is declared',
                fix="correct the handler and start it again",
            ) from error
        for work in works:
            self.give_up(work, "failed", reason)
        if self._rows is None:  # else the lane waits for the dead letter: no position may pass it before that is there
            self._lanes.let_go(works)

    def give_up(self, work: Work, outcome: str, reason: str) -> None:
        """Write a record as a dead letter, if the budget allows one more."""
        if not self._budget.dead():
            raise RunError(
                "too-many-dead",
                f"{self._consumer.name} would write more dead letters than most_dead allows",
                why=f"{self._budget.recent:,} of the last 10,000 records are dead letters, the last "
                f"{self._budget.run:,} in a row; the newest reason is {reason}",
                state="nothing is committed past the record that failed",
                fix=f"leftfold dead list {self._consumer.name} shows them; correct the handler or the records, or "
                "declare a larger lf.MostDead",
            )
        self._bury(work, outcome, reason)

    def partitions_are_gone(self) -> None:
        """Try another record in an outage: the one that was tried may be gone, and will not tell."""
        if self._breaker.is_open:
            self._breaker.next_try = min(self._breaker.next_try, clock.monotonic())

    def _hold(self, works: list[Work], due: float) -> None:
        self._holds += 1
        heapq.heappush(self._held, (due, self._holds, works))

    def hand_over_due(self) -> None:
        """Hand over again what has waited long enough. In an outage it is one record, from time to time."""
        if self._paused:
            return
        now = clock.monotonic()
        if self._breaker.is_open:
            # The first new record is tried at once. It tells an outage from keys that have a bad record each.
            may_wait = self._tried_new or self._breaker.is_away or self._breaker.is_trying
            if not may_wait and self._try_a_new_one():
                return
            if now >= self._breaker.next_try:
                self._try_one()
            return
        while self._held and self._held[0][0] <= now:
            works = heapq.heappop(self._held)[2]
            if works[0].part.owned:
                self._lanes.again(works)
            else:
                self._forget(works)

    def _try_one(self) -> None:
        """Hand over one record during an outage: its outcome shows whether the handler works again.

        It is by turns one that has failed and one that has not: all that failed may be bad, and the handler well.
        """
        if self._try_new and self._try_a_new_one():
            return
        self._try_new = True
        while self._held:
            works = heapq.heappop(self._held)[2]
            if works[0].part.owned:
                self._breaker.try_one()
                self._lanes.again(works, probe=True)
                return
            self._forget(works)
        # Nothing is held back: at most once, or what failed belongs to another member now.
        self._breaker.let_through()
        self._halt_or_go_on()

    def _try_a_new_one(self) -> bool:
        if not self._lanes.probe():
            return False
        self._tried_new, self._try_new = True, False
        self._breaker.try_one()
        return True
