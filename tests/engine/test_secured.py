"""A secured cluster: TLS, logins and ACLs everywhere, with the rights that the reference lists and no others.

`make engine` takes one right away, `make secured` each of them once, and every client is refused in every way.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined] # forgotten by its stubs

from tests.engine.projects import LEFTFOLD, await_true
from tests.engine.secured import HOST, Acl, Secured, secured

FULL = os.environ.get("LEFTFOLD_SECURED") == "full"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "project.md"
DEPLOYS, RUNS = ("plan", "apply"), ("send", "run", "why", "rejects", "consume")
REFUSED_WITHIN_S = 20.0

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user, time=Click.at, partitions=2, lateness="10m", retention="{retention}")


class Activity(lf.Features, of=clicks, by=Click.user, to=[lf.Online(), lf.Changelog()]):
    clicks_1h = lf.count("1h")
    spent_1h = lf.sum(Click.price, "1h")


@lf.consumer(clicks, start="beginning")
def notify(click: Click) -> None:
    pass
"""

# Nine secrets, none of which may be met anywhere but in an environment.
SECRETS = {
    name: f"canary-{name.lower().replace('_', '-')}-7Qx"
    for name in (
        *("DEPLOYER_PASSWORD", "RUNNER_PASSWORD", "REGISTRY_PASSWORD", "REDIS_PASSWORD", "REDIS_READER_PASSWORD"),
        *("S3_SECRET", "S3_TOKEN", "KEYSTORE_PASSWORD", "METASTORE_PASSWORD"),
    )
}
CONF = {
    "spark.hadoop.fs.s3a.secret.key": "env:S3_SECRET",
    "spark.hadoop.fs.s3a.session.token": "env:S3_TOKEN",
    "spark.ssl.keyStorePassword": "env:KEYSTORE_PASSWORD",
    "spark.hadoop.javax.jdo.option.ConnectionPassword": "env:METASTORE_PASSWORD",
    "spark.driver.extraJavaOptions": "-Dorg.apache.avro.limits.string.maxLength=2000000000",
}


def documented() -> dict[Acl, tuple[str, ...]]:
    """The reference's table of rights: which verbs need each."""
    rows = [[cell.strip(" `") for cell in line.strip("|\n").split("|")] for line in _rights() if line.startswith("| ")]
    kinds = ("Topic", "Group", "TransactionalId", "Cluster")
    found = {Acl(*row[:3]): tuple(verb.strip() for verb in row[3].split(",")) for row in rows if row[0] in kinds}
    assert len(found) >= 8
    return found


def redis_rights(verb: str) -> str:
    """Of the user that a verb logs in as."""
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in _rights() if "~lf:" in line]
    return next(rights.strip("`") for who, rights in rows if f"`{verb}`" in who)


def _rights() -> list[str]:
    text = REFERENCE.read_text()
    return text[text.index("## Rights") : text.index("## Environment variables")].splitlines()


