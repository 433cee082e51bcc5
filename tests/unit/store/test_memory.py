"""What a Redis tells of its memory, as its INFO has it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import redis

from leftfold.errors import StoreError
from leftfold.store.engine import MemoryInUse
from leftfold.store.memory import memory_in_use
from leftfold.store.redis import store

TOLD = {"used_memory": 1_048_576, "maxmemory": 0, "maxmemory_policy": "noeviction", "used_memory_human": "1M"}


def told(monkeypatch: pytest.MonkeyPatch, answer: Any) -> MemoryInUse | None:
    client = mock.Mock()
    client.info.side_effect = [answer]
    client.connection_pool.connection_kwargs = {"host": "store", "port": 6379}

    monkeypatch.setattr(store, "connect", lambda _url: client)
    found = memory_in_use("redis://store:6379")
    assert client.mock_calls == [mock.call.info("memory"), mock.call.close()]  # reads, and only that
    return found


def test_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, TOLD) == MemoryInUse(1_048_576, 0, "noeviction")


@pytest.mark.parametrize("missing", ["used_memory", "maxmemory", "maxmemory_policy"])
def test_what_is_not_told_is_not_guessed(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    assert told(monkeypatch, {k: v for k, v in TOLD.items() if k != missing}) is None


def test_a_user_who_may_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, redis.exceptions.NoPermissionError("no permissions to run 'info'")) is None


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError) as caught:
        told(monkeypatch, redis.ConnectionError("refused"))
    assert caught.value.code == "store-unreachable"
