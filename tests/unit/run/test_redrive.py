"""Which re-driven records are looked at. That they take effect is for the engine tests."""

from __future__ import annotations

from typing import Any

from leftfold.run.redrive import Done, apply


class Log:
    """Stands where the admin client would. Without a session nothing can be read of it."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end

    def start_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        return {0: self._start}

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        return {0: self._end}


def applied(log: Log, since: int) -> Done:
    none: Any = None
    admin: Any = log
    return apply(none, none, none, admin, topic="t", since=since, begins={}, ends={}, number=1, closed=0, write=none)


def test_nothing_new() -> None:
    assert applied(Log(0, 0), since=0) == Done(0)
    assert applied(Log(0, 5), since=5) == Done(5)


def test_what_a_person_deleted_is_passed_by() -> None:
    assert applied(Log(5, 5), since=0) == Done(5)
    assert applied(Log(5, 5), since=3) == Done(5)
