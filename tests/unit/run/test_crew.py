"""Whatever one of them waits for, the others go on, and a request to stop is heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from leftfold.errors import StoreError
from leftfold.run import crew as module
from leftfold.run.crew import Crew, Pulse
from leftfold.run.running import Running
from leftfold.run.supervisor import Supervisor
from leftfold.run.turns import REPAIRS_AT_ONCE, STARTS_AT_ONCE, StoppedError, Turns
from leftfold.spark.query import Query

PATIENCE_S = 60.0


def a_session() -> Any:
    """A stand-in that lets threads enter."""
    session = Mock()
    session.sparkContext._gateway = SimpleNamespace(_callback_server="is there")
    return session


class Unit(Running):
    """Starts as it is told, and counts how often it is looked at."""

    def __init__(self, name: str, begin: Callable[[], None] = lambda: None, *, batch: bool = False) -> None:
        super().__init__(name, 1, "spark.log")
        self.begin = begin
        self.batch = batch  # whether a batch is under way
        self.looks = 0
        self.closed = False

    def prepare(self, session: Any) -> None: ...

    def beat(self) -> None: ...

    def _begin(self) -> Query:
        self.begin()
        made = SimpleNamespace(active=True, at_rest=False, failure=lambda: None, snapshot=self._looked)
        made.wait = lambda seconds: time.sleep(0.01)
        made.stop_if_idle = lambda: setattr(made, "active", self.batch)
        query: Any = _InBatch(made, self)
        return query  # type: ignore[no-any-return] # a stand-in

    def _looked(self, _: int) -> None:
        self.looks += 1

    def close(self) -> None:
        self.closed = True


class _InBatch:
    def __init__(self, made: SimpleNamespace, unit: Unit) -> None:
        self._made, self._unit = made, unit

    @property
    def in_batch(self) -> bool:
        return self._unit.batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def supervising(*units: Unit) -> Any:
    made: Any = Supervisor.__new__(Supervisor)
    made.views, made.helpers = list(units), []
    made._options = SimpleNamespace(until_caught_up=False)
    made._stop = threading.Event()
    return made


def watched(made: Any, until: Callable[[], bool]) -> None:
    """Watch, and ask for an end once something holds."""
    deadline = time.monotonic() + PATIENCE_S

    def look(_: object) -> None:
        assert time.monotonic() < deadline, "it did not come to that"
        if until():
            made.stop()

    thread = threading.Thread(target=made._watch, args=(a_session(), look), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the loop does not come back"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Who does not end is left after a moment, but for the test that measures it."""
    if "heard" not in request.node.name:
        monkeypatch.setattr(module, "LEAVE_AFTER_S", 0.3)
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.05)


@pytest.fixture
def blocked() -> Any:
    """A start that lasts until the test is over."""
    over = threading.Event()
    yield over.wait
    over.set()


def test_a_start_that_lasts_keeps_nobody_else_waiting(blocked: Callable[[], None]) -> None:
    repaired, other = Unit("repaired", blocked), Unit("other")
    watched(supervising(repaired, other), lambda: other.looks > 50)
    assert other.looks > 50
    assert other.progress.state == "stopped"
    assert other.closed


def test_a_stop_is_heard_while_a_start_lasts(blocked: Callable[[], None]) -> None:
    made = supervising(Unit("repaired", blocked), Unit("other"))
    made.stop()
    started = time.monotonic()
    watched(made, lambda: True)
    assert time.monotonic() - started < 5
    assert [one.state for one in made.progress] == ["stopped", "stopped"]
    assert [one.error for one in made.progress] == [None, None]


def test_a_batch_under_way_is_waited_for() -> None:
    at_work = Unit("at work", batch=True)
    made = supervising(at_work)
    asked: list[float] = []

    def over() -> bool:
        if at_work.looks > 5 and not asked:
            asked.append(time.monotonic())
        if asked and time.monotonic() - asked[0] > 1:
            at_work.batch = False
        return bool(asked)

    watched(made, over)
    assert time.monotonic() - asked[0] > 1
    assert at_work.progress.state == "stopped"
    assert at_work.closed


def test_an_error_of_nobody_ends_the_run() -> None:
    def wrong() -> None:
        raise ZeroDivisionError

    made = supervising(Unit("wrong", wrong), Unit("other"))
    with pytest.raises(ZeroDivisionError):
        made._watch(a_session(), lambda _: None)
    assert [one.state for one in made.progress][1] == "stopped"


def test_a_few_start_at_a_time(blocked: Callable[[], None]) -> None:
    begun: list[str] = []
    units = [Unit(f"u{i}") for i in range(STARTS_AT_ONCE + 3)]

    def begin(name: str) -> None:
        begun.append(name)
        blocked()

    for unit in units:
        unit.begin = partial(begin, unit.name)

    def starting() -> bool:
        assert len(begun) <= STARTS_AT_ONCE
        return len(begun) == STARTS_AT_ONCE and time.monotonic() > soonest

    soonest = time.monotonic() + 1
    watched(supervising(*units), starting)
    assert len(begun) == STARTS_AT_ONCE


def test_a_long_start_gives_its_place_away(blocked: Callable[[], None]) -> None:
    repaired = [Unit(f"r{i}") for i in range(STARTS_AT_ONCE)]

    def begin(unit: Unit) -> None:
        unit._turn.end()
        blocked()

    for unit in repaired:
        unit.begin = partial(begin, unit)
    other = Unit("other")
    watched(supervising(*repaired, other), lambda: other.looks > 3)
    assert other.looks > 3


def test_repairs_take_turns() -> None:
    turns, stopping = Turns(), threading.Event()
    for _ in range(REPAIRS_AT_ONCE):
        turns.repair(stopping).__enter__()
    waits = threading.Thread(target=stopping.set)
    waits.start()
    with pytest.raises(StoppedError), turns.repair(stopping):
        pass


def test_all_are_beaten_for(monkeypatch: pytest.MonkeyPatch, blocked: Callable[[], None]) -> None:
    """Also one that is being started, and others while the store of one does not answer."""
    monkeypatch.setattr(module, "_BEAT_EVERY_S", 0.01)
    beats = {"away": 0, "repaired": 0}

    class Beaten(Unit):
        def beat(self) -> None:
            beats[self.name] += 1
            if self.name == "away":
                raise StoreError("store-unreachable", "no Redis answered", why="it is away", fix="wait")

    watched(supervising(Beaten("away"), Beaten("repaired", blocked)), lambda: min(beats.values()) > 3)
    assert min(beats.values()) > 3


def test_a_pulse_ends() -> None:
    with Pulse([]):
        pass


def test_what_is_left_behind_starts_nothing() -> None:
    """It may be left anywhere; where it comes to a line at which it can end, it does."""
    go, came = threading.Event(), threading.Event()
    unit = Unit("left")

    def begin() -> None:
        go.wait(PATIENCE_S)
        came.set()
        unit._unless_stopping()

    unit.begin = begin
    stop = threading.Event()
    with Crew(a_session(), stop, until_caught_up=False) as crew:
        crew.take(unit)
        crew.watch(stop.set)
    assert unit.progress.state == "stopped"
    go.set()
    assert came.wait(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while not unit.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert unit.closed
    assert unit.progress.state == "stopped"
