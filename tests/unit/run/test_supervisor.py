"""In which order queries of one run are started."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from leftfold.run import crew as module
from leftfold.run.lake import lake_name
from leftfold.run.running import Running
from leftfold.run.supervisor import Supervisor
from leftfold.spark.query import Query
from tests.unit.run.test_crew import a_session


class Once(Running):
    """Ends by itself after two looks, and tells when it was started."""

    def __init__(self, name: str, told: list[str]) -> None:
        super().__init__(name, 1, "spark.log")
        self.told = told
        self.looks = 0

    def prepare(self, session: Any) -> None: ...

    def beat(self) -> None: ...

    def _begin(self) -> Query:
        self.told.append(self.name)
        query: Any = SimpleNamespace(
            failure=lambda: None,
            snapshot=self._looked,
            stop_if_idle=lambda: True,
            active=True,
            in_batch=False,
            at_rest=False,
            wait=lambda seconds: None,
        )
        self.ends = query
        return query  # type: ignore[no-any-return] # a stand-in

    def _looked(self, _: int) -> None:
        self.looks += 1
        self.ends.active = self.looks < 2

    def _caught_up(self) -> None:
        self.told.append(f"{self.name} has caught up")


def watched(told: list[str], *, until_caught_up: bool, stopped: bool = False) -> list[str]:
    made: Any = Supervisor.__new__(Supervisor)
    made.views, made.helpers = [Once("clicks", told)], [Once("items.intake", told), Once(lake_name("clicks"), told)]
    made._options = SimpleNamespace(until_caught_up=until_caught_up)
    made._stop = threading.Event()
    if stopped:
        made._stop.set()
    made._watch(a_session(), lambda _: None)
    return [one.progress.state for one in made._all]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0)


def test_a_lake_that_is_to_catch_up_comes_after_its_view() -> None:
    told: list[str] = []
    assert watched(told, until_caught_up=True) == ["caught up"] * 3
    assert told.index("items.intake") < told.index(lake_name("clicks"))
    assert told.index(lake_name("clicks")) > told.index("clicks has caught up")


def test_else_all_run_side_by_side() -> None:
    told: list[str] = []
    watched(told, until_caught_up=False)
    assert {"clicks", "items.intake", lake_name("clicks")} <= set(told)


def test_a_stop_before_it_is_started() -> None:
    told: list[str] = []
    assert watched(told, until_caught_up=True, stopped=True) == ["stopped"] * 3
    assert told == []
