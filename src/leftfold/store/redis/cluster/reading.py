"""The questions of a reader of a Redis Cluster, and how they are asked.

A row and the mark of its bucket lie on one server, and are asked for together. Which build readers follow, and what a
vector is, lies elsewhere. So these answers are used for a second. In two cases they are asked for at once: when no row
is read with them, and when a bucket that is read has no mark, as after the removal of its build.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from leftfold import clock
from leftfold.store.buckets import bucket_of
from leftfold.store.engine import BuildPlace, ViewPlace
from leftfold.store.frames import framed
from leftfold.store.redis.cluster.buckets import BUCKETS, control_tag, tags
from leftfold.store.redis.cluster.nodes import AsyncNodes, Nodes
from leftfold.store.redis.link import Command, command
from leftfold.store.redis.names import Names, names_of, vector_name

# A reader moves to another build within this time. A server is asked no more often for each view and client.
_REMEMBERED_S = 1.0
_HEAD = ("batch", "newest")


@dataclass(frozen=True)
class Plain:
    command: Command


@dataclass(frozen=True)
class Remembered:
    """A question whose answer seldom changes."""

    command: Command


@dataclass(frozen=True)
class Head:
    """A question for the first fields of the marks of the buckets that are read, and for more of the build's mark."""

    at: BuildPlace
    fields: tuple[str, ...]


@dataclass(frozen=True)
class RowOf:
    at: BuildPlace
    head: Command  # asks for the mark of the row's bucket
    command: Command


Question = Plain | Remembered | Head | RowOf


class ClusterQuestions:
    def followed(self, at: ViewPlace) -> Question:
        return Remembered(command("GET", _control(at).active))

    def manifest(self, at: BuildPlace) -> Question:
        return Plain(command("GET", _control(at).manifest(at.build)))

    def vector(self, namespace: str, name: str) -> Question:
        return Remembered(command("GET", vector_name(namespace, name, control_tag(namespace))))

    def mark(self, at: BuildPlace, fields: Sequence[str]) -> Question:
        assert tuple(fields[:2]) == _HEAD, "what the mark of a bucket has comes first"
        return Head(at, tuple(fields[2:]))

    def whole_mark(self, at: BuildPlace) -> Question:
        return Plain(command("HGETALL", _control(at).mark(at.build)))

    def row(self, at: BuildPlace) -> Callable[[str], Question]:
        verb = b"*2\r\n" + framed(b"HGETALL")

        @cache
        def shared(bucket: int) -> tuple[Command, str]:
            names = names_of(at, tags()[bucket])
            return command("HMGET", names.mark(at.build), *_HEAD), names.row_prefix(at.build)

        def question(entity: str) -> Question:
            head, prefix = shared(bucket_of(entity, BUCKETS))
            key = prefix + entity
            return RowOf(at, head, Command(key, (verb, framed(key.encode()))))

        return question


def _control(at: ViewPlace | BuildPlace) -> Names:
    return names_of(at, control_tag(at.namespace))


Rounds = Generator[list[Command], list[Any], list[Any]]  # yields commands of one round trip, receives their answers


