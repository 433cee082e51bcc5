"""The jar lock: what is fetched is verified, what is verified is not fetched again, and a lie is caught."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leftfold import jars
from leftfold.errors import LocalError

CONTENT = {"a-1.0.jar": b"alpha", "b-2.0-all.tar.gz": b"beta"}

# Stands in for Maven: notes that it was called, then copies what the pom asks for from $SHELF.
MVN = """#!/bin/sh
echo "$@" >> "$SHELF/calls"
test -e "$SHELF/broken" && { echo "[ERROR] connection reset"; rm -f "$SHELF/broken"; exit 1; }
read -r pom < pom.xml
rest="${pom#*<outputDirectory>}"
for file in "$SHELF"/*.jar "$SHELF"/*.gz; do
  name="${file##*/}"; artifact="${name%%-*}"
  case "$pom" in *"<artifactId>$artifact</artifactId>"*) cp "$file" "${rest%%<*}/";; esac
done
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository on a shelf, a client that copies from it, and an empty cache."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    entries = []
    for coordinate, (file, content) in zip(["x:a:1.0", "x:b:2.0:tar.gz:all"], CONTENT.items(), strict=True):
        (shelf / file).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        entries.append({"coordinate": coordinate, "file": file, "bytes": len(content), "sha256": digest})
    (tmp_path / "lock.json").write_text(json.dumps({"version": 1, "sets": {"s": entries}}))
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.write_text(MVN)
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", f"{mvn.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SHELF", str(shelf))
    monkeypatch.setenv("LEFTFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "LOCK", tmp_path / "lock.json")
    return shelf


def calls(shelf: Path) -> list[str]:
    path = shelf / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_fetched_once_then_only_looked_at(shelf: Path) -> None:
    assert [jar.file for jar in jars.missing()] == list(CONTENT)
    said: list[str] = []
    home = jars.ensure("s", said.append)
    assert {path.name: path.read_bytes() for path in jars.paths("s")} == CONTENT
    assert jars.ensure("s") == home
    assert len(calls(shelf)) == 1
    assert said == ["fetching 2 files of the s set (0 MB) with mvn"]
    assert jars.missing() == []
    assert jars.unverified() == []


def test_a_failed_download_is_tried_again_and_told_to_look_again(shelf: Path) -> None:
    (shelf / "broken").touch()
    jars.ensure("s")
    assert calls(shelf) == ["-B -q dependency:copy", "-B -q -U dependency:copy"]


def test_a_changed_file_is_refused_and_the_whole_ones_kept(shelf: Path) -> None:
    (shelf / "b-2.0-all.tar.gz").write_bytes(b"tampered")
    with pytest.raises(LocalError, match="not the file") as caught:
        jars.ensure("s")
    assert caught.value.code == "jar-checksum"
    assert [path.name for path in jars.directory("s").iterdir()] == ["a-1.0.jar"]
    assert jars.unverified() == ["s"]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda home: (home / "a-1.0.jar").unlink(), id="deleted"),
        pytest.param(lambda home: (home / "a-1.0.jar").write_bytes(b"alp"), id="truncated"),
    ],
)
def test_a_damaged_cache_is_repaired_by_fetching_what_is_damaged(shelf: Path, damage: Callable[[Path], None]) -> None:
    home = jars.ensure("s")
    damage(home)
    assert jars.unverified() == ["s"]
    jars.ensure("s")
    assert {path.name: path.read_bytes() for path in jars.paths("s")} == CONTENT


def test_files_without_a_stamp_are_hashed_before_they_are_believed(shelf: Path) -> None:
    home = jars.ensure("s")
    (home / jars.STAMP).unlink()
    (home / "a-1.0.jar").write_bytes(b"ALPHA")  # the right size, the wrong bytes
    jars.ensure("s")
    assert (home / "a-1.0.jar").read_bytes() == b"alpha"


def test_two_at_once_fetch_once(shelf: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: jars.ensure("s"), range(4)))) == 1
    assert len(calls(shelf)) == 1


def test_a_new_lock_has_a_new_directory(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = jars.directory("s")
    document = json.loads((tmp_path / "lock.json").read_text())
    document["sets"]["s"].pop()
    (tmp_path / "lock2.json").write_text(json.dumps(document))
    monkeypatch.setattr(jars, "LOCK", tmp_path / "lock2.json")
    assert jars.directory("s") != old


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LEFTFOLD_CACHE": "/a"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/leftfold"),
        ({"HOME": "/c"}, "/c/.cache/leftfold"),
    ],
)
def test_where_the_cache_is(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEFTFOLD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert jars.cache_home() == Path(expected)


def test_the_committed_lock_holds_every_root() -> None:
    coordinates = {jar.coordinate for entries in jars.locked().values() for jar in entries}
    assert {root for roots in jars.ROOTS.values() for root in roots} <= coordinates
    assert all(len(jar.sha256) == 64 and jar.bytes > 0 for entries in jars.locked().values() for jar in entries)


def test_usage_is_two() -> None:
    assert jars.main([]) == 2


def test_the_plugin_that_fetches_has_a_version(shelf: Path, tmp_path: Path) -> None:
    mvn = tmp_path / "bin" / "mvn"
    mvn.write_text(MVN.replace("read -r pom", 'cp pom.xml "$SHELF/pom"; read -r pom'))
    jars.ensure("s", lambda _: None)
    assert (
        f"<artifactId>maven-dependency-plugin</artifactId><version>{jars.PLUGIN}</version>"
        in (shelf / "pom").read_text()
    )
