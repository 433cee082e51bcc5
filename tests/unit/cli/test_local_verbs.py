"""The verbs' contract: one document on stdout with --json, people's text on stderr, exit codes that say it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from leftfold.app import App
from leftfold.cli.main import cli
from leftfold.local import cluster, doctor
from leftfold.local.doctor import Check
from leftfold.local.endpoints import Endpoints, Ports, state_dir
from leftfold.local.spark_cluster import MOST_WORKERS
from leftfold.observe.consumer_status import ConsumerStatus
from leftfold.run.connections import Connection
from leftfold.run.status import ViewStatus

ENDPOINTS = Endpoints("id", Ports((1, 2, 3), (4, 5, 6), 7, 8))
Verb = Callable[..., Result]


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    (tmp_path / "leftfold.toml").write_text('[project]\nname = "x"\ndeclarations = []\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("leftfold.project.find_root", lambda start=None: tmp_path)
    return lambda *arguments: CliRunner().invoke(cli, arguments, catch_exceptions=False)


def document(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["version"] == 1
    return found


def test_up(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int | None, int | None, bool | None, bool | None]] = []

    def up(
        root: Path,
        *,
        brokers: int | None,
        spark_workers: int | None,
        postgres: bool | None,
        redis_cluster: bool | None,
        progress: Callable[[str], None],
    ) -> Endpoints:
        asked.append((brokers, spark_workers, postgres, redis_cluster))
        progress("starting broker-1")
        return ENDPOINTS

    monkeypatch.setattr(cluster, "up", up)
    result = verb("up")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "starting broker-1" in result.stderr
    assert "next: leftfold plan" in result.stderr
    assert document(verb("up", "--json", "--brokers", "1"))["bootstrap"] == ENDPOINTS.bootstrap
    assert document(verb("up", "--json", "--spark-workers", "2"))["spark"] is None
    verb("up", "--spark-workers", "0")
    verb("up", "--postgres")
    verb("up", "--no-postgres")
    verb("up", "--redis-cluster")
    assert asked == [
        *((None, None, None, None), (1, None, None, None), (None, 2, None, None), (None, 0, None, None)),
        *((None, None, True, None), (None, None, False, None), (None, None, None, True)),
    ]
    assert verb("up", "--brokers", "2").exit_code == 2
    assert verb("up", "--spark-workers", str(MOST_WORKERS)).exit_code == 0
    assert verb("up", "--spark-workers", str(MOST_WORKERS + 1)).exit_code == 2


def test_nothing_was_ever_started(verb: Verb) -> None:
    assert "nothing was running" in verb("down").stderr
    assert document(verb("down", "--json"))["ended"] == {}
    assert "next: leftfold up" in verb("status").stderr
    assert document(verb("status", "--json"))["cluster"]["state"] == "down"
    assert "no logs yet" in verb("logs").stderr


def test_logs(verb: Verb, tmp_path: Path) -> None:
    log = state_dir(tmp_path) / "logs" / "redis.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthree\n")
    assert verb("logs", "redis", "--lines", "2").stdout == "redis     two\nredis     three\n"
    assert document(verb("logs", "--json", "-n", "1"))["logs"] == [
        {"name": "redis", "file": str(log), "lines": ["three"]}
    ]


def test_reset_is_named(verb: Verb, tmp_path: Path) -> None:
    (state_dir(tmp_path) / "redis").mkdir(parents=True)
    result = verb("reset", "--confirm", tmp_path.name, "--json")
    assert document(result) == {"version": 1, "verb": "reset", "ended": {}, "deleted": True}
    assert not state_dir(tmp_path).exists()


def test_doctor(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [
        Check("java", "ok", "17"),
        Check("disk", "wrong", "full", "free 2 GB"),
        Check("cluster", "idle", "not running"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda root: checks)
    result = verb("doctor")
    assert result.exit_code == 1
    assert [line[0] for line in result.stderr.splitlines()] == ["✓", "✗", " ", "–", "1"]
    result = verb("doctor", "--json")
    assert result.exit_code == 1
    assert document(result)["ok"] is False
    monkeypatch.setattr(doctor, "examine", lambda root: checks[::2])
    assert verb("doctor").exit_code == 0


# Profiles that name other engines ------------------------------------------------------------------------------------

PROD = """
[profile.prod]
kafka = { bootstrap = "broker:9093" }
registry = { url = "https://registry" }
online = { url = "redis://store" }
"""


def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, reachable: bool) -> None:
    """A profile `prod` whose connections all have one verdict, with one view."""
    with (tmp_path / "leftfold.toml").open("a") as toml:
        toml.write(PROD)
    verdict: Any = "reachable" if reachable else "unreachable"
    fix = None if reachable else "correct kafka.bootstrap"
    found = [
        Connection(name, f"{name}:1", verdict, "so it is :a: as said", None, fix)
        for name in ("kafka", "registry", "online")
    ]
    monkeypatch.setattr(App, "connections", lambda self: iter(found))
    monkeypatch.setattr(App, "status", lambda self: [ViewStatus("views", "b-1", 3, {"accepted": 2}, 0)])
    monkeypatch.setattr(
        App, "consumer_status", lambda self: [ConsumerStatus("mail", "consumer", "mail", "empty", 0, 7)]
    )
    monkeypatch.setattr(cluster, "status", lambda root: pytest.fail("the local cluster is not asked"))


def test_status_of_a_profile_elsewhere(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch, reachable=True)
    told = verb("status", "--profile", "prod").stderr
    assert "profile prod" in told
    assert "✓ kafka" in told
    assert "views: 2 accepted; 0 records behind; build b-1, batch 3" in told
    assert "– consumer mail: 7 records behind; 0 members, group mail" in told
    assert "next:" not in told
    seen = document(verb("status", "--profile", "prod", "--json"))
    assert (seen["profile"], seen["cluster"], len(seen["connections"]), len(seen["views"])) == ("prod", None, 3, 1)
    assert seen["consumers"] == [
        {"consumer": "mail", "kind": "consumer", "group": "mail", "state": "empty", "members": 0, "lag": 7}
    ]


def test_status_of_engines_that_do_not_answer(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch, reachable=False)
    result = verb("status", "--profile", "prod")
    assert result.exit_code == 0
    assert "✗ kafka" in result.stderr
    assert "views" not in result.stderr
    assert "next: leftfold doctor --profile prod" in result.stderr


def test_doctor_of_a_profile_elsewhere(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch, reachable=False)
    monkeypatch.setattr(doctor, "examine", lambda root: pytest.fail("this machine is not asked"))
    result = verb("doctor", "--profile", "prod")
    assert result.exit_code == 1
    assert "unreachable at kafka:1: so it is :a: as said" in result.stderr
    assert "→ correct kafka.bootstrap" in result.stderr
    monkeypatch.setenv("LEFTFOLD_PROFILE", "prod")
    assert [check["name"] for check in document(verb("doctor", "--json"))["checks"]] == ["kafka", "registry", "online"]


def test_doctor_of_a_project_that_cannot_be_read(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda root: [])
    (tmp_path / "leftfold.toml").write_text("no toml")
    (check,) = document(verb("doctor", "--json"))["checks"]
    assert (check["name"], check["verdict"]) == ("profile", "wrong")
