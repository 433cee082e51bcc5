"""What a test sees of rows inside a store, past the code that reads and writes them."""

from __future__ import annotations

import zlib
from typing import Any, Protocol

import redis
from redis.cluster import RedisCluster

from leftfold.store.engine import BuildPlace
from leftfold.store.redis.cluster.buckets import BUCKETS, tags
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
        self._client = self._connected(url)

    def row(self, at: BuildPlace, entity: str) -> dict[bytes, bytes]:
        return dict(self._client.hgetall(self._key(at, entity)))

    def put(self, at: BuildPlace, entity: str, name: str, value: bytes) -> None:
        self._client.hset(self._key(at, entity), name, value)

    def ttl(self, at: BuildPlace, entity: str) -> int:
        return int(self._client.ttl(self._key(at, entity)))

    def expire(self, at: BuildPlace, entity: str, seconds: int) -> None:
        self._client.expire(self._key(at, entity), seconds)

    def _connected(self, url: str) -> Any:
        return redis.Redis.from_url(url)

    def _key(self, at: BuildPlace, entity: str) -> str:
        return row_key(at, entity)


class InsideCluster(InsideRedis):
    def _connected(self, url: str) -> Any:
        host, _, port = url.partition("://")[2].partition(",")[0].rpartition(":")
        return RedisCluster(host=host, port=int(port))

    def _key(self, at: BuildPlace, entity: str) -> str:
        return row_key(at, entity, tags()[zlib.crc32(entity.encode()) % BUCKETS])


def inside_of(url: str) -> Inside:
    return InsideCluster(url) if url.startswith("redis+cluster:") else InsideRedis(url)
