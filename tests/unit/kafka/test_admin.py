"""What is said when no broker answers. Answers of real ones: tests/engine/test_plan.py and test_observe.py."""

from __future__ import annotations

import socket

import pytest

from leftfold.errors import LogError
from leftfold.kafka import admin as module
from leftfold.kafka.admin import Admin
from leftfold.settings import Kafka


def test_a_topic_that_no_broker_makes_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        admin = Admin(Kafka(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}"))
        with pytest.raises(LogError) as told:
            admin.create("clicks", partitions=3, replication=3, configs={})
    assert told.value.code == "kafka-unreachable"
    assert told.value.retriable
