"""What is made of the producers that brokers tell. Real ones are asked for by tests/engine/test_observe.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError, TopicAuthorizationFailedError  # type: ignore[import-untyped]

from leftfold.kafka import python_admin as module
from leftfold.kafka.python_admin import IdempotentProducers
from leftfold.settings import Kafka

KAFKA = Kafka(bootstrap="nowhere:1")


def producer(last_ms: int, coordinator_epoch: int = -1) -> Any:
    return SimpleNamespace(last_timestamp=last_ms, coordinator_epoch=coordinator_epoch)


class Client:
    def __init__(self, told: dict[int, list[Any]] | None) -> None:
        self.told = told
        self.closed = False

    def describe_producers(self, places: list[Any]) -> dict[Any, Any]:
        if self.told is None:
            raise TopicAuthorizationFailedError
        return {place: SimpleNamespace(active_producers=self.told[place.partition]) for place in places}

    def close(self) -> None:
        self.closed = True


def test_the_newest_of_all_that_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client({0: [producer(5), producer(7), producer(6)], 1: [], 2: [producer(9, coordinator_epoch=0)]})
    opened: list[Kafka] = []

    def opening(kafka: Kafka) -> Client:
        opened.append(kafka)
        return client

    monkeypatch.setattr(module, "python_admin", opening)
    producers = IdempotentProducers(KAFKA)
    assert producers.last_times("clicks", [0, 1, 2]) == {0: 7_000, 1: 0}  # a marker's time is no record's
    assert producers.last_times("clicks", [1]) == {1: 0}
    producers.close()
    assert opened == [KAFKA]
    assert client.closed


def test_a_refusal_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "python_admin", lambda _: Client(None))
    assert IdempotentProducers(KAFKA).last_times("clicks", [0]) == {}


def test_a_cluster_that_is_gone_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: Kafka) -> Any:
        raise KafkaConnectionError

    monkeypatch.setattr(module, "python_admin", none)
    producers = IdempotentProducers(KAFKA)
    assert producers.last_times("clicks", [0]) == {}
    producers.close()


def test_nothing_is_asked_about_nothing() -> None:
    assert IdempotentProducers(KAFKA).last_times("clicks", []) == {}
