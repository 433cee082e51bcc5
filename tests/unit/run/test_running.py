"""A query that fails is started again, later and later, for as long as that may help."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from leftfold import clock
from leftfold.errors import LeftfoldError, LogError, RunError, StoreError
from leftfold.run.outages import outage
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
        self.rests = False

    def prepare(self, session: Any) -> None: ...

    def _begin(self) -> Query:
        self.starts += 1
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, LeftfoldError):
            raise failure
        ended: Any = SimpleNamespace(
            active=failure is None,
            at_rest=self.rests,
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


def test_it_is_tried_for_as_long_as_the_run_lives(now: SimpleNamespace) -> None:
    """An outage of three hours: a try a minute, and it goes on by itself."""
    running = Failing(*[AWAY] * 180)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    started = run(running, now, 180 * 60 + sum(BACK_OFF_S))
    assert running.starts == 181
    assert {later - earlier for earlier, later in pairwise(started[len(BACK_OFF_S) :])} == {60.0}
    assert running.progress.state == "running"


def test_how_it_fails_can_be_seen(now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_us", lambda: 1_790_000_000_000_000 + int(now.s * 1e6))
    running = Failing(*[AWAY] * 3)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    run(running, now, 4)
    assert running.progress.as_json()["failing"] == {
        "tries": 3,
        "since": "2026-09-21T14:13:20+00:00",
        "next_try_s": 3.0,
    }
    assert running.progress.state == "waiting"
    run(running, now, 8)
    assert running.progress.state == "running"
    assert running.progress.failing is not None, "it has not shown yet that it goes well"
    running._went_well()
    assert running.progress.as_json()["failing"] is None


def test_without_a_batch_to_apply_all_is_well(now: SimpleNamespace) -> None:
    running = Failing(AWAY)
    running.rests = True
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    run(running, now, 3)
    assert running.progress.state == "running"
    assert running.progress.failing is None


def test_where_somebody_waits_it_gives_up_with_the_reason(now: SimpleNamespace) -> None:
    running = Failing(*[AWAY] * 20)
    running.start(None, until_caught_up=True)  # type: ignore[arg-type] # no session is used
    run(running, now, 600)
    assert running.progress.state == "failed"
    assert running.progress.error is AWAY
    assert running.starts == 9


def test_what_cannot_pass_is_not_tried_again(now: SimpleNamespace) -> None:
    running = Failing(WRONG)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    assert running.progress.state == "failed"
    assert running.progress.error is WRONG
    assert run(running, now, 30) == []


@pytest.mark.parametrize("until_caught_up", [False, True])
def test_an_unexplained_failure(now: SimpleNamespace, until_caught_up: bool) -> None:
    """It may be an outage that nobody thought of: a service tries on. Where somebody waits, three times are enough."""
    running = Failing(*["java.lang.IllegalStateException: no"] * 20)
    running.start(None, until_caught_up=until_caught_up)  # type: ignore[arg-type] # no session is used
    run(running, now, 300)
    assert running.progress.state == ("failed" if until_caught_up else "waiting")
    assert running.progress.error is not None
    assert "IllegalStateException" in running.progress.error.why
    assert (running.starts == 3) == until_caught_up


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


def test_what_a_start_has_yet_to_learn_nests_nothing() -> None:
    """A repair at a start may have much to learn: a thousand times is no RecursionError."""

    class Learning(Failing):
        def _learned(self, failure: str) -> bool:
            return bool(self.failures)

    one = Learning(*[WRONG] * 2_000)
    one.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    assert (one.starts, one.progress.state) == (2_000, "failed")


def away_from(what: str) -> str:
    return str(StoreError("store-unreachable", what, why="Connection refused", fix="start it"))


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (f"  File x\nleftfold.errors.StoreError: {away_from('no Redis answered at r:6379')}", "store-unreachable"),
        (f"StoreError: {away_from('no Postgres answered at p:5432')}", "store-unreachable"),
        ("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node", "kafka-unreachable"),
        ("Caused by: org.apache.kafka.common.errors.NetworkException: Disconnected", "kafka-unreachable"),
        ("java.util.concurrent.TimeoutException: Cannot fetch record for offset 7 in 120000 milliseconds", "kafka-un"),
        ("leftfold.errors.LogError: error[changelog-not-written]: a.changelog: batch 4 was not written", "kafka-un"),
        ("leftfold.errors.StoreError: error[store-denied]: Redis at r:6379 refused the login\n  why:   no\n", None),
        ("org.apache.kafka.common.errors.OffsetOutOfRangeException: Fetch position", None),
        ("ValueError: a person's own", None),
    ],
)
def test_an_engine_that_is_away_is_named_by_what_spark_says(said: str, code: str | None) -> None:
    failure = f"[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n{said}\n    at a.b.C(D.scala:1)"
    found = outage("clicks", failure)
    assert (found is None) == (code is None)
    if found is not None and code is not None:
        assert found.code.startswith(code)
        assert found.retriable
        assert found.why in said
    running = Failing(failure)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    running.poll()
    assert running.progress.error is not None
    assert running.progress.error.code.startswith(code or "view-failed")


class Looking(Failing):
    """Asks engines now and then, beside its query."""

    def __init__(self, answer: LeftfoldError) -> None:
        super().__init__()
        self.answer = answer

    def _look_after(self) -> None:
        raise self.answer


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (AWAY, "running"),
        (
            LogError("kafka-refused", "the brokers refused", why="a code that nobody knows", fix="wait"),
            "running",
        ),
        (WRONG, "failed"),
    ],
)
def test_a_look_that_no_engine_answers_ends_no_query(answer: LeftfoldError, state: str, now: SimpleNamespace) -> None:
    running = Looking(answer)
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    running.poll()
    assert running.progress.state == state


def test_a_start_is_left_where_it_may_be(now: SimpleNamespace) -> None:
    running = Failing()
    running.stop()
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    assert running.starts == 0
    assert running.progress.state == "stopped"


def test_what_fails_because_of_a_stop_is_no_failure(now: SimpleNamespace) -> None:
    running = Failing("Job 7 cancelled")
    running.start(None, until_caught_up=False)  # type: ignore[arg-type] # no session is used
    running.stop()
    running.poll()
    assert running.progress.state == "stopped"
    assert running.progress.error is None
