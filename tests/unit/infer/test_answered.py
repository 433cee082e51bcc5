"""Answers that are not acknowledged, in a file that a killed process leaves; and how they are looked for."""

from __future__ import annotations

import fcntl
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leftfold.infer import answered, looking_back
from leftfold.infer.answered import AnswerFile, Unlogged, key_of, left_answers, missing
from leftfold.infer.looking_back import look_back

# Answers 300 batches in an order that chance decides, then is killed; it prints what must be found.
KILLED = """
import os, random, signal, sys
from pathlib import Path
from leftfold.infer.answered import AnswerFile

chance, file = random.Random(int(sys.argv[2])), AnswerFile(Path(sys.argv[1]), "fraud")
under_way, held = [], set()
for batch in range(300):
    names = [f"{batch}-{n}" * chance.choice((1, 20)) for n in range(5)]
    leaving = file.leaving(names, batch + 1)
    early = [n for n in range(5) if chance.random() < 0.2]
    for number in early:  # acknowledged before the answer leaves
        leaving.told(number, True)
    leaving.leave()
    under_way += [(leaving, number, name) for number, name in enumerate(names) if number not in early]
    held |= {name for number, name in enumerate(names) if number not in early}
    chance.shuffle(under_way)
    for _ in range(chance.randrange(7)):
        if under_way:
            leaving, number, name = under_way.pop()
            refused = chance.random() < 0.1
            leaving.told(number, not refused)
            if not refused:
                held.discard(name)
print("\\n".join(sorted(held)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(directory: Path, seed: int) -> set[str]:
    command = [sys.executable, "-c", KILLED, str(directory), str(seed)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return set(ended.stdout.split())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking_back, "_SETTLED_S", 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_process_leaves_its_answers(tmp_path: Path, seed: int) -> None:
    held = killed(tmp_path, seed)
    assert len(held) > 100
    assert any(len(name) > 60 for name in held)
    (left,) = left_answers(tmp_path)
    assert left.scorer == "fraud"
    assert set(left.moments) == {key_of(name) for name in held}
    assert left.unnamed == 0
    assert all(left.moments[key_of(name)] == int(name.partition("-")[0]) + 1 for name in held)
    assert left_answers(tmp_path) == [], "somebody looks at it"
    logged = random.Random(seed).sample(sorted(held), len(held) // 2)
    assert set(missing([left], [*logged, "another"])) == {key_of(name) for name in held - set(logged)}
    left.close(remove=False)
    (again,) = left_answers(tmp_path)
    again.close(remove=True)
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_a_living_process_is_its_own(tmp_path: Path) -> None:
    file = AnswerFile(tmp_path, "fraud")
    file.leaving(["a"], 7).leave()
    assert left_answers(tmp_path) == []
    file.close()
    assert list(tmp_path.iterdir()) == []
    late = file.leaving(["b"], 8)
    late.leave()
    late.told(0, True)


def test_beyond_its_room_answers_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answered, "_SLOTS", 4)
    file = AnswerFile(tmp_path, "fraud")
    many = file.leaving([f"n{n}" for n in range(10)], 1)
    many.leave()
    fcntl.flock(file._file, fcntl.LOCK_UN)  # as at the death of the process

    def held() -> tuple[int, int]:
        (left,) = left_answers(tmp_path)
        left.close(remove=False)
        return len(left.moments), left.unnamed

    assert held() == (4, 6)
    for number in range(10):
        many.told(number, number % 2 == 0)
    named, unnamed = held()
    assert named + unnamed == 5


def killed_with(tmp_path: Path, names: list[str]) -> None:
    program = (
        "import os, sys, signal\nfrom pathlib import Path\nfrom leftfold.infer.answered import AnswerFile\n"
        f"AnswerFile(Path(sys.argv[1]), 'fraud').leaving({names!r}, 10**15).leave()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "answers")], timeout=60, check=False)


def test_what_is_missing_is_noted_once(tmp_path: Path) -> None:
    killed_with(tmp_path, ["a", "b", "c"])
    killed_with(tmp_path, ["d"])
    asked: list[tuple[int, int]] = []

    def logged(scorer: str, since: int, until: int) -> Iterator[str]:
        asked.append((since, until))
        yield from ("x", "b", "d")

    notes = tmp_path / "unlogged.jsonl"
    (found,) = look_back(left_answers(tmp_path / "answers"), logged, notes)
    assert (found.scorer, set(found.ids), found.count) == ("fraud", {"a", "c"}, 2)
    assert asked[0][0] < 10**15 < asked[0][1]
    assert {json.loads(line)["prediction_id"] for line in notes.read_text().splitlines()} == {"a", "c"}
    assert left_answers(tmp_path / "answers") == []


def test_after_a_failed_look_the_next_one_finds_them(tmp_path: Path) -> None:
    killed_with(tmp_path, ["a"])

    def away(*_: Any) -> Iterator[str]:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        look_back(left_answers(tmp_path / "answers"), away, tmp_path / "notes")
    (found,) = look_back(left_answers(tmp_path / "answers"), lambda *_: iter(()), tmp_path / "notes")
    assert found.count == 1


def test_without_a_topic_they_are_only_counted(tmp_path: Path) -> None:
    killed_with(tmp_path, ["a", "b"])
    found = look_back(left_answers(tmp_path / "answers"), lambda *_: None, tmp_path / "notes")
    assert found == [Unlogged("fraud", {}, 2)]
