"""Reading the offsets of groups from outside. Real ones are read by tests/engine/test_consumers.py and others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kafka import TopicPartition  # type: ignore[import-untyped]
from kafka.errors import (  # type: ignore[import-untyped]
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    NotCoordinatorError,
)

import leftfold
from leftfold.errors import LogError
from leftfold.kafka import group_offsets as module
from leftfold.kafka.group import LogPartition, Position
from leftfold.kafka.group_offsets import group_offsets
from leftfold.settings import Kafka

KAFKA = Kafka(bootstrap="nowhere:1")
PARTS = [LogPartition("clicks", 0), LogPartition("clicks", 1)]


class Client:
    """Answers with each of these in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.closed = False

    def list_group_offsets(self, asked: dict[str, Any]) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(asked, answer)

    def close(self) -> None:
        self.closed = True


def read(monkeypatch: pytest.MonkeyPatch, client: Client) -> dict[LogPartition, Position]:
    monkeypatch.setattr(module, "python_admin", lambda _: client)
    try:
        return group_offsets(KAFKA, "billing", PARTS)
    finally:
        assert client.closed


def test_positions_and_partitions_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        TopicPartition("clicks", 0): SimpleNamespace(offset=17, metadata="more"),
        TopicPartition("clicks", 1): SimpleNamespace(offset=-1, metadata=""),
    }
    assert read(monkeypatch, Client(told)) == {PARTS[0]: Position(17, "more")}


def test_a_coordinator_that_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(NotCoordinatorError(), NotCoordinatorError(), {})
    assert read(monkeypatch, client) == {}
    assert client.answers == []


def test_a_group_that_does_not_exist_has_no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, Client(GroupIdNotFoundError())) == {}


def test_denied_is_not_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LogError) as raised:
        read(monkeypatch, Client(GroupAuthorizationFailedError()))
    assert raised.value.code == "kafka-denied"


def test_librdkafka_is_never_asked() -> None:
    """It would end the process: confluentinc/librdkafka#5040."""
    root = Path(leftfold.__file__).parent
    assert [path for path in root.rglob("*.py") if "list_consumer_group_offsets" in path.read_text()] == []


class Setting:
    """An admin whose brokers answer for the one partition with each of these codes in turn, then accept."""

    def __init__(self, codes: list[int]) -> None:
        self.client = self
        self._codes = codes

    def alter_consumer_group_offsets(self, asked: list[Any], **_: Any) -> dict[str, Any]:
        error = KafkaError(self._codes.pop(0)) if self._codes else None
        place = SimpleNamespace(error=error)
        answer = SimpleNamespace(topic_partitions=[place])
        return {asked[0].group_id: SimpleNamespace(result=lambda: answer)}


def test_a_position_is_set_once_the_coordinator_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS]
    monkeypatch.setattr(module, "Admin", lambda _: Setting(codes))
    module.set_group_offsets(KAFKA, "billing", {PARTS[0]: Position(3, "")})
    assert codes == []


def test_a_position_is_not_set_under_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Admin", lambda _: Setting([KafkaError.UNKNOWN_MEMBER_ID]))
    with pytest.raises(LogError) as raised:
        module.set_group_offsets(KAFKA, "billing", {PARTS[0]: Position(3, "")})
    assert raised.value.code == "group-has-members"
