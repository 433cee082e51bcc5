"""The connections to the servers of a Redis Cluster, from threads and from event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qs, urlsplit

import redis
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

from leftfold.store.redis.client import connect, connect_async, reaching_at
from leftfold.store.redis.cluster.buckets import BUCKETS, tags
from leftfold.store.redis.cluster.routes import Answers, NodeAddress, Routes, Step
from leftfold.store.redis.link import Command, Pieces
from leftfold.store.redis.scripts import BEGIN_BATCH, MOVE_MARK, MOVE_REDRIVEN, PACK, TELL_HISTORY, WRITE_ROWS

# The scripts that are called often enough to be sent by their hash.
_SCRIPTS = (WRITE_ROWS, PACK, BEGIN_BATCH, MOVE_MARK, MOVE_REDRIVEN, TELL_HISTORY)
# A writer bears a fail-over by the default settings of a cluster (15 s until a server counts as gone), so a batch need
# not be begun again. A reader has somebody who waits: it is as patient as with one Redis that is slow, by its URL.
WRITERS_PATIENCE_S, READERS_PATIENCE_S = 30.0, 5.0
_PORT = 6_379
_SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}

T = TypeVar("T")


@dataclass(frozen=True)
class ClusterUrl:
    """The URL of a cluster: some of its servers, and what to say to each."""

    parts: SplitResult
    login: str  # with the @ behind it; empty if there is none
    seeds: tuple[NodeAddress, ...]

    @classmethod
    def parse(cls, url: str) -> ClusterUrl:
        parts = urlsplit(url)
        login, at, hosts = parts.netloc.rpartition("@")
        split = [urlsplit(f"//{host}") for host in hosts.split(",")]
        seeds = tuple(NodeAddress(one.hostname or "", one.port or _PORT) for one in split)
        return cls(parts, login + at, seeds)

    @property
    def where(self) -> str:
        return ",".join(f"{seed.host}:{seed.port}" for seed in self.seeds)

    @property
    def answer_s(self) -> float:
        """The seconds that a reader waits for an answer."""
        (given,) = parse_qs(self.parts.query).get("socket_timeout", [f"{READERS_PATIENCE_S}"])[-1:]
        return float(given)

    def of(self, address: NodeAddress) -> str:
        """Return the URL of one server."""
        host = f"[{address.host}]" if ":" in address.host else address.host
        netloc = f"{self.login}{host}:{address.port}"
        return self.parts._replace(scheme=_SCHEMES[self.parts.scheme], netloc=netloc).geturl()


class Nodes:
    """The way to a cluster, from threads. Without a patience it is a reader's."""

    buckets = BUCKETS

    def __init__(self, url: str, patience_s: float | None = None) -> None:
        self._url = ClusterUrl.parse(url)
        self._routes = Routes(self._url.seeds, patience_s or self._url.answer_s, _SCRIPTS)
        self._clients: dict[NodeAddress, Any] = {}

    def tag(self, bucket: int) -> str:
        return tags()[bucket]

    def load(self, script: str) -> str:
        """Return the hash of a script. A server that does not know it says so, and then gets all of them."""
        assert script in _SCRIPTS, "a script that servers are not taught"
        return sha1(script.encode(), usedforsecurity=False).hexdigest()

    def run(self, commands: Sequence[Command]) -> list[Any]:
        with self.reaching():
            return self._driven(self._routes.routed(commands))

    def servers(self) -> list[Any]:
        return [self._client(address) for address in self._driven(self._routes.owners())]

    def reaching(self) -> AbstractContextManager[None]:
        return reaching_at(self._url.where)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _driven(self, route: Generator[Step, Answers, T]) -> T:
        answers: Answers | None = None
        while True:
            try:
                step = next(route) if answers is None else route.send(answers)
            except StopIteration as done:
                result: T = done.value
                return result
            if step.pause_s:
                time.sleep(step.pause_s)
            answers = self._sent(step)

    def _sent(self, step: Step) -> Answers:
        """Send to all servers first, then read: so they work at the same time."""
        answers: dict[NodeAddress, list[Any]] = {}
        open_: list[tuple[NodeAddress, Any, Any, int]] = []
        try:
            for address, commands in step.sends.items():
                pool = self._client(address).connection_pool
                connection = None
                try:
                    connection = pool.get_connection()
                    open_.append((address, pool, connection, len(commands)))
                    connection.send_packed_command([_joined(commands)])
                except (redis.ConnectionError, redis.TimeoutError) as error:
                    answers[address] = [error] * len(commands)
                    if connection is not None:
                        open_.pop()
                        connection.disconnect()
                        pool.release(connection)
            while open_:
                address, pool, connection, count = open_[-1]
                answers[address] = _read(connection, count)
                open_.pop()
                pool.release(connection)
        except BaseException:
            for _, pool, connection, _ in open_:
                connection.disconnect()  # nobody would read the replies that are still to come on it
                pool.release(connection)
            raise
        return answers

    def _client(self, address: NodeAddress) -> Any:
        client = self._clients.get(address)
        if client is None:
            # Routes try again, after another look at who has the slots.
            client = connect(self._url.of(address), retry=redis.retry.Retry(NoBackoff(), 0))
            client = self._clients.setdefault(address, client)
        return client


