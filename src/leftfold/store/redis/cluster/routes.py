"""Decides to which server of a Redis Cluster a command goes, and what to do with an answer that is not its result.

It sends nothing itself. A route is a generator: it yields what to send to which server, and receives the answers. So
threads and event loops share it.

Commands of one slot take effect in their order. If one is redirected or fails, those after it in its slot are sent once
more. So only commands that may run twice can be sent.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis
import redis.exceptions

from leftfold import clock
from leftfold.errors import behind
from leftfold.store.redis.client import pack
from leftfold.store.redis.cluster.buckets import SLOTS, slot_of
from leftfold.store.redis.link import Command, Pieces

_SHORTEST_S, _LONGEST_S = 0.02, 0.5  # between two attempts
_ASKING = (pack("ASKING"),)
_LOOK = (pack("CLUSTER", "SLOTS"),)
# Errors that no waiting removes.
_FINAL = (redis.AuthenticationError, redis.exceptions.AuthorizationError, redis.exceptions.NoPermissionError)
_MOVED = redis.exceptions.MovedError  # which is an AskError, too
_UNREACHABLE = (redis.ConnectionError, redis.TimeoutError)
# The slot is being moved, or no server has it at the moment.
_PASSING = (
    *_UNREACHABLE,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.ReadOnlyError,
)


@dataclass(frozen=True)
class NodeAddress:
    host: str
    port: int


@dataclass(frozen=True)
class Step:
    """The next thing to do: wait, then send commands to servers, all at once.

    There are as many answers from a server as commands. An error stands in for each one that did not come.
    """

    sends: Mapping[NodeAddress, Sequence[Pieces]]
    pause_s: float = 0.0


Answers = Mapping[NodeAddress, Sequence[Any]]
Owners = list[NodeAddress | None]  # by slot
Route = Generator[Step, Answers, list[Any]]


class Routes:
    """The slots of one cluster, as far as they are known. Threads may share it."""

    def __init__(self, seeds: Sequence[NodeAddress], patience_s: float, scripts: Sequence[str] = ()) -> None:
        self._seeds = seeds
        self._patience_s = patience_s
        self._load = [(pack("SCRIPT", "LOAD", script),) for script in scripts]
        self._owners: Owners = []  # by slot; empty: to be looked up
        self._known: list[NodeAddress] = []
        self._away: set[NodeAddress] = set()  # asked last

    def owners(self) -> Generator[Step, Answers, list[NodeAddress]]:
        """Return all servers that own slots, as they are now."""
        deadline = clock.monotonic() + self._patience_s
        while (error := (yield from self._look())) is not None:
            if clock.monotonic() > deadline:
                raise error
            yield Step({}, _LONGEST_S)
        return self._known

    def routed(self, commands: Sequence[Command]) -> Route:
        """Return the answers to commands. A refusal is raised."""
        deadline = clock.monotonic() + self._patience_s
        under_way = _UnderWay(commands)
        losses = 0
        while under_way.left:
            if losses and clock.monotonic() > deadline:
                raise under_way.error
            if losses > 1:
                yield Step({}, _pause_s(losses))
            owners = self._owners
            if not owners and (error := (yield from self._look())) is not None:
                under_way.failed(error)
                losses += 1
                continue
            # Another thread may have found meanwhile that what was looked up is wrong: then nothing is sent now.
            sending = under_way.sending(owners or self._owners)
            got = yield Step(under_way.packed(sending))
            ignorant = under_way.take(sending, got)
            self._away |= under_way.away
            if ignorant:
                yield Step(dict.fromkeys(ignorant, self._load))
            if under_way.lost or ignorant:
                losses += 1
            if under_way.lost:
                self._owners = []
        return under_way.answers

    def _look(self) -> Generator[Step, Answers, Exception | None]:
        """Ask one server after the other which slots each has. Returns the last error if none answers."""
        error: Exception | None = None
        for address in sorted(dict.fromkeys((*self._known, *self._seeds)), key=lambda one: one in self._away):
            (answer,) = (yield Step({address: (_LOOK,)}))[address]
            if not isinstance(answer, Exception):
                owners: Owners = [None] * SLOTS
                for first, last, (host, port, *_), *_replicas in answer:
                    owner = NodeAddress(host.decode() if host else address.host, int(port))
                    owners[first : last + 1] = [owner] * (last + 1 - first)
                self._known = list(dict.fromkeys(owner for owner in owners if owner))
                self._away = set()
                self._owners = owners
                return None
            if not _may_pass(answer):
                raise answer
            self._away.add(address)
            error = answer
        return error


class _UnderWay:
    """Commands, and how far they are."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = commands
        self._slots = [slot_of(command.key) for command in commands]
        self.answers: list[Any] = [None] * len(commands)
        self.left = list(range(len(commands)))
        self.redirected: dict[int, NodeAddress] = {}  # for once, while a slot is being moved
        self.lost = False  # something was not where it was looked for
        self.away: set[NodeAddress] = set()
        self.error: Exception = redis.exceptions.ClusterDownError("no server has this part of the keys")

    def failed(self, error: Exception) -> None:
        """Note that no server can be reached. What is optional does not wait for one."""
        self.error = error
        for number in self.left:
            self.answers[number] = error
        self.left = [number for number in self.left if not self._commands[number].optional]

    def sending(self, owners: Owners) -> dict[NodeAddress, list[int]]:
        """Return the commands that can be sent now, by their server.

        Those behind a redirected one of their slot wait for it.
        """
        sending: dict[NodeAddress, list[int]] = {}
        waiting: set[int] = set()
        for number in self.left:
            slot = self._slots[number]
            to = self.redirected.get(number) or (owners[slot] if owners else None)
            if to is None or slot in waiting:
                continue
            if number in self.redirected:
                waiting.add(slot)
            sending.setdefault(to, []).append(number)
        return sending

    def packed(self, sending: Mapping[NodeAddress, Sequence[int]]) -> dict[NodeAddress, list[Pieces]]:
        return {
            to: [
                pieces
                for number in numbers
                for pieces in (*((_ASKING,) if number in self.redirected else ()), self._commands[number].pieces)
            ]
            for to, numbers in sending.items()
        }

    def take(self, sending: Mapping[NodeAddress, Sequence[int]], got: Answers) -> set[NodeAddress]:
        """Take answers. Returns the servers that lack a script."""
        asked, self.redirected = self.redirected, {}
        self.lost = not sending
        done: set[int] = set()
        failed: set[int] = set()  # slots
        ignorant: set[NodeAddress] = set()
        for to, numbers in sending.items():
            found = iter(got[to])
            for number in numbers:
                answer = [next(found) for _ in range(2 if number in asked else 1)][-1]
                slot = self._slots[number]
                if slot in failed:
                    continue
                is_error = isinstance(answer, Exception)
                if not is_error or (self._commands[number].optional and isinstance(answer, _UNREACHABLE)):
                    self.answers[number] = answer
                    done.add(number)
                if not is_error:
                    continue
                failed.add(slot)
                self.error = answer
                if isinstance(answer, redis.exceptions.NoScriptError):
                    ignorant.add(to)
                elif isinstance(answer, redis.exceptions.AskError) and not isinstance(answer, _MOVED):
                    self.redirected[number] = NodeAddress(answer.host or to.host, answer.port)
                elif isinstance(answer, _MOVED) or _may_pass(answer):
                    self.lost = True
                    self.away |= {to} if isinstance(answer, _UNREACHABLE) else set()
                else:
                    raise answer
        self.left = [number for number in self.left if number not in done]
        return ignorant


def _pause_s(attempt: int) -> float:
    return min(_SHORTEST_S * (1 << min(attempt, 10)), _LONGEST_S)


def _may_pass(error: Exception) -> bool:
    return isinstance(error, _PASSING) and not isinstance(error, _FINAL) and not behind(error, ssl.SSLError)
