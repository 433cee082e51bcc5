"""A member that has parted from its coordinator: told after three looks that show the same, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from leftfold import clock
from leftfold.kafka import assignment_check
from leftfold.kafka.assignment_check import AssignmentCheck
from leftfold.settings import Kafka

View = tuple[str, str, str]  # partitions that are read, assigned and to be read, as digits
SAME: View = ("01", "01", "01")
NOT_HEARD_OF: View = ("", "01", "01")
NOT_GIVEN_UP: View = ("01", "01", "0")
WAITS_FOR_ANOTHER: View = ("", "", "01")


class Client:
    """The part of a Kafka consumer that is looked at."""

    def __init__(self) -> None:
        self.reads: list[TopicPartition] = []

    def memberid(self) -> str:
        return "me"

    def assignment(self) -> list[TopicPartition]:
        return self.reads


def places(digits: str) -> list[TopicPartition]:
    return [TopicPartition("t", int(digit)) for digit in digits]


def told(monkeypatch: pytest.MonkeyPatch, views: list[View | None]) -> list[bool]:
    """What the check says at each look; None is a coordinator that does not answer."""
    now = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    answers: Iterator[View | None] = iter(views)

    def describe(groups: list[str], **_: Any) -> dict[str, Future[Any]]:
        view, future = next(answers), Future[Any]()
        if view is None:
            future.set_exception(KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)))
            return {groups[0]: future}
        reads, assigned, target = (SimpleNamespace(topic_partitions=places(digits)) for digits in view)
        client.reads = reads.topic_partitions
        member = SimpleNamespace(member_id="me", assignment=assigned, target_assignment=target)
        other = SimpleNamespace(member_id="other", assignment=target, target_assignment=target)
        future.set_result(SimpleNamespace(members=[other, member]))
        return {groups[0]: future}

    client = Client()
    monkeypatch.setattr(
        assignment_check, "AdminClient", lambda _: SimpleNamespace(describe_consumer_groups=describe), raising=True
    )
    check = AssignmentCheck(Kafka(bootstrap="127.0.0.1:9"), "g")
    said: list[bool] = []
    for _ in views:
        now += 10.0
        assert not check.has_parted(client)  # type: ignore[arg-type] # it asks now, and reads the answer at the next call
        said.append(check.has_parted(client))  # type: ignore[arg-type]
    return said


@pytest.mark.parametrize(
    ("views", "says"),
    [
        ([SAME] * 4, [False] * 4),
        ([NOT_HEARD_OF] * 3, [False, False, True]),
        ([NOT_GIVEN_UP] * 4, [False, False, True, False]),
        ([WAITS_FOR_ANOTHER] * 4, [False] * 4),  # the other member is the one that has parted
        ([NOT_HEARD_OF, NOT_GIVEN_UP, NOT_GIVEN_UP, NOT_GIVEN_UP], [False, False, False, True]),
        ([NOT_HEARD_OF, NOT_HEARD_OF, SAME, NOT_HEARD_OF], [False] * 4),
        ([NOT_HEARD_OF, NOT_HEARD_OF, None, NOT_HEARD_OF], [False] * 4),  # nothing is known: not parted
    ],
)
def test_a_member_that_has_parted(monkeypatch: pytest.MonkeyPatch, views: list[View | None], says: list[bool]) -> None:
    assert told(monkeypatch, views) == says
