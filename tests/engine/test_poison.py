"""Records that are made to hurt: ids that no registry gave out, keys of a megabyte, a JVM that dies.

`make engine` takes some of each; `make poison` also 10,000 unknown ids among 1,000,000 records, and 1,000 keys of a
megabyte with a heap of one gigabyte.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import Producer

import leftfold
from leftfold.declare.keys import KEY_BYTES
from leftfold.declare.schema import avro_schema
from leftfold.kafka.registry import SchemaRegistry
from leftfold.run.running import Running
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_all
from tests.engine.test_many_keys import java_of

GOOD, GARBAGE = 3_000, 12
MANY, UNKNOWN = 1_000_000, 10_000
LONG_KEYS = 1_000
LARGEST = 1_048_588  # what a broker takes by default
STREAMS = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    at: datetime


class Price(lf.Event):
    item_id: str
    price: float


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=PARTITIONS)
prices = lf.Topic("prices", Price, key=Price.item_id, compacted=True, partitions=1)


class Activity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    last_item = lf.last(Click.item_id, "1h")


class Items(lf.Features, of=clicks, by=Click.item_id):
    clicks_1h = lf.count("1h")


class Prices(lf.Table, of=prices, by=Price.item_id):
    price = Price.price
"""
ONLY_ACTIVITY = STREAMS[: STREAMS.index("class Items")].replace("PARTITIONS", "6")


def made(cluster: Cluster, root: Path, streams: str = STREAMS.replace("PARTITIONS", "2")) -> leftfold.App:
    app = projects.make(root, cluster.endpoints, f"q{uuid.uuid4().hex[:8]}", streams)
    projects.apply(app)
    return app


def raw(app: leftfold.App) -> Producer:
    """One that checks nothing."""
    settings = {"acks": "all", "message.max.bytes": LARGEST, "compression.type": "lz4"}
    return Producer({"bootstrap.servers": app.kafka.bootstrap, **settings})


def unknown_ids(number: int) -> list[int]:
    """No registry of a test comes that far."""
    return random.Random(7).sample(range(1_000_000, 2**32), number)


