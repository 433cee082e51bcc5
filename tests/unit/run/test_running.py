"""A query that fails is started again, later and later, and given up on with its reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leftfold import clock
from leftfold.errors import LeftfoldError, RunError, StoreError
from leftfold.run.running import BACK_OFF_S, Running
from leftfold.spark.query import Query

AWAY = StoreError("store-unreachable", "no Redis answered", why="it is away", fix="wait", retriable=True)
WRONG = RunError("topic-recreated", "another topic", why="it is another", fix="leftfold run --fresh")


class Failing(Running):
    """Fails at each start in turn as it is told, and then runs."""

    def __init__(self, *failures: LeftfoldError | str) -> None:
        super().__init__("clicks", 1, "spark.log")
        self.failures = list(failures)
        self.starts = 0

    def prepare(self, session: Any) -> None: ...

    def _begin(self) -> Query:
        self.starts += 1
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, LeftfoldError):
            raise failure
        ended: Any = SimpleNamespace(
            active=failure is None,
            failure=lambda: failure,
            snapshot=lambda partitions: None,
            stop_if_idle=lambda: True,
        )
        query: Query = ended
        return query


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    time = SimpleNamespace(s=0.0)
    monkeypatch.setattr(clock, "monotonic", lambda: time.s)
    return time


def run(running: Failing, now: SimpleNamespace, seconds: float) -> list[float]:
    """When it was started, second by second."""
    started, seen = [], running.starts
    while now.s < seconds:
        running.poll()
        if running.starts > seen:
            seen = running.starts
            started.append(now.s)
        now.s += 0.5
    return started


def test_an_engine_that_is_away_is_waited_for(now: SimpleNamespace) -> None:
    running = Failing(AWAY, AWAY, AWAY)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    assert running.progress.state == "waiting"
    assert run(running, now, 20) == [1.0, 3.0, 7.0]
    assert running.progress.state == "running"
    assert running.progress.error is None
    assert running.progress.restarts == 3


def test_it_gives_up_with_the_reason(now: SimpleNamespace) -> None:
    running = Failing(*[AWAY] * 20)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    run(running, now, sum(BACK_OFF_S) + 60)
    assert running.progress.state == "failed"
    assert running.progress.error is AWAY
    assert running.starts == len(BACK_OFF_S) + 1


def test_what_cannot_pass_is_not_tried_again(now: SimpleNamespace) -> None:
    running = Failing(WRONG)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    assert running.progress.state == "failed"
    assert running.progress.error is WRONG
    assert run(running, now, 30) == []


def test_an_unexplained_failure_is_tried_three_times(now: SimpleNamespace) -> None:
    running = Failing(*["java.lang.IllegalStateException: no"] * 20)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    run(running, now, 300)
    assert running.progress.state == "failed"
    assert running.progress.error is not None
    assert "IllegalStateException" in running.progress.error.why
    assert running.starts == 3


def test_a_batch_in_between_starts_the_count_again(now: SimpleNamespace) -> None:
    running = Failing(AWAY, AWAY, "Exception: a", AWAY)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    run(running, now, 3.5)
    running._went_well()
    assert run(running, now, 20) == [4.5, 6.5]


def test_a_stop_while_it_waits_is_an_end(now: SimpleNamespace) -> None:
    running = Failing(AWAY)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    running.stop()
    running.poll()
    assert running.progress.state == "stopped"
