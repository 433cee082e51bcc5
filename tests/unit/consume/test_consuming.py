"""Decisions of a consumer that no broker is needed for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import leftfold as lf
from leftfold import clock
from leftfold.consume.booking import DatabaseAway
from leftfold.consume.consuming import Consuming
from leftfold.consume.lanes import Hand, Work
from leftfold.consume.settled import Committed, Settled
from leftfold.errors import LogError
from tests.golden.causes_consumers import ID, PART, StandInMessage, consuming


@pytest.fixture
def trying(tmp_path: Path) -> tuple[Consuming, Hand]:
    """A consumer whose database was away, and a worker that tries the one record that there is."""
    running = consuming(tmp_path, "")
    running._rows = running._retries._rows = cast(Any, object())
    part = Settled("clicks", ID, 0, Committed(500))
    running._parts[PART] = part
    part.take(500, 0)
    message = StandInMessage(
        topic=lambda: "clicks", key=lambda: b"u1", value=lambda: b"", headers=lambda: [], timestamp=lambda: (2, 0)
    )
    running._lanes.put([Work(part, 500, "u1", None, "accepted", message)])
    hand = Hand()
    assert running._lanes.take(hand, 1.0, wait=False)
    running._lanes.finish(hand, DatabaseAway("it is away"))
    running._collect()
    assert running._retries._breaker.is_open
    assert running._retries._breaker.next_try > clock.monotonic()
    running._retries._breaker.next_try = clock.monotonic()
    running._retries.hand_over_due()
    assert running._lanes.take(hand, 1.0, wait=False), "it is tried"
    return running, hand


def test_a_try_whose_partition_is_lost_is_followed_by_another(trying: tuple[Consuming, Hand]) -> None:
    running, hand = trying
    running.lost([PART])
    hand.at = 1
    running._lanes.finish(hand)
    running._collect()
    running._retries.hand_over_due()
    assert not running._retries._breaker.is_open, "nothing is left that could be tried: the next record is let through"


@pytest.mark.parametrize("error", [lf.NotNow("1m"), lf.Unprocessable("never")])
def test_a_try_that_tells_nothing_is_followed_by_another(trying: tuple[Consuming, Hand], error: Exception) -> None:
    running, hand = trying
    running._rows = running._retries._rows = None  # an outage that was found by failures
    running._lanes.finish(hand, error)
    running._collect()
    assert running._retries._breaker.next_try <= clock.monotonic() + 1.0


@pytest.mark.parametrize("error", [ValueError("no"), lf.Unprocessable("never")])
def test_a_database_that_answers_is_not_away(trying: tuple[Consuming, Hand], error: Exception) -> None:
    """The one record that there is cannot be handled. It must not keep all others from being tried."""
    running, hand = trying
    running._lanes.finish(hand, error)
    running._collect()
    assert not running._retries._breaker.is_open


def test_an_assignment_waits_for_brokers_that_take_over_others(tmp_path: Path) -> None:
    running = consuming(tmp_path, "")
    part = Settled("clicks", ID, 0, Committed(500))
    answers: list[Any] = [LogError("kafka-refused", "it died", why="", fix="", retriable=True), {PART: part}]

    def choose(*_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, LogError):
            raise answer
        return answer

    running._starts = cast(Any, SimpleNamespace(choose=choose))
    running._member = cast(Any, object())
    assert running.assigned([PART]) == {PART: 500}


def test_an_assignment_that_is_refused_ends_the_consumer(tmp_path: Path) -> None:
    running = consuming(tmp_path, "")

    def choose(*_: Any) -> Any:
        raise LogError("topic-recreated", "another", why="", fix="")

    running._starts = cast(Any, SimpleNamespace(choose=choose))
    running._member = cast(Any, object())
    with pytest.raises(LogError):
        running.assigned([PART])


@pytest.mark.parametrize("keys", [2, 6])
def test_in_doubt_more_is_taken_than_in_flight(tmp_path: Path, keys: int) -> None:
    """All that is in flight waits behind records that failed. Only another key can show that the handler is well."""
    running = consuming(tmp_path, "")
    part = Settled("clicks", ID, 0, Committed(500))
    running._parts[PART] = part
    message = StandInMessage(topic=lambda: "clicks", key=lambda: b"u1", value=lambda: b"", headers=lambda: [])
    most = running._consumer.in_flight
    works = [Work(part, 500 + n, f"key {n % keys}", None, "accepted", message) for n in range(most)]
    running._lanes.put(works)
    running._in_flight = most
    assert running._room() == 0
    deadline, hand = clock.monotonic() + 20, Hand()
    while running._retries._breaker._calls < (20 if keys == 6 else 2):
        assert clock.monotonic() < deadline, "the handler is not called again"
        while running._lanes.take(hand, 1.0, wait=False):
            running._lanes.finish(hand, ValueError("no"))
        running._collect()
        running._retries.hand_over_due()
    assert running._retries.is_outage == (keys == 6)
    assert running._room() == most
    running._lanes.put([Work(part, 500 + most, "another key", None, "accepted", message)])
    running._in_flight += 1
    assert running._room() <= 0, "it is there, and is to be tried"


def test_a_record_that_is_due_again_soon_is_not_waited_for_long(tmp_path: Path) -> None:
    running = consuming(tmp_path, "")
    running._last_poll = clock.monotonic()
    part = Settled("clicks", ID, 0, Committed(500))
    waits: list[float] = []
    cast(Any, running._lanes).wait = waits.append
    running._wait_for_room()
    running._retries._hold([Work(part, 500, "u1", None, "accepted", None)], clock.monotonic() + 0.01)
    running._wait_for_room()
    assert waits == [0.1, 0.002]


def test_a_position_that_has_moved_is_committed_at_once_if_that_makes_room(tmp_path: Path) -> None:
    running = consuming(tmp_path, "")
    part = running._parts[PART] = Settled("clicks", ID, 0, Committed(500))
    for offset in range(500, 21_000):
        part.take(offset, 0)
    assert running._room() == 0, "too many offsets lie between the position and the newest record"
    assert not running._commit_makes_room(), "the first of them is still open"
    for offset in range(500, 21_000):
        part.settle(offset)
    assert running._commit_makes_room()
