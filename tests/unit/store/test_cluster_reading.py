"""What a reader of a Redis Cluster asks, and what it remembers; without a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import redis

from leftfold import clock
from leftfold.store.engine import BuildPlace
from leftfold.store.redis.cluster.reading import Asking, ClusterQuestions, Question
from leftfold.store.redis.link import Command

AT = BuildPlace("prod", "clicks", "b-1")
ASK = ClusterQuestions()
ROW = [b"row", b"1"]
ENTRY = "t/0:accepted"


class Asked:
    """A client of a cluster with one build, as a test has set it up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.active: Any = b"b-1"
        self.marks: list[list[bytes | None]] = [[b"7", b"70"]]  # of the buckets, in the order in which they are read
        self.control: list[bytes | None] = [b"7", b"70", b"1:2:3:4"]
        self.rounds: list[list[str]] = []
        self._asking = Asking()
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)

    def execute(self, *questions: Question) -> list[Any]:
        self.rounds = []
        rounds, answers = self._asking.rounds(questions), None
        while True:
            try:
                commands = next(rounds) if answers is None else rounds.send(answers)
            except StopIteration as done:
                return list(done.value)
            answers = self._answers(commands)

    def _answers(self, commands: Sequence[Command]) -> list[Any]:
        marks = iter(self.marks)
        answers: list[Any] = []
        said = []
        for one in commands:
            verb = b"".join(one.pieces).split(b"\r\n")[2].decode()
            of = "control" if "{control:prod}" in one.key else "bucket"
            said.append(f"{verb} {of}")
            if verb == "GET":
                answers.append(self.active)
                assert one.optional or not isinstance(self.active, Exception)
            elif verb == "HGETALL":
                answers.append(ROW)
            else:
                answers.append(self.control if of == "control" else next(marks))
        self.rounds.append(said)
        return answers


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


FOLLOWED, HEAD = ASK.followed(AT.of), ASK.mark(AT, ("batch", "newest"))
ONE, OTHER = ASK.row(AT)("u1"), ASK.row(AT)("é")  # of two buckets
READ = (FOLLOWED, HEAD, ONE)
ROUND = ["HMGET bucket", "HGETALL bucket"]


def test_the_followed_build_is_asked_for_once_a_second(asked: Asked) -> None:
    assert asked.execute(*READ) == [b"b-1", [b"7", b"70"], ROW]
    assert asked.rounds == [["GET control", *ROUND]]
    asked.active = b"b-2"
    asked.now += 0.9
    assert asked.execute(*READ)[0] == b"b-1"
    assert asked.rounds == [ROUND]
    asked.now += 0.2
    assert asked.execute(*READ)[0] == b"b-2"


def test_a_question_without_rows_is_asked_at_once(asked: Asked) -> None:
    asked.execute(*READ)
    asked.active = b"b-2"
    assert asked.execute(FOLLOWED) == [b"b-2"]
    assert asked.execute(*READ)[0] == b"b-2"


def test_a_bucket_without_a_mark_may_be_of_a_build_that_is_gone(asked: Asked) -> None:
    asked.execute(*READ)
    asked.active, asked.marks = b"b-2", [[None, None]]
    assert asked.execute(*READ) == [b"b-2", [None, b"0"], ROW]
    assert asked.rounds == [ROUND, ["GET control"]]


def test_rows_are_read_while_the_server_with_the_builds_is_away(asked: Asked) -> None:
    asked.execute(*READ)
    asked.active = redis.ConnectionError("gone")
    asked.now += 5
    assert asked.execute(*READ) == [b"b-1", [b"7", b"70"], ROW]
    assert asked.execute(*READ) == [b"b-1", [b"7", b"70"], ROW]
    assert asked.rounds == [ROUND], "not at each read"


@pytest.mark.parametrize(
    ("marks", "control", "together"),
    [
        ([[b"7", b"70"], [b"8", b"80"]], [b"7", b"70", b"e"], [b"7", b"80", b"e"]),  # a batch is being written
        ([[b"6", b"60"], [b"8", b"80"]], [b"7", b"70", b"e"], [b"6", b"80", None]),  # a bucket is behind
        ([[b"8", b"80"], [b"8", b"80"]], [None, None, None], [None, b"80", None]),  # the mark of the build is lost
    ],
)
def test_the_ledger_holds_for_buckets_that_have_its_batch(
    asked: Asked, marks: Any, control: Any, together: list[bytes | None]
) -> None:
    asked.marks, asked.control = marks, control
    head = ASK.mark(AT, ("batch", "newest", ENTRY))
    assert asked.execute(FOLLOWED, head, ONE, OTHER)[1] == together
    assert asked.rounds == [["HMGET control"], ["GET control", *ROUND, *ROUND]], "rows are not older than the ledger"


def test_the_mark_before_a_row_and_after_it(asked: Asked) -> None:
    asked.execute(ASK.whole_mark(AT), ONE, ASK.whole_mark(AT))
    assert asked.rounds == [["HGETALL control"], ["HGETALL bucket"], ["HGETALL control"]]
