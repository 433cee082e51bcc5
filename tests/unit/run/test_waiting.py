"""Waiting for a view: what is looked for, how often, and what is said when it does not come."""

from __future__ import annotations

from datetime import datetime

import pytest

import leftfold as lf
from leftfold.declare.catalog import DeclaredView
from leftfold.errors import RunError
from leftfold.fold.durations import SECOND
from leftfold.run.status import ViewStatus
from leftfold.run.waiting import EVERY_S, Goal, await_view, lacking


class Seen(lf.Event):
    user: str
    at: datetime


seen = lf.Topic("seen", Seen, key=Seen.user, time=Seen.at, retention="2d")


class Views(lf.Features, of=seen, by=Seen.user):
    seen_1h = lf.count("1h")


VIEW = DeclaredView.of(Views)
BUILD = f"{VIEW.fingerprint}-11111111"
OLD = "0123456789ab-22222222"


def status(
    build: str | None = BUILD, *, lag: int | None = 0, staged: str | None = None, applied: int = 5
) -> ViewStatus:
    return ViewStatus("views", build, 3, {"accepted": applied - 1, "late": 1}, lag, staged)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping moves."""
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", naps.append)
    monkeypatch.setattr("leftfold.clock.monotonic", lambda: sum(naps))
    return naps


def test_it_looks_four_times_a_second_until_it_has_caught_up(slept: list[float]) -> None:
    looks = [status(None), status(OLD), status(lag=7), status()]
    reached = await_view(VIEW, Goal(60 * SECOND), lambda: looks.pop(0), lambda: False)
    assert reached == status()
    assert slept == [EVERY_S] * 3
    assert EVERY_S >= 0.25


def test_a_number_of_records_of_any_outcome(slept: list[float]) -> None:
    looks = [status(applied=9, lag=9), status(applied=10, lag=8)]
    assert await_view(VIEW, Goal(SECOND, records=10), lambda: looks.pop(0), lambda: False).lag == 8


@pytest.mark.parametrize(
    ("look", "reason", "fix"),
    [
        (status(None), "readers follow no build yet", "leftfold run --views views"),
        (
            status(OLD, staged=BUILD),
            f"declared definition {VIEW.fingerprint}; {BUILD} is staged",
            "leftfold promote views",
        ),
        (status(lag=1), "it is 1 record behind", "leftfold run --views views"),
        (status(lag=None), "its topic does not exist", "leftfold apply"),
    ],
)
def test_what_is_lacking(slept: list[float], look: ViewStatus, reason: str, fix: str) -> None:
    with pytest.raises(RunError) as raised:
        await_view(VIEW, Goal(2 * SECOND), lambda: look, lambda: False)
    assert raised.value.code == "wait-timed-out"
    assert raised.value.what == "views has not caught up within 2s"
    assert reason in raised.value.why
    assert fix in raised.value.fix
    assert sum(slept) <= 2


def test_offsets_without_a_record_are_not_waited_for(slept: list[float]) -> None:
    """The end of a transaction takes an offset, and the lag stands still at it."""
    asked: list[ViewStatus] = []
    looks = [status(lag=3), status(lag=2), status(lag=2), status(lag=2)]

    def at_end() -> bool:
        asked.append(status())
        return True

    assert await_view(VIEW, Goal(60 * SECOND), lambda: looks.pop(0), at_end).lag == 0
    assert len(asked) == 1  # only once it stood still


def test_a_batch_that_is_applied_during_a_look_is_in_the_answer(slept: list[float]) -> None:
    """The view was 2 records behind at the look, and at the end when that was asked: the answer has the records."""
    looks = [status(lag=2, applied=1), status(lag=2, applied=1), status(lag=0, applied=3)]
    reached = await_view(VIEW, Goal(60 * SECOND), lambda: looks.pop(0), lambda: True)
    assert (reached.lag, sum(reached.records.values())) == (0, 3)


def test_any_build_of_a_free_view_counts() -> None:
    @lf.view(of=seen, by="user")
    def newest(records: object) -> object:
        return records

    assert lacking(DeclaredView.of(newest), status(OLD), Goal(SECOND)) is None
