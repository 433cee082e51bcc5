"""Logs: the end without reading the whole, the cause without its stack, and whole lines while they are written."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from leftfold.local import logfile


def test_the_last_lines_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(20_000)))
    assert logfile.last(log, 3) == ["line 19997", "line 19998", "line 19999"]
    assert len(logfile.last(log, 15_000)) == 15_000
    assert logfile.last(log, 0) == []
    assert logfile.last(tmp_path / "none.log", 5) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "it wrote nothing to its log"),
        ("starting\nbound\n", "bound"),
        (
            "INFO a\nERROR disk full\n    at kafka.Kafka.main(Kafka.scala)\n    ... 11 more\nINFO bye\n",
            "ERROR disk full",
        ),
        ("java.net.BindException: taken\n\tat x.Y(Z)\nINFO end\n", "java.net.BindException: taken"),
    ],
)
def test_the_cause(text: str, expected: str, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(text)
    assert logfile.cause(log) == expected


def test_following_gives_whole_lines_and_takes_up_a_new_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("before\n")
    lines = logfile.follow({"x": log})

    def write() -> None:
        with log.open("a") as file:
            for piece in ("half", " and half\n"):
                file.write(piece)
                file.flush()
        log.replace(tmp_path / "x.log.1")
        log.write_text("a new start\n")

    # It begins to read when it is first asked, so the writing waits until after that.
    writing = threading.Timer(2 * logfile.FOLLOW_S, write)
    writing.start()
    assert [next(lines), next(lines)] == [("x", "half and half"), ("x", "a new start")]
    writing.join()
