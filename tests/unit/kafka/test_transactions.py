"""The end of a transaction whose coordinator does not answer. Real ones are in tests/engine/test_transactions.py."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from leftfold.kafka import transactions as module
from leftfold.kafka.transactions import Transactions
from leftfold.settings import Kafka


class Client:
    """Fails to commit with each of these errors in turn, and then commits."""

    def __init__(self, *errors: KafkaError) -> None:
        self.errors = list(errors)
        self.calls: list[str] = []

    def init_transactions(self, _: float) -> None: ...
    def begin_transaction(self) -> None: ...
    def send_offsets_to_transaction(self, *_: Any) -> None: ...
    def purge(self) -> None: ...

    def commit_transaction(self, _: float) -> None:
        self.calls.append("commit")
        if self.errors:
            raise KafkaException(self.errors.pop(0))

    def abort_transaction(self, _: float) -> None:
        self.calls.append("abort")


def committed(monkeypatch: pytest.MonkeyPatch, client: Client) -> bool:
    monkeypatch.setattr(module, "Client", lambda _: client)
    return Transactions(Kafka(bootstrap="nowhere:1"), "id").commit([], {}, object())


def test_a_commit_without_an_answer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))
    assert committed(monkeypatch, client)
    assert client.calls == ["commit", "commit"]


def test_any_other_error_gives_the_client_up(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(KafkaError(KafkaError.INVALID_TXN_STATE, "aborted"))
    assert not committed(monkeypatch, client)
    assert client.calls == ["commit", "abort"]
