"""The connections of a profile: what failed, told apart, and the setting that it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leftfold.declare.catalog import Catalog
from leftfold.errors import LogError, StoreError
from leftfold.run import connections as module
from leftfold.run.connections import Addresses, Connection, connections
from leftfold.settings import Kafka, OnlineStore, Profile, Registry

EMPTY = Catalog({}, {}, {})


def _raise(error: Exception) -> Any:
    raise error


def found(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    kafka: Exception | None = None,
    registry: Exception | None = None,
    online: Exception | None = None,
    checkpoints: str | None = None,
) -> dict[str, Connection]:
    class StubAdmin:
        def __init__(self, _: Kafka) -> None: ...

        def partitions(self, names: list[str]) -> dict[str, int]:
            return _raise(kafka) if kafka else dict.fromkeys(names, 1)

    class StubRegistry:
        def __init__(self, _: Registry) -> None: ...

        def compatibility(self, _: str | None) -> None:
            if registry:
                raise registry

    class StubStandings:
        def __init__(self, *_: str) -> None: ...

        def of(self, view: str) -> Any:
            return _raise(online) if online else type("Standing", (), {"followed": None})

    monkeypatch.setattr(module, "Admin", StubAdmin)
    monkeypatch.setattr(module, "SchemaRegistry", StubRegistry)
    monkeypatch.setattr(module, "Standings", StubStandings)
    profile = Profile(name="prod", namespace="prod")
    engines = Addresses(
        Kafka(bootstrap="broker:9093"),
        Registry(url="https://me:secret@registry:8443/v7"),
        OnlineStore.model_validate({"url": "rediss://me:secret@store:6380/0"}),
        checkpoints or str(tmp_path),
        str(tmp_path),
    )
    return {each.name: each for each in connections(EMPTY, profile, engines)}


def test_all_is_well_and_no_password_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = found(monkeypatch, tmp_path)
    assert {name: each.verdict for name, each in seen.items()} == dict.fromkeys(
        ("kafka", "registry", "online", "checkpoints"), "reachable"
    )
    assert [seen[name].where for name in ("kafka", "registry", "online")] == [
        *("broker:9093", "https://registry:8443/v7", "store:6380")
    ]
    assert "secret" not in str(seen)


@pytest.mark.parametrize(
    ("engine", "code", "setting"),
    [("kafka", "kafka-unreachable", "kafka.bootstrap"), ("registry", "registry-unreachable", "registry.url")],
)
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str, code: str, setting: str) -> None:
    error = LogError(code, "no broker answered", why="timed out", fix="leftfold up starts the local cluster")
    failed: Any = {engine: error}
    seen = found(monkeypatch, tmp_path, **failed)
    assert (seen[engine].verdict, seen[engine].code) == ("unreachable", code)
    fix = seen[engine].fix or ""
    assert setting in fix
    assert "[profile.prod]" in fix
    assert "leftfold up" not in fix
    assert [each.verdict for name, each in seen.items() if name != engine] == ["reachable"] * 3


@pytest.mark.parametrize("code", ["kafka-login", "kafka-tls", "kafka-denied"])
def test_brokers_refuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    error = LogError(code, "the brokers refused", why="bad credentials", fix="correct kafka.password of the profile")
    kafka = found(monkeypatch, tmp_path, kafka=error)["kafka"]
    assert (kafka.verdict, kafka.code, kafka.fix) == ("refused", code, "correct kafka.password in [profile.prod]")
    assert "bad credentials" in kafka.detail


def test_the_registry_refuses_a_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fix = "correct registry.username and registry.password of the profile"
    error = LogError("registry-denied", "the registry refused the login (HTTP 401)", why="no", fix=fix)
    registry = found(monkeypatch, tmp_path, registry=error)["registry"]
    assert registry.verdict == "refused"
    assert "registry.password in [profile.prod]" in (registry.fix or "")


def test_the_store_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = StoreError("store-denied", "Redis refused", why="WRONGPASS", fix="correct online.url")
    online = found(monkeypatch, tmp_path, online=error)["online"]
    assert (online.verdict, online.code, online.fix) == ("refused", "store-denied", "correct online.url")


def test_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def directory(location: str) -> Connection:
        return found(monkeypatch, tmp_path, checkpoints=location)["checkpoints"]

    assert directory(str(tmp_path / "new" / "one")).detail == "it is made by the first run"
    (tmp_path / "file").write_text("")
    taken = directory(str(tmp_path / "file" / "below"))
    assert (taken.verdict, taken.code) == ("refused", None)
    assert "checkpoints in [profile.prod]" in (taken.fix or "")
    assert directory("hdfs://name:8020/checkpoints").verdict == "not tested"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert directory(str(tmp_path)).verdict == "refused"
