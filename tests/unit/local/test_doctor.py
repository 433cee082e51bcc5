"""The doctor: a cluster that does not run is not a fault; a dead broker, a missing program, a full disk are."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from leftfold import class_archive
from leftfold.local import cluster, doctor, endpoints, ports
from leftfold.local.doctor import Check
from leftfold.local.endpoints import Endpoints
from leftfold.local.process import Identity

Usage = namedtuple("Usage", "total used free")


def named(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_not_running_is_idle(tmp_path: Path) -> None:
    assert named(doctor.examine(tmp_path))["cluster"] == Check("cluster", "idle", "not running", "leftfold up")


def test_outside_a_project_the_machine_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    checks = named(doctor.examine(None))
    assert checks["project"].verdict == "idle"
    assert {"java", "redis-server", "mvn", "disk"} <= set(checks)


def test_dead_processes_are_wrong_and_stopped_ones_idle(tmp_path: Path) -> None:
    stopped = Endpoints("id", ports.fresh(1))
    endpoints.write(tmp_path, stopped.having("redis", Identity(1, "before the last reboot")))
    checks = named(doctor.examine(tmp_path))
    assert checks["redis"].verdict == "wrong"
    assert checks["redis"].fix == "leftfold up"
    assert checks["broker-1"].verdict == "idle"
    assert checks["ports"].verdict == "ok"
    assert cluster.status(tmp_path)["state"] == "down"


def test_classes_that_are_not_archived_are_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "path", lambda *_: tmp_path / "some.jsa")
    before = named(doctor.examine(None))["classes"]
    assert (before.verdict, before.fix) == ("idle", "python -m leftfold.jars fetch")
    (tmp_path / "some.jsa").write_text("classes")
    assert named(doctor.examine(None))["classes"].verdict == "ok"


def test_an_empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("LEFTFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 10, 0))
    wrong = {check.name for check in doctor.examine(tmp_path) if check.verdict == "wrong"}
    sets = {"jars: kafka", "jars: registry", "jars: spark", "jars: lake"}
    assert wrong == sets | {"java", "mvn", "redis-server", "disk"}
    assert all(check.fix for check in doctor.examine(tmp_path) if check.verdict == "wrong")
