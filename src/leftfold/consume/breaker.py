"""Tells an outage of what a handler calls from records that fail by themselves, and limits the dead letters.

In an outage every record fails. None of them is to become a dead letter, and what is away is not to be called a
thousand times a second. So the breaker opens, one record is tried from time to time, and all others wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from leftfold.declare.delivery import MostDead

# Failures of that many lanes, in that many calls without a success between them, are an outage.
_LANES = 5
_CALLS = 20
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 30.0
_TRYING = float("inf")
# If nothing can show that the handler works, a record is given up to see whether the next one of its lane is handled:
# at once if others wait behind it, else after so long. Then the next one waits from one second up.
_ALONE_S = 60.0
_FIRST_PATIENCE_S = 1.0


class Breaker:
    """The state of a handler, as far as its successes and failures show it. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self.is_open = False
        self.next_try = 0.0  # while it is open: when one record is tried
        self._wait_s = _FIRST_WAIT_S
        self._failing: set[Hashable] = set()  # lanes that failed since the last success
        self._calls = 0
        self._was_open = False
        self.is_away = False  # known by another way than by failures of records
        self._last_success = float("-inf")
        self._patience_s = _FIRST_PATIENCE_S
        self._next_given_up = float("-inf")

    def succeeded(self, now: float) -> None:
        self._last_success = max(self._last_success, now)
        self._patience_s, self._next_given_up = _FIRST_PATIENCE_S, float("-inf")
        if self._failing:
            self._failing.clear()
        self._calls = 0
        self.is_open, self._was_open, self._wait_s = False, False, _FIRST_WAIT_S
        self.is_away = False

    def failed(self, lane: Hashable, now: float, failing_since: float | None = None) -> None:
        """Note a failure. A record that has failed since before the last success is bad by itself, and shows nothing.

        `failing_since` is when it first failed; None if that is now.
        """
        if self._last_success > (now if failing_since is None else failing_since):
            if self.is_trying:
                self._wait_longer(now)
            return
        self._calls += 1
        if len(self._failing) < _LANES:
            self._failing.add(lane)
        if self.is_open:
            if self.is_trying:  # else it is a call that was under way when the breaker opened
                self._wait_longer(now)
        elif len(self._failing) >= _LANES and self._calls >= _CALLS:
            self.is_open, self.next_try = True, now + self._wait_s
            if self._was_open:
                self._wait_longer(now)

    def away(self, now: float) -> None:
        """Open it at once: what the handler needs is known to be away."""
        self.is_away = True
        if not self.is_open:
            self.is_open, self.next_try = True, now + self._wait_s
        elif self.is_trying:
            self._wait_longer(now)

    def back(self) -> None:
        """Close it, if it was opened by `away`: a failure of another kind shows that it is there again."""
        if self.is_away:
            self.is_open = self.is_away = False

    @property
    def is_in_doubt(self) -> bool:
        """True while several lanes fail, and no record was handled since: they may be bad, or it may be an outage."""
        return not self.is_away and (self.is_open or len(self._failing) > 1)

    @property
    def is_trying(self) -> bool:
        """True while a record is tried, and its outcome is not known."""
        return self.is_open and self.next_try == _TRYING

    def try_one(self) -> None:
        """Note that one record is tried: there is no next try until its outcome is known."""
        self.next_try = _TRYING

    def let_through(self) -> None:
        """Close it without a success, because no record is there that could be tried. The next failure opens it."""
        self.is_open, self._was_open = False, True

    def _wait_longer(self, now: float) -> None:
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        self.next_try = now + self._wait_s

    def may_give_up(self, failing_since: float) -> bool:
        """Return whether a record that fails may become a dead letter: only if the fault seems to be its own.

        Either the handler has handled another record since this one began to fail, or no other lane fails.
        """
        return not self.is_open and (self._last_success > failing_since or len(self._failing) <= 1)

    def must_give_up(self, now: float, failing_since: float, *, awaited: bool) -> bool:
        """Return whether a record is given up although its fault may be an outage's: else all might wait for ever.

        It is asked only if no record is left that could show whether the handler works. `awaited` means that others
        wait behind this one: they will show it.
        """
        if self.is_open or now < self._next_given_up or not (awaited or now - failing_since >= _ALONE_S):
            return False
        self._next_given_up, self._patience_s = now + self._patience_s, min(2 * self._patience_s, _LONGEST_WAIT_S)
        return True


_WINDOW = 10_000
_BLOCK = 1_000


class Budget:
    """Counts dead letters among the last records."""

    def __init__(self, most: MostDead) -> None:
        self.run = 0  # dead letters in a row
        self._most = most
        self._blocks: deque[int] = deque([0], maxlen=_WINDOW // _BLOCK)
        self._in_block = 0

    @property
    def recent(self) -> int:
        """The number of dead letters among about the last 10,000 records."""
        return sum(self._blocks)

    def handled(self, records: int) -> None:
        self.run = 0
        self._count(records)

    def dead(self) -> bool:
        """Count a dead letter. Returns False, and counts nothing, if it would exceed the budget."""
        if self.run + 1 > self._most.run or self.recent + 1 > self._most.share * _WINDOW:
            return False
        self.run += 1
        self._blocks[-1] += 1
        self._count(1)
        return True

    def _count(self, records: int) -> None:
        self._in_block += records
        while self._in_block >= _BLOCK:
            self._in_block -= _BLOCK
            self._blocks.append(0)
