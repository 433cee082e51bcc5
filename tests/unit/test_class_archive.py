"""The archive of classes: it belongs to one Java and one directory of jars, and is used once it is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leftfold import class_archive
from leftfold.settings import Spark
from leftfold.spark.session import java_options


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("")
    (home / "release").write_text('JAVA_VERSION="17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    home = tmp_path / "jars"
    home.mkdir()
    return home


def test_it_is_used_once_it_is_there(java: Path, jars: Path, tmp_path: Path) -> None:
    archive = class_archive.path(tmp_path, jars)
    assert archive is not None
    assert class_archive.flags(tmp_path, jars) == ()
    archive.parent.mkdir()
    archive.write_text("classes")
    options = class_archive.flags(tmp_path, jars)
    assert f"-XX:SharedArchiveFile={archive}" in options
    own = Spark(conf={"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=/mine"})
    made = java_options(own, " ".join(options))["spark.driver.extraJavaOptions"]
    assert made.index(str(archive)) < made.index("/mine"), "Java takes the last one"


def test_another_java_and_other_jars_get_another_archive(java: Path, jars: Path, tmp_path: Path) -> None:
    before = class_archive.path(tmp_path, jars)
    os.utime(jars, (1, 1))  # installed again
    again = class_archive.path(tmp_path, jars)
    (java / "release").write_text('JAVA_VERSION="17.0.16"')
    assert len({None, before, again, class_archive.path(tmp_path, jars)}) == 4


def test_without_java_or_jars_there_is_none(jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert class_archive.path(tmp_path, jars) is None
    assert class_archive.ensure(tmp_path, jars, lambda _: None) is None
    assert class_archive.flags(tmp_path, jars) == class_archive.flags(tmp_path, None) == ()


def test_it_appears_only_when_it_is_whole(java: Path, jars: Path, tmp_path: Path) -> None:
    archive = class_archive.path(tmp_path, jars)
    assert archive is not None
    asked: list[Path] = []

    def write(file: Path) -> None:
        asked.append(file)
        assert not archive.exists()
        file.write_text("classes")

    assert class_archive.ensure(tmp_path, jars, write) == class_archive.ensure(tmp_path, jars, write) == archive
    assert len(asked) == 1
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