def send(app: leftfold.App, good: int, garbage: int) -> list[int]:
    """Good clicks of 5,000 people, and garbage that looks framed among them, each under an id of its own."""
    ids, now = unknown_ids(garbage), datetime.now(UTC)
    with app.producer("clicks") as producer:
        users = [f"u{n}" for n in range(5_000)]
        values = [producer.encode({"user_id": user, "item_id": "i1", "at": now}) for user in users]
        for number in range(good):
            producer.send_encoded(users[number % 5_000].encode(), values[number % 5_000])
            if garbage and number % (good // garbage) == 0 and ids[number // (good // garbage) :]:
                bad = b"\0" + ids[number // (good // garbage)].to_bytes(4) + b"garbage"
                producer.send_encoded(users[number % 5_000].encode(), bad)
    return ids


def reasons(app: leftfold.App, topic: str) -> Counter[str]:
    return Counter(entry.reason for entry in app.rejects(topic).entries())


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each query is started, and how often the registry is asked for an id."""
    seen: Counter[str] = Counter()
    begin, ask = Running._start, SchemaRegistry.schema

    def started(self: Running) -> None:
        seen[self.name] += 1
        begin(self)

    def asked(self: SchemaRegistry, schema_id: int) -> str | None:
        seen["asked"] += 1
        return ask(self, schema_id)

    monkeypatch.setattr(Running, "_start", started)
    monkeypatch.setattr(SchemaRegistry, "schema", asked)
    return seen


# Ids that no registry gave out --------------------------------------------------------------------------------------


def test_unknown_ids_stop_a_query_once(cluster: Cluster, spark: Any, tmp_path: Path, starts: Counter[str]) -> None:
    app = made(cluster, tmp_path)
    ids = send(app, GOOD, GARBAGE)
    done = {one.view: one for one in run_all(app, spark)}
    expected = Counter({f"schema id {number} is not in the registry": 1 for number in ids})
    assert reasons(app, "clicks") == expected
    for name in ("activity", "items"):
        assert (done[name].totals()["accepted"], done[name].totals()["rejected"]) == (GOOD, GARBAGE)
        assert starts[name] == 2  # at first, and once it has met one of them
    assert starts["clicks.intake"] == 2

    # A second start meets none of them, and asks for none.
    starts.clear()
    again = {one.view: one for one in run_all(app, spark)}
    assert (starts["activity"], starts["asked"]) == (1, 0)
    assert again["activity"].totals()["accepted"] == GOOD

    # Among garbage a schema that was registered in the meantime is found: never a reject for want of a look.
    supervisor = app.supervisor(until_caught_up=True)
    subject = f"{app.profile.topic_name('clicks')}-value"
    newer = json.loads(avro_schema(app.catalog.topic("clicks").event))
    newer["fields"].append({"name": "page", "type": ["null", "string"], "default": None})
    new_id = app.log[1].register(subject, json.dumps(newer))
    client, now = raw(app), datetime.now(UTC)
    with app.producer("clicks") as producer:
        body = producer.encode({"user_id": "u1", "item_id": "i1", "at": now})[5:]
    for number in range(50):
        client.produce(app.profile.topic_name("clicks"), b"\0" + new_id.to_bytes(4) + body + b"\0", b"u1")
        client.produce(app.profile.topic_name("clicks"), b"\0" + (1 << 31 | number).to_bytes(4) + b"garbage", b"u1")
    # So is one that the registry has for another topic, which a view does not read at its start.
    subject = f"{app.profile.topic_name('prices')}-value"
    other = app.log[1].id_of(subject, avro_schema(app.catalog.topic("prices").event))
    assert other is not None
    client.produce(app.profile.topic_name("clicks"), b"\0" + other.to_bytes(4) + b"garbage", b"u1")
    assert client.flush(240) == 0
    later = {one.view: one for one in supervisor.run(lambda _: None, session=spark)}
    assert [one.error for one in later.values()] == [None] * len(later)
    assert later["activity"].totals()["accepted"] == GOOD + 50
    assert sum(reasons(app, "clicks").values()) == GARBAGE + 51
    assert reasons(app, "clicks")[f"undecodable under schema id {other}"] == 1

    # What is computed anew, and a replay of it all, take the same records.
    store = redis.Redis.from_url(cluster.endpoints.redis_url)
    store.delete(*store.scan_iter(f"lf:{app.profile.namespace}:*", count=1_000))
    repaired = {one.view: one for one in run_all(app, spark)}
    assert repaired["activity"].repairs == 1
    assert repaired["activity"].totals()["accepted"] == GOOD + 50
    assert app.get("activity", user_id="u2").clicks_1h == 1
    written = app.replay("clicks").write(str(tmp_path / "replayed"), session=spark)
    assert written.outcomes == {"accepted": GOOD + 50, "rejected": GARBAGE + 51}
    assert app.replay("clicks").frame(spark, user_id="u2").where("_outcome = 'accepted'").count() == 1


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_ten_thousand_unknown_ids_among_a_million(
    cluster: Cluster, spark: Any, tmp_path: Path, starts: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Clean and poisoned runs in turns, each over a topic of its own: the view and the intake of both.

    The first of each kind warms the JVM and is not counted.
    """
    took: dict[bool, list[float]] = {False: [], True: []}
    for number, poisoned in enumerate((False, True, False, True, True, False)):
        app = made(cluster, tmp_path / str(number), ONLY_ACTIVITY)
        ids = send(app, MANY, UNKNOWN if poisoned else 0)
        began = time.monotonic()
        done = {one.view: one for one in run_all(app, spark)}
        took[poisoned].append(time.monotonic() - began)
        assert done["activity"].totals()["accepted"] == MANY
        assert done["activity"].totals()["rejected"] == len(ids)
        assert reasons(app, "clicks") == Counter(f"schema id {number} is not in the registry" for number in ids)
        starts.clear()
        began = time.monotonic()
        run_all(app, spark)
        again = time.monotonic() - began
        assert (starts["activity"], starts["clicks.intake"], starts["asked"]) == (1, 1, 0)
        with capsys.disabled():
            print(f"{'poisoned' if poisoned else 'clean'}: {took[poisoned][-1]:.1f} s; a second start {again:.1f} s")
    ratio = sum(took[False][1:]) / sum(took[True][1:])
    with capsys.disabled():
        print(f"rate with 10,000 unknown ids among 1,000,000 records: {ratio:.2f} of the clean one")
    assert ratio >= 0.7


# Long keys ----------------------------------------------------------------------------------------------------------


def send_long(app: leftfold.App, number: int, size: int) -> None:
    """Keys just under what a broker takes, half of them packed to nothing by compression; the values are good."""
    client, draw = raw(app), random.Random(3)
    with app.producer("clicks") as producer:
        value = producer.encode({"user_id": "u1", "item_id": "i1", "at": datetime.now(UTC)})
    for n in range(number):
        key = draw.randbytes(size) if n % 2 else f"{n:06}".encode() + b"k" * (size - 6)
        while True:
            try:
                client.produce(app.profile.topic_name("clicks"), value, key)
                break
            except BufferError:
                client.poll(0.1)
    assert client.flush(120) == 0


def test_keys_above_the_bound_are_rejected(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    app = made(cluster, tmp_path)
    send(app, 100, 0)
    send_long(app, 6, 900_000)
    now, client = datetime.now(UTC), raw(app)
    with app.producer("clicks") as producer, app.producer("prices") as prices:
        with pytest.raises(leftfold.LeftfoldError, match="has a key of 1,025 bytes"):
            producer.send_dict({"user_id": "k" * (KEY_BYTES + 1), "item_id": "i", "at": now})
        with pytest.raises(leftfold.LeftfoldError, match="has a key of 2,000 bytes"):
            prices.delete(item_id="k" * 2_000)
        producer.send_dict({"user_id": "k" * KEY_BYTES, "item_id": "i1", "at": now})
        # Keyed by something else, so only a view knows that it is a key.
        producer.send_dict({"user_id": "u1", "item_id": "ü" * 600, "at": now})
        long = producer.encode({"user_id": "k" * 5_000, "item_id": "i1", "at": now})
        prices.send_dict({"item_id": "i1", "price": 1.0})
        large = prices.encode({"item_id": "i" * 5_000, "price": 1.0})
    client.produce(app.profile.topic_name("clicks"), long, b"u1")
    client.produce(app.profile.topic_name("prices"), large, b"i1")
    client.produce(app.profile.topic_name("prices"), None, b"i" * 5_000)
    assert client.flush(240) == 0
    done = {one.view: one for one in run_all(app, spark)}
    assert reasons(app, "clicks") == {"key too long": 6 + 1 + 1}
    assert reasons(app, "prices") == {"key too long": 2}
    assert done["activity"].totals() == {"accepted": 102, "late": 0, "future": 0, "rejected": 7}
    assert done["items"].totals() == {"accepted": 102, "late": 0, "future": 0, "rejected": 7}
    assert done["prices"].totals() == {"accepted": 1, "late": 0, "future": 0, "rejected": 2}
    assert [e.record.outcome for e in app.why("activity", user_id="k" * KEY_BYTES).events] == ["accepted"]
    refused = app.rejects("clicks").redrive().refused
    assert [reason for _, reason in refused] == ["key too long"] * 8


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_keys_of_a_megabyte_with_a_small_heap(cluster: Cluster, tmp_path: Path) -> None:
    app = made(cluster, tmp_path)
    send(app, 10_000, 0)
    send_long(app, LONG_KEYS, 1_000_000)
    send(app, 10_000, 0)
    with projects.running(tmp_path, "--until-caught-up") as run:  # Spark's default: a heap of 1 GB
        assert run.wait(900) == 0, run.explain()
        ended = run.lines()[-1]
    views = {view["view"]: view for view in ended["views"]}
    for name in ("activity", "items"):
        assert (views[name]["records"]["accepted"], views[name]["records"]["rejected"]) == (20_000, LONG_KEYS)
    assert reasons(app, "clicks") == {"key too long": LONG_KEYS}


# A JVM that dies ----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_jvm_that_dies_is_told_as_that(cluster: Cluster, tmp_path: Path) -> None:
    app = made(cluster, tmp_path)
    send(app, 100, 0)
    with projects.running(tmp_path) as run:
        run.await_batches(1)
        java = java_of(run.process.pid)
        assert java is not None
        os.kill(java, signal.SIGKILL)
        assert run.wait(300) == 1
    ended = run.lines()[-1]
    assert ended["error"]["code"] == "spark-died"
    assert "Traceback" not in (tmp_path / "run.err").read_text()

    # The next run reads with care, and then as usual.
    died = tmp_path / ".leftfold" / "local" / "locks" / "activity.died"
    assert died.exists()
    with projects.running(tmp_path, "--until-caught-up") as run:
        assert run.wait(300) == 0, run.explain()
    assert not died.exists()
