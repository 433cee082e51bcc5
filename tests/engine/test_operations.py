"""What stands beside a running view: others' tools must see where it is, and a person must be told why."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import Producer

import leftfold
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.kafka.lag_group import LagGroup
from leftfold.kafka.log_reader import LogReader
from leftfold.kafka.partitioner import partition_of
from leftfold.local import ports
from leftfold.store.layout import field as tile_field
from tests.engine import kafka_tools, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.test_view import payment, send


@pytest.fixture
def app(cluster: Cluster, tmp_path: Path) -> leftfold.App:
    made = projects.make(tmp_path / "project", cluster.endpoints, f"o{uuid.uuid4().hex[:8]}")
    projects.apply(made)
    return made


# The shadow group ---------------------------------------------------------------------------------------------------


def described(app: leftfold.App, group: str) -> dict[int, dict[str, str]]:
    """What Kafka's own tool says of a group, by partition."""
    asked = ("--describe", "--group", group)
    lines = [line.split() for line in kafka_tools.lines(app, kafka_tools.GROUPS, *asked)]
    heading = next(line for line in lines if line[0] == "GROUP")
    rows = [dict(zip(heading, line, strict=True)) for line in lines if line[0] == group]
    return {int(row["PARTITION"]): row for row in rows}


def test_kafkas_tools_see_the_lag(app: leftfold.App) -> None:
    send(app, [payment(i, f"a{i}") for i in range(600)])
    topic, group = app.profile.topic_name("payments"), f"leftfold.{app.profile.namespace}.account_activity"
    ends = app.log[0].end_offsets(topic, 6)
    assert all(end > 10 for end in ends.values())

    shadow = LagGroup(app.kafka, group)
    shadow.publish({topic: dict.fromkeys(ends, 0)})
    shadow.publish({topic: {p: end - p - 1 for p, end in ends.items()}})  # what is newer is told by close at the latest
    shadow.close()
    assert shadow.failure is None

    seen = described(app, group)
    assert {p: int(row["LAG"]) for p, row in seen.items()} == {p: p + 1 for p in ends}
    assert {p: int(row["CURRENT-OFFSET"]) for p, row in seen.items()} == {p: end - p - 1 for p, end in ends.items()}
    assert {row["CONSUMER-ID"] for row in seen.values()} == {"-"}, "the group has members"

    read = subprocess.run(
        ["kcat", "-b", app.kafka.bootstrap, "-e", "-q", "-f", "%p %o\\n", "-G", group, topic],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = sorted(tuple(map(int, line.split())) for line in read.stdout.splitlines())
    assert found == [(p, o) for p, end in sorted(ends.items()) for o in range(end - p - 1, end)]


def test_a_group_that_somebody_joined_is_left_alone(app: leftfold.App) -> None:
    """It is display: what cannot be told stops nothing, and can be asked for."""
    send(app, [payment(1, "a1")])
    topic, group = app.profile.topic_name("payments"), f"joined-{app.profile.namespace}"
    joined = subprocess.Popen(
        [
            "kcat",
            "-b",
            app.kafka.bootstrap,
            "-u",
            "-f",
            "%o\\n",
            "-X",
            "auto.offset.reset=earliest",
            "-G",
            group,
            topic,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert joined.stdout is not None
        assert joined.stdout.readline() == "0\n"  # it has its partitions
        shadow = LagGroup(app.kafka, group)
        started = time.monotonic()
        shadow.publish({topic: {0: 0}})
        assert time.monotonic() - started < 0.1
        shadow.close()
        assert shadow.failure is not None
        assert "member" in shadow.failure.lower()
        shadow.publish({topic: {0: 1}})  # closed: nothing happens
    finally:
        joined.terminate()
        joined.wait()


# Prometheus ---------------------------------------------------------------------------------------------------------


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """A real one that scrapes `target` every half second."""
    directory.mkdir()
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 500ms}\n"
        f"scrape_configs: [{{job_name: leftfold, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    port = ports.choose(1)[0]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def asked(prometheus_url: str, query: str) -> dict[tuple[tuple[str, str], ...], float]:
    """An instant query: the value of each series, by its labels."""
    try:
        with urllib.request.urlopen(
            f"{prometheus_url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=10
        ) as answer:
            result = json.load(answer)["data"]["result"]
    except OSError:  # not listening yet
        return {}
    return {tuple(sorted(r["metric"].items())): float(r["value"][1]) for r in result}


@pytest.mark.nightly
def test_prometheus_sees_what_was_applied(app: leftfold.App, tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    send(app, [*(payment(i, f"a{i % 50}") for i in range(2_000)), *(payment(i, "a1", at=long_ago) for i in range(7))])
    port = ports.choose(1)[0]
    with (
        projects.running(app.root, "--metrics", str(port)) as run,
        prometheus(tmp_path / "prometheus", f"127.0.0.1:{port}") as url,
    ):

        def counted() -> dict[str, float]:
            found = asked(url, "sum by (outcome) (leftfold_records_total)")
            return {dict(labels)["outcome"]: value for labels, value in found.items()}

        wanted: dict[str, float] = {"accepted": 2_000, "late": 7, "future": 0, "rejected": 0}
        projects.await_true(lambda: counted() == wanted or not run.alive, timeout=180, what="all to be counted")
        assert run.alive, run.explain()
        send(app, [payment(i, "a1") for i in range(100)])
        wanted["accepted"] += 100
        projects.await_true(lambda: counted() == wanted or not run.alive, timeout=240, what="the rest to be counted")
        ((labels, up),) = asked(url, 'leftfold_view_up{view="account_activity"}').items()
        assert (dict(labels)["view"], up) == ("account_activity", 1.0)
        ((labels, _),) = asked(url, 'leftfold_view_state{view="account_activity"} == 1').items()
        assert dict(labels)["state"] == "running"
        ((labels, batch),) = asked(url, 'leftfold_last_batch{view="account_activity"}').items()
        assert dict(labels)["build"] == run.lines()[-1]["build"]
        assert batch >= 1
        projects.await_true(
            lambda: set(asked(url, "leftfold_lag_records").values()) == {0.0}, timeout=240, what="no lag"
        )
        assert "metrics at http://127.0.0.1:" in (app.root / "run.err").read_text()


# Why ----------------------------------------------------------------------------------------------------------------


def told(app: leftfold.App, *words: str) -> tuple[int, dict[str, Any]]:
    """`leftfold why`, in an interpreter that could not import PySpark if it tried."""
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        f"sys.argv = ['leftfold', 'why', *{list(words)!r}, '--json']\n"
        "from leftfold.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=app.root, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def place(event: dict[str, Any]) -> tuple[int, int]:
    return event["partition"], event["offset"]


def test_why_names_the_events_and_finds_what_they_did_not_make(app: leftfold.App, spark: Any) -> None:
    now = datetime.now(UTC)
    send(app, [payment(i, f"b{i}") for i in range(200)])
    mine = [
        payment(1, "a1", at=now - timedelta(minutes=5), amount=10.0, note="first"),
        payment(2, "a1", at=now - timedelta(minutes=1), amount=20.0, note="newest"),
        payment(3, "a1", at=now - timedelta(minutes=3), amount=40.0, note="out of order"),
        payment(4, "a1", at=now - timedelta(hours=1), amount=80.0, note="late"),
    ]
    send(app, mine)
    topic = app.profile.topic_name("payments")
    raw = Producer({"bootstrap.servers": app.kafka.bootstrap, "partitioner": "murmur2_random"})
    raw.produce(topic, value=b"no record", key=b"a1")
    assert raw.flush(240) == 0
    (progress,) = run_until_caught_up(app, spark)
    send(app, [payment(5, "a1", amount=1.0)])  # it is not applied, so it made nothing

    partition = partition_of(b"a1", 6)
    first = app.log[0].end_offsets(topic, 6)[partition] - 6
    code, found = told(app, "account_activity", "a1")
    assert (code, found["verdict"]) == (0, "same"), found["reason"]
    assert found["build"] == progress.build
    assert {v["name"]: v["store"] for v in found["values"]} == {
        "payments_1h": 3,
        "big_1h": 0,
        "amount_24h": 70.0,
        "points_24h": 3,
        "note_7d": "newest",
        "amount_7d": 20.0,
    }
    assert [(place(e), e["outcome"]) for e in found["events"]] == [
        ((partition, first + i), outcome)
        for i, outcome in enumerate(["accepted", "accepted", "accepted", "late", "rejected"])
    ]
    assert [r["partition"] for r in found["read"]] == [partition]
    made = {tile["number"]: tile for tile in found["tiles"]}
    for event, record in zip(found["events"][:3], mine, strict=False):
        tiles = [made[number] for number in event["tiles"]]
        assert tiles
        assert all(t["start"] <= record["at"].isoformat() < t["end"] for t in tiles)
        assert all(t["batch"] == found["batch"] for t in tiles)
    assert all(e["tiles"] == [] for e in found["events"][3:])
    assert all(tile["store"] == tile["log"] for tile in found["tiles"])

    # A tile that no event made.
    store: Any = redis.Redis.from_url(app.online.url.get_secret_value())
    row = f"lf:{app.profile.namespace}:row:account_activity:{progress.build}:a1"
    counted = next(v["tiles"] for v in found["values"] if v["name"] == "payments_1h")
    tile = made[next(number for number in found["events"][0]["tiles"] if number in counted)]
    index = int(datetime.fromisoformat(tile["start"]).timestamp()) // tile["step_s"]
    definition = app.catalog.view("account_activity").definition
    assert isinstance(definition, Definition)
    field = tile_field(tile["step_s"] * SECOND, index, definition.rings[tile["step_s"] * SECOND])
    held = json.loads(store.hget(row, field))
    store.hset(row, field, json.dumps([*held[:2], held[2] + 4, *held[3:]]))
    code, found = told(app, "account_activity", "a1")
    assert (code, found["verdict"]) == (1, "different")
    wrong = [(v["name"], v["store"] - v["log"]) for v in found["values"] if not v["same"]]
    assert wrong == [("payments_1h", 4)]
    (tampered,) = [tile for tile in found["tiles"] if tile["store"] != tile["log"]]
    assert tampered["store"][0] - tampered["log"][0] == 4
    assert len(found["read"]) == 6, "before it says so, it looks where else the key may be"

    code, found = told(app, "account_activity", "nobody")
    assert (code, found["verdict"], found["events"], found["tiles"]) == (0, "same", [], [])


ITEMS = """\
from datetime import datetime

import leftfold as lf


class ItemUpdate(lf.Event):
    item_id: str
    shop: int
    category: str
    at: datetime


items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True, partitions=3, format="json")
sales = lf.Topic("sales", ItemUpdate, key=ItemUpdate.item_id, time=ItemUpdate.at, partitions=3, format="json")


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category
    at_ = ItemUpdate.at


class ShopSales(lf.Features, of=sales, by=ItemUpdate.shop):
    ever = lf.count(None)
    kinds_1h = lf.distinct(ItemUpdate.category, "1h")
    share = kinds_1h / ever
"""


def test_why_of_a_table_and_of_another_key_than_the_topics(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    app = projects.make(tmp_path / "items", cluster.endpoints, f"o{uuid.uuid4().hex[:8]}", ITEMS)
    projects.apply(app)
    now = datetime.now(UTC)
    for topic in ("items", "sales"):
        with app.producer(topic) as producer:
            for i in range(60):
                producer.send_dict({"item_id": f"i{i % 10}", "shop": i % 4, "category": f"c{i % 7}", "at": now})
    with app.producer("items") as producer:
        producer.delete(item_id="i3")
    run_until_caught_up(app, spark)

    code, found = told(app, "item", "i7")
    assert (code, found["verdict"], found["kind"]) == (0, "same", "table")
    assert found["values"][0]["store"] == "c1"
    assert found["position"] == found["events"][-1]["offset"]
    assert len(found["events"]) == 6
    code, found = told(app, "item", "i3")
    assert (found["verdict"], found["values"][0]["store"], found["events"][-1]["deleted"]) == ("same", None, True)

    code, found = told(app, "shop_sales", "1")
    assert (code, found["verdict"]) == (0, "same")
    assert {v["name"]: v["store"] for v in found["values"]} == {"ever": 15, "kinds_1h": 7, "share": 7 / 15}
    assert len(found["events"]) == 15
    assert {r["partition"] for r in found["read"]} == {0, 1, 2}


def test_partitions_are_where_producers_put_keys(app: leftfold.App) -> None:
    keys = ["", "a", "ab", "abc", "abcd", "é∑", *(f"account-{i}" for i in range(200))]
    send(app, [payment(i, key) for i, key in enumerate(keys)])
    topic = app.profile.topic_name("payments")
    log = LogReader(app.kafka)
    ends = app.log[0].end_offsets(topic, 6)
    found = {r.key: r.partition for r in log.read(topic, {p: (0, end) for p, end in ends.items()})}
    log.close()
    assert found == {key.encode(): partition_of(key.encode(), 6) for key in keys if key} | {
        b"": found[b""]  # to librdkafka's random partitioner an empty key is none
    }
