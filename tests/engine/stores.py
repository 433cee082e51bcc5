"""What a test sees of rows inside a store, past the code that reads and writes them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import psycopg
import redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException

from leftfold.store.engine import BuildPlace
from leftfold.store.postgres.tables import build_id, entity_key
from leftfold.store.redis.cluster.buckets import BUCKETS, tags
from leftfold.store.redis.names import row_key
from leftfold.store.row_value import decoded, encoded


class Inside(Protocol):
    def row(self, at: BuildPlace, entity: str) -> dict[bytes, bytes]: ...

    def fill(self, at: BuildPlace, entity: str, row: Mapping[bytes, bytes]) -> None:
        """Set fields of a row, whatever it held."""

    def ttl(self, at: BuildPlace, entity: str) -> int:
        """Return the seconds until a row expires, -1 if it never does, -2 if there is none."""

    def expire(self, at: BuildPlace, entity: str, seconds: int) -> None: ...

    def count(self, at: BuildPlace) -> int:
        """Return the number of rows of a build, expired or not."""


def inside(url: str) -> Inside:
    if url.startswith("postgresql:"):
        return InsidePostgres(url)
    return InsideCluster(url) if url.startswith("redis+cluster:") else InsideRedis(url)


def cluster_client(url: str) -> Any:
    """Return the library's own client of a Redis Cluster. It asks the first server that is there for the others."""
    for server in url.partition("://")[2].split(","):
        host, _, port = server.rpartition(":")
        with suppress(RedisClusterException):
            return RedisCluster(host=host, port=int(port))
    raise AssertionError(f"no server of {url} answers")


class InsideRedis:
    def __init__(self, url: str) -> None:
        self._client = self._connected(url)

    def row(self, at: BuildPlace, entity: str) -> dict[bytes, bytes]:
        return dict(self._client.hgetall(self._key(at, entity)))

    def fill(self, at: BuildPlace, entity: str, row: Mapping[bytes, bytes]) -> None:
        for name, value in row.items():
            self._client.hset(self._key(at, entity), name.decode(), value)

    def ttl(self, at: BuildPlace, entity: str) -> int:
        return int(self._client.ttl(self._key(at, entity)))

    def expire(self, at: BuildPlace, entity: str, seconds: int) -> None:
        self._client.expire(self._key(at, entity), seconds)

    def count(self, at: BuildPlace) -> int:
        return sum(1 for _ in self._client.scan_iter(f"*:{at.namespace}:row:{at.view}:{at.build}:*", count=10_000))

    def _connected(self, url: str) -> Any:
        return redis.Redis.from_url(url)

    def _key(self, at: BuildPlace, entity: str) -> str:
        return row_key(at, entity)


class InsideCluster(InsideRedis):
    def _connected(self, url: str) -> Any:
        return cluster_client(url)

    def _key(self, at: BuildPlace, entity: str) -> str:
        return row_key(at, entity, tags()[zlib.crc32(entity.encode()) % BUCKETS])


class InsidePostgres:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def row(self, at: BuildPlace, entity: str) -> dict[bytes, bytes]:
        found = self._ask(
            "select value from leftfold.leftfold_rows where (expires is null or expires > now()) and ", at, entity
        )
        return decoded(found) if found is not None else {}

    def fill(self, at: BuildPlace, entity: str, row: Mapping[bytes, bytes]) -> None:
        value = encoded({**self.row(at, entity), **row})
        self._ask("delete from leftfold.leftfold_rows where ", at, entity)
        insert = "insert into leftfold.leftfold_rows (build, entity, value) values (%s, %s, %s)"
        self._connection.execute(insert, (build_id(at), entity_key(entity), value))

    def ttl(self, at: BuildPlace, entity: str) -> int:
        seconds = "ceil(extract(epoch from expires - now()))::bigint"
        found = self._ask(f"select coalesce({seconds}, -1) from leftfold.leftfold_rows where ", at, entity)
        return -2 if found is None else int(found)

    def expire(self, at: BuildPlace, entity: str, seconds: int) -> None:
        update = "update leftfold.leftfold_rows set expires = now() + make_interval(secs => %s) where "
        self._ask(update, at, entity, seconds)

    def count(self, at: BuildPlace) -> int:
        return int(self._one(b"select count(*) from leftfold.leftfold_rows where build = %s", (build_id(at),)))

    def _ask(self, statement: str, at: BuildPlace, entity: str, *values: Any) -> Any:
        whole = f"{statement} build = %s and entity = %s".encode()
        return self._one(whole, (*values, build_id(at), entity_key(entity)))

    def _one(self, statement: bytes, values: tuple[Any, ...]) -> Any:
        cursor = self._connection.execute(statement, values)
        row = cursor.fetchone() if cursor.description else None
        return row and row[0]