@dataclass
class Shop:
    """A project on the secured cluster, used from the command line as its users would."""

    cluster: Secured
    root: Path

    def environment(self, user: str) -> dict[str, str]:
        redis = ("reader", SECRETS["REDIS_READER_PASSWORD"]) if user == "reader" else ("app", SECRETS["REDIS_PASSWORD"])
        login = "DEPLOYER" if user == "deployer" else "RUNNER"
        return {
            **os.environ,
            **{name: value for name, value in SECRETS.items() if not name.startswith(("REDIS", "DEPLOYER", "RUNNER"))},
            "KAFKA_USER": user,
            "KAFKA_PASSWORD": SECRETS[f"{login}_PASSWORD"],
            "REDIS_URL": f"rediss://{redis[0]}:{redis[1]}@{HOST}:{self.cluster.redis_port}/0",
            "CA": str(self.cluster.ca),
            "REGISTRY_CA": str(self.cluster.ca),
            "REDIS_CA": str(self.cluster.ca),
            "SECURITY": "SASL_SSL",
        }

    def declare(self, retention: str = "7d") -> None:
        (self.root / "streams.py").write_text(STREAMS.format(retention=retention))

    def call(self, user: str, *arguments: str, **environment: str) -> tuple[int, dict[str, Any], float]:
        """Exit code, the last JSON document, and how many seconds it took."""
        began = time.monotonic()
        done = subprocess.run(
            [LEFTFOLD, *arguments, "--json"],
            cwd=self.root,
            env={**self.environment(user), **environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert not [s for s in SECRETS.values() if s in done.stdout + done.stderr], "a secret was printed"
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, done.stdout + done.stderr
        return done.returncode, json.loads(lines[-1]), time.monotonic() - began

    def does(self, user: str, *arguments: str) -> dict[str, Any]:
        code, document, _ = self.call(user, *arguments)
        assert code == 0, document
        return document

    def refused(self, user: str, *arguments: str, **environment: str) -> tuple[dict[str, Any], float]:
        """The error of a call that must fail, and how long it took to be told."""
        code, document, seconds = self.call(user, *arguments, **environment)
        assert code == 1, document
        return errors_in(document)[0], seconds

    def send(self, *, at: datetime) -> None:
        file = self.root / "clicks.jsonl"
        lines = [{"user": f"u{i % 5}", "price": 1.5, "at": (at - timedelta(seconds=i)).isoformat()} for i in range(50)]
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        self.does("runner", "send", "clicks", file.name)
        file.unlink()

    def send_garbage(self) -> None:
        """As some other producer would, which is none of ours."""
        user, password = "runner", SECRETS["RUNNER_PASSWORD"]
        client = Producer({**self.cluster.login(user, password), "acks": "all"})
        client.produce("prod.clicks", b"no record at all", b"u1")
        assert client.flush(240) == 0

    def records(self, topic: str, partitions: int) -> int:
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the library has no types here
        admin = self.cluster.admin
        asked = admin.list_offsets({TopicPartition(topic, p): latest for p in range(partitions)})
        return sum(future.result(240).offset for future in asked.values())


def errors_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The error of a verb, or those of the views, intakes and lakes of a run that failed."""
    if "error" in document:
        return [document["error"]]
    return [one["error"] for ones in document.values() if isinstance(ones, list) for one in ones if one.get("error")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    home = tmp_path_factory.mktemp("secured")
    users = {
        "app": (SECRETS["REDIS_PASSWORD"], redis_rights("run")),
        "reader": (SECRETS["REDIS_READER_PASSWORD"], redis_rights("get")),
    }
    with secured(home / "cluster", users) as cluster:
        for user, verbs in (("deployer", DEPLOYS), ("runner", RUNS)):
            cluster.add_user(user, SECRETS[f"{user.upper()}_PASSWORD"])
            cluster.grant(user, [acl for acl, needed_by in documented().items() if set(needed_by) & set(verbs)])
        cluster.add_user("stranger", SECRETS["RUNNER_PASSWORD"])
        root = home / "shop"
        root.mkdir()
        conf = ", ".join(f'"{name}" = "{value}"' for name, value in CONF.items())
        (root / "leftfold.toml").write_text(f"""\
[project]
name = "shop"
declarations = ["streams.py"]

[profile.local]
namespace = "prod"
replication = 1
spark = {{ master = "local[2,4]", conf = {{ {conf} }} }}
kafka = {{ bootstrap = "{cluster.bootstrap}", security = "env:SECURITY", username = "env:KAFKA_USER", \
password = "env:KAFKA_PASSWORD", ca = "env:CA" }}
registry = {{ url = "{cluster.registry_url}", username = "shop", password = "env:REGISTRY_PASSWORD", \
ca = "env:REGISTRY_CA" }}
online = {{ url = "env:REDIS_URL", ca = "env:REDIS_CA" }}
""")
        made = Shop(cluster, root)
        made.declare()
        yield made


@contextmanager
def watched_command_lines(seen: set[str]) -> Iterator[None]:
    """Which secrets stand in the command line of any process of the machine, meanwhile."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = entry.read_bytes()
                except OSError:  # it is gone
                    continue
                seen.update(name for name, secret in SECRETS.items() if secret.encode() in line)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def test_every_verb_works_with_the_documented_rights_and_tells_no_secret(shop: Shop) -> None:
    seen: set[str] = set()
    now = datetime.now(UTC)
    with watched_command_lines(seen):
        shop.does("deployer", "apply", "--yes")
        shop.declare(retention="8d")  # so that a second apply changes a topic's settings
        shop.does("deployer", "apply", "--yes")
        shop.send(at=now)
        shop.send_garbage()
        shop.does("runner", "run", "--until-caught-up")
        shop.send(at=now)
        shop.send(at=now - timedelta(hours=2))  # late
        shop.does("runner", "run", "--until-caught-up")  # reads the receipts of the first
        assert shop.does("runner", "why", "activity", "u1")["verdict"] == "same"
        row = shop.does("reader", "get", "activity", "u1")
        assert shop.does("runner", "rejects", "list", "clicks")
    assert row["features"]["clicks_1h"] == 20, row
    assert shop.records("prod.clicks.rejects", 1) == 1
    assert shop.records("prod.clicks.late", 1) == 50
    assert shop.records("prod.activity.changelog", 2) > 0
    assert shop.records("prod.leftfold.receipts", 4) > 0
    assert seen == set()
    files = [path for path in shop.root.parent.rglob("*") if path.is_file()]
    held = {
        (name, str(path)) for path in files for name, secret in SECRETS.items() if secret.encode() in path.read_bytes()
    }
    assert len(files) > 50
    assert held == set()
    assert (shop.root / ".leftfold").stat().st_mode & 0o777 == 0o700


WRONG = {
    "kafka-tls": {"CA": "{other}"},
    "kafka-login": {"KAFKA_PASSWORD": "wrong"},
    "kafka-tls/plaintext": {"SECURITY": "PLAINTEXT"},
    "registry-tls": {"REGISTRY_CA": "{other}"},
    "store-tls": {"REDIS_CA": "{other}"},
    "store-denied": {"REDIS_URL": "rediss://app:wrong@{redis}/0"},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_refusal_has_its_own_code_within_seconds(shop: Shop, case: str) -> None:
    """As `plan` meets it, which asks all three engines; `send` and `run` are the long version's."""
    code = case.partition("/")[0]
    places = {"other": str(shop.cluster.other_ca), "redis": f"{HOST}:{shop.cluster.redis_port}"}
    wrong = {name: value.format(**places) for name, value in WRONG[case].items()}
    error, seconds = shop.refused("deployer", "plan", **wrong)
    assert error["code"] == code, error
    assert not error["retriable"]
    assert seconds < REFUSED_WITHIN_S
    if FULL and code.startswith("kafka"):
        for verb in (("send", "clicks", "--synthetic", "10"), ("run", "--until-caught-up")):
            error, seconds = shop.refused("runner", *verb, **wrong)
            assert error["code"] == code, (verb, error)
            assert seconds < REFUSED_WITHIN_S


@pytest.mark.parametrize("verb", [("plan",), ("send", "clicks", "--synthetic", "10"), ("run", "--until-caught-up")])
def test_a_denied_topic(shop: Shop, verb: tuple[str, ...]) -> None:
    """Of somebody whom the brokers know, and allow nothing."""
    error, seconds = shop.refused("stranger", *verb)
    assert error["code"] == "kafka-denied", error
    assert "User:stranger" in error["what"]
    # Of what a plan asks at once, the settings of brokers may be refused before a topic is.
    assert "prod." in error["what"] or (verb == ("plan",) and "on the cluster" in error["what"])
    assert seconds < REFUSED_WITHIN_S


def test_settings_of_spark_reach_the_jvm_by_no_command_line(tmp_path: Path) -> None:
    """Those of the profile win over spark-defaults.conf, which is still read; Avro's limits win over the profile."""
    (tmp_path / "conf").mkdir()
    defaults = "spark.driver.memory 640m\nspark.hadoop.a.default from-defaults\nspark.hadoop.a.secret overwritten\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
    (tmp_path / "launch-of-one-that-was-killed").touch()
    os.utime(tmp_path / "launch-of-one-that-was-killed", (0, 0))
    script = f"""
import json, os, pathlib, sys
from leftfold.settings import Spark
from leftfold.spark.session import build_session

secret = "s3cr=t: \\\\ ç #!"
limit = "-Dorg.apache.avro.limits.string.maxLength"
conf = {{"spark.hadoop.a.secret": secret, "spark.driver.extraJavaOptions": limit + "=7 -Da.b=c"}}
session = build_session(Spark(master="local[1]", conf=conf), application="a test", log_file=pathlib.Path("spark.log"))
jvm = session.sparkContext._jvm
hadoop = session.sparkContext._jsc.hadoopConfiguration()
lines = [p.read_bytes() for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if p.parent.name != "self"]
print(json.dumps({{
    "secret": hadoop.get("a.secret") == secret,
    "default": hadoop.get("a.default"),
    "limit": jvm.System.getProperty("org.apache.avro.limits.string.maxLength"),
    "own": jvm.System.getProperty("a.b"),
    "heap": any(b"-Xmx640m" in line for line in lines),
    "seen": any(b"s3cr" in line for line in lines if b"build_session" not in line),
    "left": [str(p) for p in pathlib.Path({str(tmp_path)!r}).glob("launch-*")],
    "name": session.sparkContext.appName,
}}))
"""
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path / "conf")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "secret": True,
        "default": "from-defaults",
        "limit": "1048588",
        "own": "c",
        "heap": True,
        "seen": False,
        "left": [],
        "name": "a test",
    }


@pytest.mark.parametrize("acl", documented() if FULL else [Acl("Topic", "prod.*", "AlterConfigs")], ids=" ".join)
def test_each_documented_right_is_needed(shop: Shop, acl: Acl) -> None:
    """Without it one of the verbs that the reference names beside it is denied; with it again, all of them work."""
    now = datetime.now(UTC)
    verbs = documented()[acl]
    user = "deployer" if set(verbs) & set(DEPLOYS) else "runner"
    calls = {
        "plan": ("plan",),
        "apply": ("apply", "--yes"),
        "send": ("send", "clicks", "--synthetic", "10"),
        "run": ("run", "--until-caught-up"),
        "why": ("why", "activity", "u1"),
        "rejects": ("rejects", "list", "clicks"),
        "consume": ("consume", "--until-caught-up"),
    }
    if acl.operation == "Create":
        shop.call("deployer", "apply", "--yes")
        shop.cluster.delete_topic("prod.clicks.late")
    if acl.operation == "AlterConfigs":
        shop.declare(retention="9d")
    if user == "runner":
        shop.send(at=now)  # something to run over
    shop.cluster.revoke(user, [acl])
    try:
        refusals = {verb: shop.call(user, *calls[verb]) for verb in verbs}
    finally:
        shop.cluster.grant(user, [acl])
    denied = {
        verb
        for verb, (exit_code, document, _) in refusals.items()
        if exit_code == 1 and "kafka-denied" in {error["code"] for error in errors_in(document)}
    }
    assert denied, f"nothing needs {acl}"
    if "apply" in verbs:
        shop.does("deployer", "apply", "--yes")
    if user == "runner":
        shop.does("runner", "run", "--until-caught-up")


@pytest.mark.long
def test_who_may_describe_the_cluster_is_told_of_groups_that_are_not_its_own(shop: Shop) -> None:
    more = [Acl("Cluster", "kafka-cluster", "Describe")]
    shop.cluster.grant("deployer", more)
    try:
        shop.does("deployer", "plan")
    finally:
        shop.cluster.revoke("deployer", more)


@pytest.mark.long
def test_a_right_that_is_taken_away_while_a_view_runs(shop: Shop) -> None:
    """Told by Spark's own Kafka client. The view is given up on: only a person can grant it again."""
    reads = Acl("Topic", "prod.*", "Read")
    shop.send(at=datetime.now(UTC))  # a run says something after its first batch
    with running_as(shop, "runner") as process:
        await_true(lambda: '"running"' in (shop.root / "run.jsonl").read_text(), timeout=180, what="the view")
        shop.cluster.revoke("runner", [reads])
        try:
            shop.send(at=datetime.now(UTC))
            process.wait(180)
        finally:
            shop.cluster.grant("runner", [reads])
    last = json.loads((shop.root / "run.jsonl").read_text().splitlines()[-1])
    assert {error["code"] for error in errors_in(last)} == {"kafka-denied"}
    shop.does("runner", "run", "--until-caught-up")


@contextmanager
def running_as(shop: Shop, user: str) -> Iterator[subprocess.Popen[bytes]]:
    with (shop.root / "run.jsonl").open("wb") as out:
        process = subprocess.Popen(
            [LEFTFOLD, "run", "--json"], cwd=shop.root, env=shop.environment(user), stdout=out, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