class Asking:
    """The questions of one client, and the answers that it remembers."""

    def __init__(self) -> None:
        self._remembered: dict[Command, tuple[Any, float]] = {}  # the answer, and until when it is used

    def rounds(self, questions: Sequence[Question]) -> Rounds:
        """Return the answers. Each is not older than that to a question before it, as the interface says."""
        answers: list[Any] = [None] * len(questions)
        rows = [number for number, question in enumerate(questions) if isinstance(question, RowOf)]
        first, last = (rows[0], rows[-1]) if rows else (len(questions), len(questions))
        yield from self._ask(answers, questions, self._before(questions, first))
        if rows:
            missing = yield from self._read(answers, questions, rows)
            if missing:  # perhaps the build is gone: then what is remembered does not count
                again = [n for n, question in enumerate(questions) if isinstance(question, Remembered)]
                yield from self._ask(answers, questions, again)
        after = [n for n, question in enumerate(questions) if n > last and isinstance(question, Plain)]
        yield from self._ask(answers, questions, after)
        return answers

    def _before(self, questions: Sequence[Question], first: int) -> list[int]:
        """Return the questions that come before the rows: they need a round trip of their own."""
        read = {question.at for question in questions if isinstance(question, RowOf)}
        return [
            number
            for number, question in enumerate(questions)
            if (isinstance(question, Plain) and number < first)
            or (isinstance(question, Head) and (question.fields or question.at not in read))
            or (isinstance(question, Remembered) and not read)
        ]

    def _ask(
        self, answers: list[Any], questions: Sequence[Question], numbers: Sequence[int]
    ) -> Generator[list[Command], list[Any], None]:
        """Ask what is not in buckets."""
        if not numbers:
            return
        commands = [_command(questions[number]) for number in numbers]
        for number, one, answer in zip(numbers, commands, (yield commands), strict=True):
            answers[number] = answer
            if isinstance(questions[number], Remembered):
                self._remembered[one] = (answer, clock.monotonic() + _REMEMBERED_S)

    def _read(
        self, answers: list[Any], questions: Sequence[Question], rows: Sequence[int]
    ) -> Generator[list[Command], list[Any], bool]:
        """Read rows, with the marks of their buckets. Returns whether a mark was missing."""
        heads = {question.at: number for number, question in enumerate(questions) if isinstance(question, Head)}
        asked: dict[tuple[BuildPlace, str], int] = {}  # the marks by their keys, and their place among the commands
        commands: list[Command] = []
        due = self._due(answers, questions)
        commands += due.values()
        places = []
        for number in rows:
            row = questions[number]
            assert isinstance(row, RowOf)
            if row.at in heads and (row.at, row.head.key) not in asked:
                asked[row.at, row.head.key] = len(commands)
                commands.append(row.head)
            places.append(len(commands))
            commands.append(row.command)
        found = yield commands
        for number, place in zip(rows, places, strict=True):
            answers[number] = found[place]
        self._note(answers, questions, due, found)
        for at, number in heads.items():
            if marks := [found[place] for (of, _), place in asked.items() if of == at]:
                answers[number] = _together(marks, answers[number])
        return any(found[place][0] is None for place in asked.values())

    def _due(self, answers: list[Any], questions: Sequence[Question]) -> dict[int, Command]:
        """Answer what is remembered, and return the questions that are to be asked again.

        If the server that has the answer is away, rows on other servers can still be read.
        """
        now, due = clock.monotonic(), {}
        for number, question in enumerate(questions):
            if isinstance(question, Remembered):
                answers[number], until = self._remembered.get(question.command, (None, -1.0))
                if until < now:
                    due[number] = replace(question.command, optional=until >= 0)
        return due

    def _note(
        self, answers: list[Any], questions: Sequence[Question], due: dict[int, Command], found: Sequence[Any]
    ) -> None:
        for number, answer in zip(due, found, strict=False):
            question = questions[number]
            assert isinstance(question, Remembered)
            if not isinstance(answer, Exception):
                answers[number] = answer
            self._remembered[question.command] = (answers[number], clock.monotonic() + _REMEMBERED_S)


def _command(question: Question) -> Command:
    if isinstance(question, Head):
        return command("HMGET", _control(question.at).mark(question.at.build), *_HEAD, *question.fields)
    return question.command


def _together(marks: Sequence[Sequence[bytes | None]], whole: Sequence[bytes | None] | None) -> list[bytes | None]:
    """Return one mark for several buckets: the batch that all of them have, and the newest event time of any.

    `whole` is the mark of the build, with the ledger, if that was asked for. It is silent on a bucket that is behind.
    """
    batch = min(-1 if mark[0] is None else int(mark[0]) for mark in marks)
    newest = max(int(mark[1] or 0) for mark in marks)
    ledger: list[bytes | None] = []
    if whole is not None:
        applied = int(whole[0] or -1)
        ledger = list(whole[2:]) if applied <= batch else [None] * (len(whole) - 2)
        batch = min(batch, applied)
    return [None if batch < 0 else b"%d" % batch, b"%d" % newest, *ledger]


class ClusterClient:
    def __init__(self, url: str) -> None:
        self._nodes = Nodes(url)
        self._asking = Asking()

    def execute(self, questions: Sequence[Question]) -> list[Any]:
        rounds, answers = self._asking.rounds(questions), None
        while True:
            try:
                commands = next(rounds) if answers is None else rounds.send(answers)
            except StopIteration as done:
                result: list[Any] = done.value
                return result
            answers = self._nodes.run(commands)


class AsyncClusterClient:
    def __init__(self, url: str) -> None:
        self._nodes = AsyncNodes(url)
        self._asking = Asking()

    async def execute(self, questions: Sequence[Question]) -> list[Any]:
        rounds, answers = self._asking.rounds(questions), None
        while True:
            try:
                commands = next(rounds) if answers is None else rounds.send(answers)
            except StopIteration as done:
                result: list[Any] = done.value
                return result
            answers = await self._nodes.run(commands)
