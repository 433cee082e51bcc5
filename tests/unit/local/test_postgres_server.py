"""The local Postgres, before it is started: which one, as whom, and who can read its password."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leftfold.errors import LocalError
from leftfold.local import postgres_server


def install(root: Path, *versions: str) -> None:
    for version in versions:
        (root / version / "bin").mkdir(parents=True)
        (root / version / "bin" / "postgres").touch(mode=0o755)


def test_the_newest_version_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "_INSTALLED", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "9.6" / "bin" / "none"))
    with pytest.raises(LocalError, match="not found"):
        postgres_server.find()
    install(tmp_path, "9.6", "15", "17")
    assert postgres_server.find() == tmp_path / "17" / "bin"
    monkeypatch.setenv("PATH", str(tmp_path / "15" / "bin"))
    assert postgres_server.find() == tmp_path / "15" / "bin"


def test_its_password_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "_INSTALLED", tmp_path)
    install(tmp_path, "17")
    service = postgres_server.service(tmp_path / "state", port=20_001)
    assert not postgres_server.formatted(service)
    making = postgres_server.format_service(service)
    password = (service.directory / "password").read_text().rpartition(":")[2].strip()
    assert len(password) > 20
    assert not any(password in word for word in (*service.argv, *making.argv))
    assert {(service.directory / name).stat().st_mode & 0o777 for name in ("password", "password.new")} == {0o600}
    assert not postgres_server.keep(service), "nothing was made"
    assert not (service.directory / "password.new").exists()


def test_root_runs_it_as_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "_INSTALLED", tmp_path)
    install(tmp_path, "17")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert postgres_server.service(tmp_path, port=1).argv[0] == "setpriv"
    assert "--reuid=0" not in postgres_server.service(tmp_path, port=1).argv
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert postgres_server.service(tmp_path, port=1).argv[0].endswith("/postgres")


def test_nobody_answers() -> None:
    assert not postgres_server.answers(1)
