"""The connection to the store, and what a person is told when it does not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
import redis.asyncio

from leftfold.errors import StoreError

_PROTOCOL = 2  # replies to packed commands are lists, whatever the client's default is


def connect(url: str) -> Any:
    """Its types mix sync, asyncio, bytes and str answers; ours are all sync and bytes."""
    return redis.Redis.from_url(url, protocol=_PROTOCOL)


@contextmanager
def reaching(client: Any) -> Iterator[None]:
    """Turns the client's failures into ours."""
    try:
        yield
    except redis.RedisError as error:
        where = client.connection_pool.connection_kwargs
        raise StoreError(
            "store-unreachable",
            f"no Redis answered at {where.get('host')}:{where.get('port')}",
            why=str(error),
            fix="leftfold status shows what runs; leftfold up starts the local cluster",
            retriable=True,
        ) from error


def pack(*arguments: str) -> bytes:
    """A command as it goes over the wire."""
    encoded = [argument.encode() for argument in arguments]
    return b"*%d\r\n%b" % (len(encoded), b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in encoded))


class HashRead:
    """HMGET of the same fields of many hashes: all but the key is packed once."""

    def __init__(self, fields: Sequence[str]) -> None:
        head, _, tail = pack("HMGET", "", *fields).partition(b"$0\r\n\r\n")
        self._head, self._tail = head, tail

    def of(self, key: str) -> bytes:
        encoded = key.encode()
        return b"%b$%d\r\n%b\r\n%b" % (self._head, len(encoded), encoded, self._tail)


class Client:
    """Several packed commands in one round trip, from a thread. Only reads: they may be sent again.

    The client's own pipeline packs every argument at every call, which for a row of tiles costs more than Redis does.
    """

    def __init__(self, url: str) -> None:
        self._redis = connect(url)

    def execute(self, commands: Sequence[bytes]) -> list[Any]:
        with reaching(self._redis):
            try:
                return self._once(commands)
            except redis.ConnectionError:  # a connection that had been idle too long; the next one is new
                return self._once(commands)

    def _once(self, commands: Sequence[bytes]) -> list[Any]:
        pool = self._redis.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([b"".join(commands)])
            return [connection.read_response() for _ in commands]
        except BaseException:
            connection.disconnect()  # whatever else is under way on it belongs to nobody
            raise
        finally:
            pool.release(connection)


class AsyncClient:
    """The same, from an event loop."""

    def __init__(self, url: str) -> None:
        self._redis: Any = redis.asyncio.Redis.from_url(url, protocol=_PROTOCOL)

    async def execute(self, commands: Sequence[bytes]) -> list[Any]:
        with reaching(self._redis):
            try:
                return await self._once(commands)
            except redis.ConnectionError:
                return await self._once(commands)

    async def _once(self, commands: Sequence[bytes]) -> list[Any]:
        pool = self._redis.connection_pool
        connection = await pool.get_connection()
        try:
            await connection.send_packed_command([b"".join(commands)])
            return [await connection.read_response() for _ in commands]
        except BaseException:
            await connection.disconnect()
            raise
        finally:
            await pool.release(connection)
