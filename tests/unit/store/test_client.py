"""What a failure of Redis is told as. A real one is refused in tests/engine/test_secured.py."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import redis

from leftfold.errors import StoreError
from leftfold.store.redis import client as module
from leftfold.store.redis.client import AsyncRedisClient, RedisClient, connect, failed, pack


def tls() -> redis.ConnectionError:
    error = redis.ConnectionError("Error 1 connecting to r:6379.")
    error.__cause__ = ssl.SSLCertVerificationError("certificate verify failed")
    return error


@pytest.mark.parametrize(
    ("error", "code", "retriable"),
    [
        (redis.ConnectionError("refused"), "store-unreachable", True),
        (redis.TimeoutError("Timeout reading from r:6379"), "store-unreachable", True),
        (redis.AuthenticationError("invalid username-password pair or user is disabled."), "store-denied", False),
        (redis.ResponseError("NOAUTH Authentication required."), "store-denied", False),
        (
            redis.exceptions.NoPermissionError("this user has no permissions to run the 'set' command"),
            "store-denied",
            False,
        ),
        (tls(), "store-tls", False),
        (redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "store-full", True),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), "store-refused", True),
    ],
)
def test_by_what_redis_says(error: redis.RedisError, code: str, retriable: bool) -> None:
    told = failed("r:6379", error)
    assert told.code == code
    assert told.retriable is retriable
    assert "r:6379" in told.what


def test_a_server_that_says_nothing_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was stopped: its kernel takes connections, and nobody answers."""
    monkeypatch.setitem(module._OPTIONS, "socket_timeout", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with pytest.raises(StoreError) as sync:
            RedisClient(url).execute([pack("PING")])
        with pytest.raises(StoreError) as on_a_loop:
            asyncio.run(AsyncRedisClient(url).execute([pack("PING")]))
    assert sync.value.code == on_a_loop.value.code == "store-unreachable"


def test_timeouts_are_explicit_and_a_url_may_change_them() -> None:
    options = connect("redis://h:1/0").connection_pool.connection_kwargs
    assert options["socket_timeout"] == options["socket_connect_timeout"] == 5.0
    assert connect("redis://h:1/0?socket_timeout=2").connection_pool.connection_kwargs["socket_timeout"] == 2.0
