"""One command at a time: the second waits, says for whom, and goes on when the first is done."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from leftfold.errors import LocalError
from leftfold.local.exclusive import exclusive


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    waiting = threading.Event()
    order: list[str] = []

    def second() -> None:
        with exclusive(tmp_path, lambda _: waiting.set(), wait_s=10):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive(tmp_path, lambda _: None):
        thread.start()
        assert waiting.wait(5)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_the_second_gives_up_in_the_end(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path, lambda _: None),
        pytest.raises(LocalError, match="another leftfold"),
        exclusive(tmp_path, lambda _: None, wait_s=0),
    ):
        pass


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), exclusive(tmp_path, lambda _: None):
        raise ZeroDivisionError
    with exclusive(tmp_path, lambda _: None, wait_s=0):
        pass
