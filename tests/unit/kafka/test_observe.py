"""Looking at groups again. Real ones are looked at by tests/engine/test_observe.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaError

from leftfold.errors import LogError
from leftfold.fold.durations import SECOND
from leftfold.kafka import observe as module
from leftfold.kafka.group import LogPartition, Position
from leftfold.kafka.log_reader import Logged
from leftfold.kafka.observe import watch_groups
from leftfold.kafka.observed import ObservedCluster, ObservedGroup
from leftfold.settings import Kafka
from tests import clusters

KAFKA = Kafka(bootstrap="nowhere:1")
CLICKS = clusters.seen_topic("clicks", 6, records=600)  # 100 in each
OLD_US = 1_700_000_000 * SECOND


class Later:
    """What the brokers answer at the second look; of a group that is not told, nothing may be asked."""

    def __init__(self, **groups: tuple[str, int, dict[str, dict[int, int]]]) -> None:
        self.groups = groups
        self.client = SimpleNamespace(
            describe_consumer_groups=lambda names, **_: {name: self._described(name) for name in names},
        )

    def answer(self, answer: Any) -> Any:
        return answer

    def _described(self, name: str) -> Any:
        state, members, _ = self.groups[name]
        return SimpleNamespace(state=SimpleNamespace(name=state), members=[None] * members)

    def of(self, name: str) -> dict[LogPartition, Position]:
        _, _, positions = self.groups[name]
        return {LogPartition(t, p): Position(at, "") for t, offsets in positions.items() for p, at in offsets.items()}

    def close(self) -> None:
        pass


class Reader:
    """Every offset is a record, logged as many seconds after OLD_US; but for those of `without`."""

    without: tuple[int, ...] = ()  # partitions
    refuses = False

    def __init__(self, _kafka: Kafka) -> None:
        pass

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Logged]:
        if self.refuses:
            raise LogError("kafka-unreachable", "not authorized", why="for a test", fix="none")
        for p, (start, end) in ranges.items():
            if p not in self.without:
                for at in range(start, end):
                    yield Logged(topic, p, at, OLD_US + at * SECOND, True, None, b"")

    def close(self) -> None:
        pass


class Clock:
    def __init__(self, start_us: int) -> None:
        self.us = start_us
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.us += round(seconds * SECOND)

    def now_us(self) -> int:
        return self.us

    def monotonic(self) -> float:
        return self.us / SECOND


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Three seconds after the first look."""
    made = Clock(clusters.seen_cluster().seen_at + 3 * SECOND)
    monkeypatch.setattr(module, "clock", made)
    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(module, "LogReader", Reader)
    monkeypatch.setattr(Reader, "without", ())
    monkeypatch.setattr(Reader, "refuses", False)
    return made


def group(name: str, positions: dict[str, dict[int, int]], **more: Any) -> ObservedGroup:
    told: dict[str, Any] = {"state": "STABLE", "members": 1, "owners": {"clicks": 1}} | more
    return ObservedGroup(name, positions=positions, **told)


def watched(later: Any, *groups: ObservedGroup) -> ObservedCluster:
    with mock.patch.object(module, "GroupOffsets", return_value=later):
        return watch_groups(later, KAFKA, clusters.seen_cluster(CLICKS, groups=groups))


def test_where_a_group_did_not_move_is_kept_with_the_first_record_that_waits(clock: Clock) -> None:
    before = {"clicks": {0: 40, 1: 50, 2: 100, 3: 99}}
    later = Later(billing=("STABLE", 1, {"clicks": {0: 40, 1: 51, 2: 100, 3: 99}}))
    found = watched(later, group("billing", before)).groups["billing"]
    assert found.still == {"clicks": {0: OLD_US + 40 * SECOND}}
    assert found.positions == before
    assert found.watched_s == 10
    assert clock.slept == [7.0]


def test_nothing_is_awaited_that_has_passed_already(clock: Clock) -> None:
    clock.us += 60 * SECOND
    later = Later(billing=("STABLE", 1, {"clicks": {0: 40}}))
    assert watched(later, group("billing", {"clicks": {0: 40}})).groups["billing"].watched_s == 63
    assert clock.slept == [0.0]


