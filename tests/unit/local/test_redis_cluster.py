"""The local Redis Cluster, before it is started: its programs, and how each server is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from leftfold.errors import LocalError
from leftfold.local import redis_cluster


def test_both_programs_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match="redis-server"):
        redis_cluster.find()
    (tmp_path / "redis-server").touch(mode=0o755)
    with pytest.raises(LocalError, match="redis-cli") as missing:
        redis_cluster.find()
    assert missing.value.code == "redis-missing"
    (tmp_path / "redis-cli").touch(mode=0o755)
    assert redis_cluster.find() == str(tmp_path / "redis-cli")


def test_a_server_serves_its_part_while_another_part_has_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "redis-server").touch(mode=0o755)
    service = redis_cluster.service(tmp_path, number=2, ports=(21_001, 21_002))
    settings = dict(zip(service.argv[1::2], service.argv[2::2], strict=True))
    assert (service.name, service.port, service.directory) == ("redis-cluster-2", 21_001, tmp_path / "redis-cluster-2")
    assert (settings["--port"], settings["--cluster-port"]) == ("21001", "21002")
    assert settings["--cluster-require-full-coverage"] == "no"
    assert settings["--appendonly"] == "yes"
    assert redis_cluster.is_node(service.name)
    assert not redis_cluster.is_node("redis")
    assert redis_cluster.number_of(service.name) == 2
