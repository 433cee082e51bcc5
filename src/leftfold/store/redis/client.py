"""The connection to a Redis, and the errors that a user sees when it does not answer."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
import redis.asyncio

from leftfold.errors import StoreError, behind, start_or_check
from leftfold.store.engine import STORE
from leftfold.store.frames import framed

# A round trip takes milliseconds, and the longest script about one. A server that forks or waits for its disk seldom
# stands still for more than a second. A server that is stopped must not block a reader, or a writer's task, for ever.
_SECONDS = 5.0
_OPTIONS: dict[str, Any] = {
    "protocol": 2,  # replies to packed commands are then lists, whatever the client's default is
    "socket_connect_timeout": _SECONDS,
    "socket_timeout": _SECONDS,
}
# How Redis' message begins when it refuses a login, or a command that a user may not run.
_DENIED = ("NOAUTH", "WRONGPASS", "NOPERM", "invalid username-password pair", "Authentication required")


def connect(url: str, **options: Any) -> Any:
    """Open a synchronous client whose answers are bytes.

    It is typed as Any, because the library's types mix sync and asyncio, bytes and str.
    """
    return redis.Redis.from_url(url, **_OPTIONS, **options)


def connect_async(url: str, **options: Any) -> Any:
    """Open the same client for an event loop."""
    return redis.asyncio.Redis.from_url(url, **_OPTIONS, **options)


@contextmanager
def reaching(client: Any) -> Iterator[None]:
    """Turn the client's failures into a StoreError."""
    where = client.connection_pool.connection_kwargs
    with reaching_at(f"{where.get('host')}:{where.get('port')}"):
        yield


@contextmanager
def reaching_at(where: str) -> Iterator[None]:
    """Do the same for a client of the server at this address."""
    try:
        yield
    except redis.RedisError as error:
        raise failed(where, error) from error


def failed(where: str, error: redis.RedisError) -> StoreError:
    """Return the StoreError for a client's failure: Redis does not answer, or it answers and refuses."""
    says = str(error)
    kinds = (redis.AuthenticationError, redis.exceptions.AuthorizationError, redis.exceptions.NoPermissionError)
    if isinstance(error, kinds) or says.startswith(_DENIED):
        return StoreError(
            "store-denied",
            f"Redis at {where} refused the login, or a command of this user",
            why=says,
            fix="correct the user and the password in online.url of the profile, or let the user run the commands that "
            "docs/reference/project.md lists",
        )
    if behind(error, ssl.SSLError):
        return StoreError(
            "store-tls",
            f"no TLS connection could be made to Redis at {where}",
            why=says,
            fix="set online.ca of the profile to the PEM file of the CA that signed its certificate, and let "
            "online.url begin with rediss:// only if it speaks TLS",
        )
    if isinstance(error, redis.exceptions.OutOfMemoryError) or says.startswith("OOM "):
        return StoreError(
            "store-full",
            f"Redis at {where} has no memory left",
            why=says,
            state="what was written before stays; the batch is not committed",
            fix="give it more memory (maxmemory), or remove views; leftfold plan shows how much each needs",
            retriable=True,
        )
    if isinstance(error, redis.ResponseError):
        return StoreError(
            "store-refused",
            f"Redis at {where} refused a command",
            why=says,
            state="what was written before stays; the batch is not committed",
            fix="see Redis' own log for the cause; leftfold run continues once it is removed",
            retriable=True,
        )
    return StoreError(
        "store-unreachable",
        f"no Redis answered at {where}",
        why=says,
        fix=start_or_check(STORE),
        retriable=True,
    )


def pack(*arguments: str) -> bytes:
    """Return a command in the form in which it is sent."""
    return b"*%d\r\n%b" % (len(arguments), b"".join(framed(argument.encode()) for argument in arguments))


class RedisClient:
    """Sends several packed commands in one round trip, from a thread.

    Only for reads, because it may send them again.
    """

    def __init__(self, url: str) -> None:
        self._redis = connect(url)

    def execute(self, commands: Sequence[bytes]) -> list[Any]:
        with reaching(self._redis):
            try:
                return self._once(commands)
            except redis.ConnectionError:  # the connection may have been idle too long; the next one is new
                return self._once(commands)

    def _once(self, commands: Sequence[bytes]) -> list[Any]:
        pool = self._redis.connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command([b"".join(commands)])
            return [connection.read_response() for _ in commands]
        except BaseException:
            connection.disconnect()  # nobody would read the replies that are still to come on it
            raise
        finally:
            pool.release(connection)


class AsyncRedisClient:
    """Sends several packed commands in one round trip, from an event loop.

    Only for reads, because it may send them again.
    """

    def __init__(self, url: str) -> None:
        self._redis = connect_async(url)

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
