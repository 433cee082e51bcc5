from __future__ import annotations

import os
from pathlib import Path

import pytest

from leftfold import private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_all_that_was_missing_is_for_this_user_alone(tmp_path: Path) -> None:
    before = mode(tmp_path)
    made = private.directory(tmp_path / ".leftfold" / "local" / "logs")
    assert [mode(path) for path in (made, made.parent, made.parent.parent)] == [0o700] * 3
    assert mode(tmp_path) == before
    assert private.directory(made) == made


def test_a_state_directory_of_an_earlier_release_is_closed(tmp_path: Path) -> None:
    state = tmp_path / ".leftfold"
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    private.directory(state / "logs")
    assert mode(state) == 0o700


def test_not_one_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a volume in a pod, which is shared by a group."""
    state = tmp_path / ".leftfold"
    state.mkdir()
    state.chmod(0o775)
    monkeypatch.setattr(os, "geteuid", lambda: state.stat().st_uid + 1)
    private.directory(state / "logs")
    assert mode(state) == 0o775
