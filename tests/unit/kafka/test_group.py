"""A member of a group: which refused commits are sent again."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from leftfold.kafka import group
from leftfold.kafka.group import GroupEvents, LogPartition, Member, Position
from leftfold.settings import Kafka


class Answers:
    """A client that refuses commits with these codes, one after another, and accepts the next one."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes

    def subscribe(self, *_: Any, **__: Any) -> None: ...

    def commit(self, **_: Any) -> list[Any]:
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return []


@pytest.mark.parametrize(
    ("codes", "patience_s", "accepted"),
    [
        ([], 0.0, True),
        ([KafkaError.STALE_MEMBER_EPOCH], 5.0, True),  # a heartbeat brings the new epoch
        ([KafkaError.NOT_COORDINATOR, KafkaError.STALE_MEMBER_EPOCH], 5.0, True),
        ([KafkaError.STALE_MEMBER_EPOCH], -1.0, False),
        ([KafkaError.UNKNOWN_MEMBER_ID], 5.0, False),  # the broker has put the member out
        ([KafkaError.FENCED_MEMBER_EPOCH], 5.0, False),
    ],
)
def test_a_refused_commit(monkeypatch: pytest.MonkeyPatch, codes: list[int], patience_s: float, accepted: bool) -> None:
    monkeypatch.setattr(group, "Consumer", lambda _: Answers(codes))
    monkeypatch.setattr(group, "_AGAIN_S", 0.0)
    member = Member(Kafka(bootstrap="127.0.0.1:9"), "g", ["t"], GroupEvents())
    assert member.commit({LogPartition("t", 0): Position(1, "")}, patience_s) is accepted
