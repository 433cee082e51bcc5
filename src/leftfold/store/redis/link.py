"""The way to the servers of a store: commands go out, raw answers come back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from leftfold.store.frames import framed
from leftfold.store.redis.client import pack, reaching

Pieces = Sequence[bytes | memoryview]


@dataclass(frozen=True)
class Command:
    """A packed command, in pieces, and one of its keys. In a cluster, all its keys lie in the slot of this one."""

    key: str
    pieces: Pieces
    optional: bool = False  # if its server is away, the answer is the error, at once


def command(verb: str, key: str, *arguments: str | int) -> Command:
    return Command(key, (pack(verb, key, *map(str, arguments)),))


def evaluated(script: str, keys: Sequence[str], *arguments: str | int) -> Command:
    """Return the command that runs a script."""
    return Command(keys[0], (pack("EVAL", script, f"{len(keys)}", *keys, *map(str, arguments)),))


def evaluated_by(sha: str, keys: Sequence[str], *arguments: str | int) -> Command:
    """Return the command that runs a script which the servers know by this hash."""
    return Command(keys[0], (pack("EVALSHA", sha, f"{len(keys)}", *keys, *map(str, arguments)),))


def opening_of(sha: str) -> bytes:
    """Return how a packed command begins that runs a script by its hash."""
    return framed(b"EVALSHA") + framed(sha.encode())


class Link(Protocol):
    buckets: int

    def tag(self, bucket: int) -> str:
        """Return the hash tag in the keys of a bucket; empty without a cluster."""

    def load(self, script: str) -> str:
        """Let the servers know a script. Returns its hash."""

    def run(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip, and return their answers. A refusal is raised, as StoreError.

        Only for commands that may run twice: if an answer is lost, they are sent again.
        """

    def servers(self) -> list[Any]:
        """Return a client of each server that holds rows."""

    def reaching(self) -> AbstractContextManager[None]:
        """Turn failures of these clients into a StoreError."""

    def close(self) -> None: ...


class Single:
    """The way to one Redis."""

    buckets = 1

    def __init__(self, client: Any) -> None:
        self._client = client

    def tag(self, bucket: int) -> str:
        return ""

    def load(self, script: str) -> str:
        with self.reaching():
            sha: str = self._client.script_load(script)
        return sha

    def run(self, commands: Sequence[Command]) -> list[Any]:
        whole = b"".join(piece for command in commands for piece in command.pieces)
        with self.reaching():
            pool = self._client.connection_pool
            connection = pool.get_connection()

            def once() -> list[Any]:
                connection.send_packed_command([whole])
                return [connection.read_response() for _ in commands]

            try:
                return list(connection.retry.call_with_retry(once, lambda _: connection.disconnect()))
            except BaseException:
                connection.disconnect()  # nobody would read the replies that are still to come on it
                raise
            finally:
                pool.release(connection)

    def servers(self) -> list[Any]:
        return [self._client]

    def reaching(self) -> AbstractContextManager[None]:
        return reaching(self._client)

    def close(self) -> None:
        self._client.close()
