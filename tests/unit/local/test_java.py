"""Which Java is taken, and how old is too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from leftfold.errors import LocalError
from leftfold.local import java


def fake(home: Path, says: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21"', 21),
        ("?", 0),
    ],
)
def test_versions(says: str, expected: int, tmp_path: Path) -> None:
    assert java.version(str(fake(tmp_path, says))) == expected


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake(tmp_path / "home", 'openjdk version "21.0.1"')
    on_path = fake(tmp_path / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java.find() == str(on_path)
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    assert java.find() == str(home)


def test_a_java_home_without_java_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalError) as caught:
        java.find()
    assert caught.value.code == "java-missing"
    assert str(tmp_path) in caught.value.why
