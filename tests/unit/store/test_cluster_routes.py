"""Where commands go in a Redis Cluster: redirections, lost servers, scripts that a server lacks; without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.exceptions import AskError, MovedError, NoScriptError, TryAgainError

from leftfold import clock
from leftfold.store.redis.client import pack
from leftfold.store.redis.cluster.buckets import SLOTS
from leftfold.store.redis.cluster.routes import NodeAddress, Routes
from leftfold.store.redis.link import Command, Pieces, command

A, B = NodeAddress("h", 1), NodeAddress("h", 2)
LOOK = pack("CLUSTER", "SLOTS")
Server = Callable[[NodeAddress, bytes], Any]


def of_all(owner: NodeAddress) -> list[Any]:
    return [[0, SLOTS - 1, [owner.host.encode(), owner.port, b"id"]]]


class Servers:
    """What servers answer, and what they were sent."""

    def __init__(self, answer: Server) -> None:
        self.sent: list[tuple[int, str]] = []
        self._answer = answer

    def run(self, commands: list[Command], *, patience_s: float = 60.0, scripts: tuple[str, ...] = ()) -> list[Any]:
        route = Routes([A, B], patience_s, scripts).routed(commands)
        answers: dict[NodeAddress, list[Any]] | None = None
        while True:
            try:
                step = next(route) if answers is None else route.send(answers)
            except StopIteration as done:
                return list(done.value)
            answers = {to: [self._reply(to, pieces) for pieces in some] for to, some in step.sends.items()}

    def _reply(self, to: NodeAddress, pieces: Pieces) -> Any:
        whole = b"".join(pieces)
        self.sent.append((to.port, " ".join(whole.decode().split("\r\n")[2::2])))
        return self._answer(to, whole)


def get(key: str) -> Command:
    return command("GET", key)


def test_a_server_that_no_longer_has_the_slot() -> None:
    owner = [A]

    def answer(to: NodeAddress, said: bytes) -> Any:
        if said == LOOK:
            return of_all(owner[0])
        owner[0] = B
        return b"1" if to == B else MovedError("7 h:2")

    servers = Servers(answer)
    assert servers.run([get("x")]) == [b"1"]
    assert servers.sent == [(1, "CLUSTER SLOTS"), (1, "GET x"), (1, "CLUSTER SLOTS"), (2, "GET x")]


def test_commands_of_a_slot_keep_their_order_when_one_is_redirected() -> None:
    """The slot is being moved: x is at the other server already, y is not. z lies in another slot."""

    def answer(to: NodeAddress, said: bytes) -> Any:
        if said == LOOK:
            return of_all(A)
        if b"{s}x" in said and to == A:
            return AskError("7 h:2")
        return b"%d" % to.port

    servers = Servers(answer)
    assert servers.run([get("{s}w"), get("{s}x"), get("{s}y"), get("z")]) == [b"1", b"2", b"1", b"1"]
    assert servers.sent[1:] == [
        *((1, f"GET {key}") for key in ("{s}w", "{s}x", "{s}y", "z")),  # y is not taken from this answer
        *((2, "ASKING"), (2, "GET {s}x")),
        (1, "GET {s}y"),
    ]


def test_a_server_that_lacks_a_script_gets_all_of_them() -> None:
    knows = set[NodeAddress]()

    def answer(to: NodeAddress, said: bytes) -> Any:
        if said == LOOK:
            return of_all(A)
        if b"SCRIPT" in said:
            knows.add(to)
        return b"1" if to in knows else NoScriptError("no")

    servers = Servers(answer)
    assert servers.run([command("EVALSHA", "x")], scripts=("one", "two")) == [b"1"]
    assert [said for _, said in servers.sent[2:]] == ["SCRIPT LOAD one", "SCRIPT LOAD two", "EVALSHA x"]


def test_a_server_that_is_gone_until_another_has_its_slots() -> None:
    """It answers the first question only. The other server does not know at once that it has the slots now."""
    looks: list[NodeAddress] = []

    def answer(to: NodeAddress, said: bytes) -> Any:
        if said == LOOK:
            looks.append(to)
            return of_all(A if len(looks) < 3 else B) if to == B or len(looks) == 1 else redis.ConnectionError("gone")
        return b"1" if to == B else redis.ConnectionError("gone")

    servers = Servers(answer)
    assert servers.run([get("x")]) == [b"1"]
    assert looks == [A, B, B]
    assert servers.sent[-1] == (2, "GET x")


def test_what_is_optional_is_not_waited_for() -> None:
    def answer(to: NodeAddress, said: bytes) -> Any:
        return of_all(A) if said == LOOK else redis.ConnectionError("refused")

    (answered,) = Servers(answer).run([Command("x", (pack("GET", "x"),), optional=True)])
    assert isinstance(answered, redis.ConnectionError)


@pytest.mark.parametrize(
    "error",
    [TryAgainError("moving"), redis.ConnectionError("refused"), redis.TimeoutError("slow"), MovedError("7 h:1")],
)
def test_patience_ends(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    now = iter(range(1_000))
    monkeypatch.setattr(clock, "monotonic", lambda: float(next(now)))
    with pytest.raises(type(error)):
        Servers(lambda _, said: of_all(A) if said == LOOK else error).run([get("x")], patience_s=10)


@pytest.mark.parametrize("error", [redis.ResponseError("ERR"), redis.AuthenticationError("no")])
def test_a_refusal_is_raised_at_once(error: Exception) -> None:
    servers = Servers(lambda _, said: of_all(A) if said == LOOK else error)
    with pytest.raises(type(error)):
        servers.run([get("x")])
    assert len(servers.sent) == 2
