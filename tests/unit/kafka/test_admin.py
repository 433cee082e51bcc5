"""What is said when no broker answers. Answers of real ones: tests/engine/test_plan.py and test_observe.py."""

from __future__ import annotations

import socket

import pytest
from confluent_kafka import KafkaError

from leftfold.errors import LogError
from leftfold.kafka import admin as module
from leftfold.kafka.admin import Admin, passes
from leftfold.settings import Kafka


def test_a_topic_that_no_broker_makes_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(module, "_TRIES_S", (0.2,))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        admin = Admin(Kafka(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}"))
        with pytest.raises(LogError) as told:
            admin.create("clicks", partitions=3, replication=3, configs={})
    assert told.value.code == "kafka-unreachable"
    assert told.value.retriable


@pytest.mark.parametrize(
    ("code", "passing"),
    [
        (KafkaError._DESTROY_BROKER, True),  # killed, and no longer named by the others
        (KafkaError._ALL_BROKERS_DOWN, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError.LEADER_NOT_AVAILABLE, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.INVALID_CONFIG, False),
    ],
)
def test_what_may_pass(code: int, passing: bool) -> None:
    assert passes(KafkaError(code)) == passing


def test_a_topic_that_this_broker_has_not_heard_of_yet_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{}, {}, {"payments": 6}])
    monkeypatch.setattr(Admin, "partitions", lambda self, names: next(answers))
    assert Admin(Kafka(bootstrap="127.0.0.1:1")).partitions_of("payments") == 6


def test_a_topic_that_no_broker_hears_of_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.0)
    monkeypatch.setattr(Admin, "partitions", lambda self, names: {})
    with pytest.raises(LogError, match="topic payments is not known"):
        Admin(Kafka(bootstrap="127.0.0.1:1")).partitions_of("payments")