def _read(connection: Any, count: int) -> list[Any]:
    answers: list[Any] = []
    while len(answers) < count:
        try:
            answers.append(connection.read_response())
        except redis.ResponseError as refusal:
            answers.append(refusal)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            if isinstance(error, redis.exceptions.BusyLoadingError):
                answers.append(error)
                continue
            connection.disconnect()
            answers += [error] * (count - len(answers))
    return answers


class AsyncNodes:
    """The way to a cluster, from one event loop."""

    def __init__(self, url: str) -> None:
        self._url = ClusterUrl.parse(url)
        self._routes = Routes(self._url.seeds, self._url.answer_s)
        self._clients: dict[NodeAddress, Any] = {}

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        with reaching_at(self._url.where):
            route, answers = self._routes.routed(commands), None
            while True:
                try:
                    step = next(route) if answers is None else route.send(answers)
                except StopIteration as done:
                    result: list[Any] = done.value
                    return result
                if step.pause_s:
                    await asyncio.sleep(step.pause_s)
                answers = await self._sent(step)

    async def _sent(self, step: Step) -> Answers:
        if len(step.sends) == 1:
            ((address, commands),) = step.sends.items()
            return {address: await self._asked(address, commands)}
        found = await asyncio.gather(*(self._asked(address, commands) for address, commands in step.sends.items()))
        return dict(zip(step.sends, found, strict=True))

    async def _asked(self, address: NodeAddress, commands: Sequence[Pieces]) -> list[Any]:
        pool = self._client(address).connection_pool
        try:
            connection = await pool.get_connection()
        except (redis.ConnectionError, redis.TimeoutError) as error:
            return [error] * len(commands)
        answers: list[Any] = []
        try:
            await connection.send_packed_command([_joined(commands)])
            while len(answers) < len(commands):
                try:
                    answers.append(await connection.read_response())
                except (redis.ResponseError, redis.exceptions.BusyLoadingError) as refusal:
                    answers.append(refusal)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            await connection.disconnect()
            answers += [error] * (len(commands) - len(answers))
        except BaseException:
            await connection.disconnect()
            raise
        finally:
            await pool.release(connection)
        return answers

    def _client(self, address: NodeAddress) -> Any:
        client = self._clients.get(address)
        if client is None:
            retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
            client = self._clients[address] = connect_async(self._url.of(address), retry=retry)
        return client


def _joined(commands: Sequence[Pieces]) -> bytes:
    return b"".join(piece for pieces in commands for piece in pieces)
