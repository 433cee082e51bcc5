"""What a test sees of rows inside a store, past the code that reads and writes them."""

from __future__ import annotations

from typing import Protocol

import redis

from leftfold.store.engine import BuildPlace
from leftfold.store.redis.names import row_key


class Inside(Protocol):
    def row(self, at: BuildPlace, entity: str) -> dict[bytes, bytes]: ...

    def put(self, at: BuildPlace, entity: str, name: str, value: bytes) -> None:
        """Set one field of a row that is there."""

    def ttl(self, at: BuildPlace, entity: str) -> int:
        """Return the seconds until a row expires, -1 if it never does, -2 if there is none."""

    def expire(self, at: BuildPlace, entity: str, seconds: int) -> None: ...


class InsideRedis:
    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def row(self, at: BuildPlace, entity: str) -> dict[bytes, bytes]:
        return dict(self._client.hgetall(row_key(at, entity)))  # type: ignore[arg-type] # the library mixes in asyncio

    def put(self, at: BuildPlace, entity: str, name: str, value: bytes) -> None:
        self._client.hset(row_key(at, entity), name, value)

    def ttl(self, at: BuildPlace, entity: str) -> int:
        return int(self._client.ttl(row_key(at, entity)))

    def expire(self, at: BuildPlace, entity: str, seconds: int) -> None:
        self._client.expire(row_key(at, entity), seconds)