def test_a_clock_that_was_set_back_makes_nobody_wait_for_longer(clock: Clock) -> None:
    clock.us -= 3_600 * SECOND
    watched(Later(billing=("STABLE", 1, {"clicks": {0: 40}})), group("billing", {"clicks": {0: 40}}))
    assert clock.slept == [10.0]


@pytest.mark.parametrize(
    "other",
    [
        group("g", {}),  # no positions in Kafka
        group("g", {"clicks": {0: 100}}),  # caught up
        group("g", {"clicks": {0: 99}}),  # ... but for a marker
        group("g", {"clicks": {0: 40}}, state="EMPTY", members=0),
        group("g", {"clicks": {0: 40}}, state="PREPARING_REBALANCING"),
        group("g", {"clicks": {0: 40}}, owners={}),  # positions of old; it reads something else now
        group("g", {"clicks": {17: 40}, "gone": {0: 40}}),
    ],
)
def test_without_a_group_that_may_stand_still_nothing_is_asked_or_awaited(clock: Clock, other: ObservedGroup) -> None:
    cluster = clusters.seen_cluster(CLICKS, groups=(other,))
    assert watch_groups(Later(), KAFKA, cluster) is cluster  # type: ignore[arg-type]
    assert clock.slept == []


def test_only_groups_that_may_stand_still_are_asked_for(clock: Clock) -> None:
    done = group("done", {"clicks": {0: 100}})
    found = watched(Later(billing=("STABLE", 1, {"clicks": {0: 40}})), done, group("billing", {"clicks": {0: 40}}))
    assert found.groups["done"] is done
    assert list(found.groups) == ["done", "billing"]


@pytest.mark.parametrize("state", [("PREPARING_REBALANCING", 1), ("EMPTY", 0), ("DEAD", 0)])
def test_a_group_that_is_no_longer_settled_is_not_said_to_stand_still(clock: Clock, state: tuple[str, int]) -> None:
    found = watched(Later(g=(*state, {"clicks": {0: 40}})), group("g", {"clicks": {0: 40}}))
    assert found.groups["g"].still == {}


def test_a_position_that_is_gone_did_not_stand_still(clock: Clock) -> None:
    assert watched(Later(g=("STABLE", 1, {})), group("g", {"clicks": {0: 40}})).groups["g"].still == {}


def test_offsets_without_a_record_are_nothing_to_read(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers of transactions, or what was written by one that is open or was aborted."""
    monkeypatch.setattr(Reader, "without", (0,))
    at = {"clicks": {0: 40, 1: 40}}
    assert watched(Later(g=("STABLE", 1, at)), group("g", at)).groups["g"].still == {
        "clicks": {1: OLD_US + 40 * SECOND}
    }


def test_nothing_is_said_of_a_topic_that_may_not_be_read(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "refuses", True)
    at = {"clicks": {0: 40}}
    assert watched(Later(g=("STABLE", 1, at)), group("g", at)).groups["g"].still == {}


def test_a_group_without_a_coordinator_is_asked_for_again_and_then_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Clock(0)
    monkeypatch.setattr(module, "clock", watch)
    monkeypatch.setattr("time.sleep", watch.sleep)
    asked: list[list[str]] = []

    class Brokers:
        def answer(self, answer: Any) -> Any:
            if answer is None:
                raise LogError("kafka-refused", "not the coordinator", why="for a test", fix="none", retriable=True)
            return answer

    def ask(names: list[str]) -> dict[str, Any]:
        asked.append(names)
        return {n: n.upper() if n == "here" or (n == "moves" and len(asked) > 2) else None for n in names}

    brokers: Any = Brokers()
    assert module._asked_again(brokers, ["here", "moves", "gone"], ask, 15.0) == {"here": "HERE", "moves": "MOVES"}
    assert asked[:3] == [["here", "moves", "gone"], ["moves", "gone"], ["moves", "gone"]]
    assert sum(watch.slept) == pytest.approx(15.0, abs=0.3)


def test_a_broker_that_refuses_to_list_groups_is_not_asked_again() -> None:
    refused = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    moving = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    answers = iter([[moving, refused], [refused]])

    def listed(**_: Any) -> Any:
        return SimpleNamespace(valid=[], errors=next(answers))

    admin: Any = SimpleNamespace(answer=lambda answer: answer, client=SimpleNamespace(list_consumer_groups=listed))
    assert module._groups(admin, KAFKA, {}) == {}
    assert next(answers, None) is None
