"""History read again: the same records each time, and each once.

`make engine` sends 20,000 records and kills twice; `make replay` sends 200,000, replays ten times and kills ten times.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet
import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition

import leftfold
from leftfold.errors import LeftfoldError
from leftfold.kafka import copy
from leftfold.run.choice import Engine
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.effects import payments
from tests.engine.log import Logged, read_topic

FULL = os.environ.get("LEFTFOLD_REPLAY") == "full"
RECORDS, KILLS, REPLAYS = (200_000, 10, 10) if FULL else (20_000, 2, 4)
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
FEATURES = projects.PAYMENTS[projects.PAYMENTS.index("class AccountActivity") :]
COPIED = FEATURES.replace("AccountActivity(lf.Features, of=payments,", "CopiedActivity(lf.Features, of=payments_12,")


def target(partitions: int) -> str:
    options = f'key=Payment.account, time=Payment.at, partitions={partitions}, lateness="10m", log_time="header"'
    return f'\n\npayments_{partitions} = lf.Topic("payments_{partitions}", Payment, {options})\n'


# Reading the truth ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raw:
    """A record as it lies in the log, by the tests' own consumer."""

    partition: int
    offset: int
    log_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def raw_records(bootstrap: str, topic: str) -> list[Raw]:
    """All that is committed: to the end of each partition, which a transaction's marker may be."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = sorted(consumer.list_topics(topic, timeout=120).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Raw] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(10_000, timeout=0.2):
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if message.error() is not None:
                ended.add(partition)
                continue
            headers: Any = message.headers() or ()
            raw = Raw(partition, offset, message.timestamp()[1], message.key(), message.value(), tuple(headers))
            found.append(raw)
    consumer.close()
    return found


def spoil(app: leftfold.App, number: int, chance: random.Random) -> int:
    """Records that no view takes: no value, no frame, an id that nobody gave out, half of a body, no key."""
    name = app.profile.topic_name("payments")
    client = Producer({"bootstrap.servers": app.kafka.bootstrap, "partitioner": "murmur2_random"})
    for i in range(number):
        value: Any = [None, b"", b"\x01abcdef", b"\x00\x00\x00\x27\x0fabcdef", b"\x00\x00\x00\x00\x01\x02"][i % 5]
        key: Any = None if i % 3 == 0 else f"a{chance.randrange(300)}"
        client.produce(name, value, key, headers=[("trace", f"t{i}".encode()), ("leftfold.log_time", b"7")])
    assert client.flush(240) == 0
    return number


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def app(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> leftfold.App:
    """Skewed keys over six partitions, a tenth out of order, late or from the future, some that are no events."""
    made = projects.make(
        tmp_path_factory.mktemp("replay"), cluster.endpoints, f"r{uuid.uuid4().hex[:8]}", projects.PAYMENTS + target(3)
    )
    projects.apply(made)
    chance = random.Random(SEED)
    with made.producer("payments") as producer:
        for record in payments(RECORDS, chance):
            producer.send_dict(record)
    spoil(made, 40, chance)
    return made


def outcome_of(logged: Logged) -> str:
    if logged.record is None:
        return "rejected"
    event_us = round(logged.record["at"].timestamp() * 1_000_000)
    if event_us < logged.log_us - oracle.LATENESS_MS * 1_000:
        return "late"
    return "future" if event_us > logged.log_us + oracle.FUTURE_MS * 1_000 else "accepted"


def truth_of(app: leftfold.App) -> dict[tuple[int, int], tuple[str, datetime, dict[str, Any] | None]]:
    topic = app.profile.topic_name("payments")
    schemas = app.log[1].versions(f"{topic}-value")
    return {
        (logged.partition, logged.offset): (
            outcome_of(logged),
            datetime.fromtimestamp(0, UTC) + timedelta(microseconds=logged.log_us),
            logged.record,
        )
        for logged in read_topic(app.kafka.bootstrap, topic, schemas)
    }


FIELDS = ("id", "account", "amount", "points", "note", "at")


@pytest.mark.parametrize("engine", ["arrow", "spark"])
def test_files_hold_what_the_log_holds(app: leftfold.App, spark: Any, tmp_path: Path, engine: Engine) -> None:
    replay = app.replay("payments")
    truth = truth_of(app)
    parquet = replay.write(str(tmp_path / "parquet"), engine=engine)
    jsonl = replay.write(str(tmp_path / "jsonl"), "jsonl", engine=engine)
    engines: tuple[Engine, ...] = ("arrow", "spark")
    for other in engines:
        assert app.replay("payments").again(parquet, engine=other).digest == parquet.digest
    assert parquet.digest == jsonl.digest
    assert parquet.records == len(truth)
    assert parquet.outcomes == Counter(outcome for outcome, _, _ in truth.values())
    assert sorted(parquet.rejected_ids) == [9_999]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["jsonl", "parquet"]
    assert json.loads((tmp_path / "parquet" / "manifest.json").read_text())["digest"] == parquet.digest

    rows = pyarrow.parquet.read_table(tmp_path / "parquet" / "records").to_pylist()
    found = {(row["_partition"], row["_offset"]): row for row in rows}
    assert found.keys() == truth.keys()
    for place, (outcome, log_time, record) in truth.items():
        row = found[place]
        assert (row["_outcome"], row["_log_time"]) == (outcome, log_time), place
        assert {name: row[name] for name in FIELDS} == ({"note": None, **record} if record else dict.fromkeys(FIELDS))

    lines = [
        json.loads(line)
        for file in (tmp_path / "jsonl" / "records").glob("part-*")
        for line in file.read_text().splitlines()
    ]
    assert len(lines) == len(truth)
    for line in lines:
        row = found[line["_partition"], line["_offset"]]
        assert datetime.fromisoformat(line["_log_time"]) == row["_log_time"]
        assert (base64.b64decode(line["_key"]) if "_key" in line else None) == row["_key"]
        assert line.get("amount") == row["amount"]

    frame = app.replay("payments").frame(spark)  # which learns by itself
    assert frame.where("_outcome = 'rejected'").count() == 40
    with pytest.raises(LeftfoldError, match="exists already"):
        replay.write(str(tmp_path / "parquet"), engine=engine)


def test_a_moment_finds_offsets_and_ends_are_frozen(app: leftfold.App, spark: Any, tmp_path: Path) -> None:
    truth = truth_of(app)
    times = sorted(log_time for _, log_time, _ in truth.values())
    start, end = times[len(times) // 4], times[3 * len(times) // 4]
    replay = app.replay("payments", start=start, end=end)
    frozen = {(r.partition, o) for r in replay.ranges for o in range(r.start, r.end)}
    for partition in range(6):  # by hand: the first record of each partition that is as late
        mine = sorted((o, truth[p, o][1]) for p, o in truth if p == partition)
        first = next((o for o, at in mine if at >= start), len(mine))
        last = next((o for o, at in mine if at >= end), len(mine))
        assert {o for p, o in frozen if p == partition} == set(range(first, last))
    before = app.replay("payments")
    with app.producer("payments") as producer:
        for record in payments(100, random.Random(1), RECORDS):
            producer.send_dict(record)
    assert before.frame(spark).count() == len(truth)
    assert len(app.replay("payments").ranges) == len(truth) + 100


@pytest.mark.nightly
@pytest.mark.timeout(1_800 if FULL else 600)
def test_every_replay_of_a_range_is_the_same(app: leftfold.App, spark: Any, tmp_path: Path) -> None:
    """Shuffle partitions, adaptive execution, split sizes; and a driver killed in the middle."""
    end = datetime.now(UTC) + timedelta(seconds=1)
    time.sleep(1.5)
    command = [projects.LEFTFOLD, "replay", "payments", "--to", end.isoformat(), "--json"]
    out = tmp_path / "out"
    killed = subprocess.Popen(
        [*command, "--out", str(out), "--engine", "spark"],
        cwd=app.root,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    projects.await_true(
        lambda: bool(list(tmp_path.glob("out.unfinished-*"))) or killed.poll() is not None,
        timeout=240,
        what="a replay under way",
    )
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not out.exists(), "a killed replay looks finished"
    with app.producer("payments") as producer:  # which no replay up to `end` may see
        for record in payments(500, random.Random(2), RECORDS + 100):
            producer.send_dict(record)
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=app.root, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads(done.stdout.splitlines()[-1])["manifest"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    digests = [manifest["digest"]]
    replay = app.replay("payments", end=end)
    assert replay.ranges.as_json() == manifest["ranges"]
    for number in range(REPLAYS - 1):
        spark.conf.set("spark.sql.shuffle.partitions", [2, 7, 1, 31][number % 4])
        spark.conf.set("spark.sql.adaptive.enabled", str(number % 2 == 0).lower())
        replay.source = replace(replay.source, per_task=[1_000, 1_000_000, 333, 50_000][number % 4])
        digests.append(replay.write(str(tmp_path / f"again{number}"), session=spark).digest)
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert set(digests) == {manifest["digest"]}
    again = app.replay("payments")
    found = again.again(_parsed(manifest), session=spark)
    assert (found.records, found.digest) == (manifest["records"], manifest["digest"])
    print(f"seed {SEED}: {len(digests)} of {len(digests)} replays of {manifest['records']:,} records: one digest")


def _parsed(document: dict[str, Any]) -> Any:
    from leftfold.replay.manifest import Manifest

    return Manifest.parse(json.dumps(document), "here")


# First log times ------------------------------------------------------------------------------------------------------

NOW_US = 1_790_000_000_000_000
NAME = "leftfold.log_time"
TEXTS = (b"", b"unknown", b"-1", b"17\n", b" 17", b"+17", b"1" * 18, b"1" * 19, b"\xff17")
HEADERS: list[Any] = [
    None,
    [],
    [("trace", b"17")],
    [(NAME, b"17")],
    [(NAME, None)],
    [(NAME, b"17"), (NAME, b"18")],
    [(NAME, b"x"), ("trace", b"x"), (NAME, b"18"), ("trace", None)],
    [(NAME, b"18"), (NAME, b"x")],
    *([(NAME, text)] for text in TEXTS),
    *([(NAME, str(NOW_US + ahead).encode())] for ahead in (0, 60_000_000, 60_000_001)),
]


def test_spark_and_python_believe_the_same_headers(app: leftfold.App, spark: Any) -> None:
    from leftfold.declare.first_log import header_of, log_time_of
    from leftfold.spark.source import _stamped

    rows = [
        (number, topic, headers, kind)
        for number, headers in enumerate(HEADERS)
        for topic in ("copied", "plain")
        for kind in (0, 1)
    ]
    shape = "number int, topic string, headers array<struct<key:string,value:binary>>, timestampType int"
    records = spark.createDataFrame(rows, shape).selectExpr("*", f"timestamp_micros({NOW_US}) as timestamp")
    source = replace(app.replay("payments").source, topics=("copied", "plain"), first_log=frozenset({"copied"}))
    log_time, by_broker = _stamped(source)
    found = records.select("number", "topic", "timestampType", log_time.alias("at"), by_broker.alias("by")).selectExpr(
        "number", "topic", "timestampType", "unix_micros(at)", "by"
    )
    said = {(n, topic, kind): (at, by) for n, topic, kind, at, by in found.collect()}
    for number, topic, headers, kind in rows:
        header = header_of(headers) if topic == "copied" else None
        expected = log_time_of(header, NOW_US, by_broker=kind == 1)
        assert said[number, topic, kind] == expected, (headers, topic, kind)
    assert {said[n, "copied", 1] for n in (0, 3, 5, 9)} == {(NOW_US, True), (17, True), (18, True), (NOW_US, False)}


# A new number of partitions -------------------------------------------------------------------------------------------


class Copying:
    """`leftfold replay payments --into payments_12` as a process of its own."""

    started: ClassVar[list[Copying]] = []

    def __init__(self, root: Path, *options: str) -> None:
        self.started.append(self)
        self._err = (root / "copy.err").open("ab")
        command = [projects.LEFTFOLD, "replay", "payments", "--into", "payments_12", "--json", *options]
        self.process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=self._err, text=True)

    def document(self, timeout: float) -> dict[str, Any]:
        """The last line of a copy that ended well; or its error, if it did not."""
        text = self.process.communicate(timeout=timeout)[0]
        found: dict[str, Any] = json.loads(text.splitlines()[-1])
        assert self.process.returncode == (1 if "error" in found else 0)
        return found


def ends_of(app: leftfold.App) -> int:
    return sum(app.log[0].stable_offsets(app.profile.topic_name("payments_12"), 12).values())


@pytest.fixture
def no_copier_left() -> Iterator[None]:
    yield
    for one in Copying.started:
        one.process.kill()
        one.process.wait()


def await_copying(app: leftfold.App, *options: str) -> Copying:
    """A copier that is at work. What one before it had asked for may be done after its death: that is over first."""
    seen = [-1, ends_of(app)]

    def settled() -> bool:
        time.sleep(2)
        seen.append(ends_of(app))
        return seen[-1] == seen[-2]

    projects.await_true(settled, timeout=180, what="an end of what was asked for")
    before, copying = seen[-1], Copying(app.root, *options)
    projects.await_true(
        lambda: ends_of(app) > before + 20 or copying.process.poll() is not None, timeout=180, what="a copy that moves"
    )
    assert copying.process.poll() is None, copying.document(1)
    return copying


def test_fewer_partitions_in_small_slices(app: leftfold.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """With so little room to wait that partitions are left and taken up again many times; stopped once on the way."""
    monkeypatch.setattr(copy, "SLICE", 700)
    monkeypatch.setattr(copy, "WAITING", 3_000)
    first = app.copy("payments", "payments_3")
    assert 3_000 < first.run(lambda: first.copier.copied > 3_000) < RECORDS
    second = app.copy("payments", "payments_3")
    second.run()
    assert second.copier.resumed
    name = app.profile.topic_name
    original, copied = (raw_records(app.kafka.bootstrap, name(t)) for t in ("payments", "payments_3"))
    check_copy(original, copied, 3)
    app.log[0].each(app.log[0].client.delete_consumer_groups([second.copier._group]))  # as brokers do after a week
    with pytest.raises(LeftfoldError, match="is not known"):
        app.copy("payments", "payments_3").run()


@pytest.mark.nightly
@pytest.mark.timeout(2_400 if FULL else 600)
@pytest.mark.usefixtures("no_copier_left")
def test_a_topic_moves_to_twelve_partitions_while_it_is_written(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    chance = random.Random(SEED)
    streams = f"{projects.PAYMENTS}{target(12)}\n\n{COPIED}"
    app = projects.make(tmp_path / "moved", cluster.endpoints, f"m{uuid.uuid4().hex[:8]}", streams)
    projects.apply(app)
    failures: list[LeftfoldError] = []
    over = threading.Event()

    def produce() -> None:
        try:
            with app.producer("payments") as producer:
                for record in payments(1_000 * RECORDS, random.Random(SEED)):  # half at once, then until all is over
                    producer.send_dict(record)
                    if record["id"] > RECORDS // 2 and record["id"] % 100 == 0 and not over.is_set():
                        producer.flush()
                        time.sleep(0.1)
                    if over.is_set() and record["id"] >= RECORDS:
                        break
        except LeftfoldError as error:
            failures.append(error)

    spoil(app, 40, chance)
    edge = [{**r, "at": datetime.now(UTC) - timedelta(seconds=596)} for r in payments(100, chance, -100)]
    with app.producer("payments") as producer:
        for record in edge:  # in time when they are logged, late by the clock when they are copied
            producer.send_dict(record)
    time.sleep(6)
    producing = threading.Thread(target=produce)
    producing.start()
    for _ in range(KILLS):
        copying = await_copying(app, "--follow")
        time.sleep(chance.uniform(0.0, 1.5))  # a random moment, inside a transaction or between two
        assert copying.process.poll() is None, copying.document(1)
        copying.process.kill()
        copying.process.wait()
    zombie = await_copying(app, "--follow")
    zombie.process.send_signal(signal.SIGSTOP)
    follower = await_copying(app, "--follow")
    zombie.process.send_signal(signal.SIGCONT)
    woken = zombie.document(180)["error"]  # a stop longer than its patience ends it before it hears of the other
    assert woken["code"] in ("copy-fenced", "copy-failed"), woken
    print(f"{KILLS} kills; one overtaken and woken: {woken['code']}, {woken['why']}")
    over.set()
    producing.join()
    assert not failures, failures[0]
    follower.process.send_signal(signal.SIGTERM)
    assert follower.document(120)["stopped"] is True
    last = Copying(app.root).document(240)
    assert last["resumed"] is True, last
    assert Copying(app.root).document(120)["records"] == 0

    source = raw_records(cluster.endpoints.bootstrap, app.profile.topic_name("payments"))
    moved = raw_records(cluster.endpoints.bootstrap, app.profile.topic_name("payments_12"))
    check_copy(source, moved, 12)
    assert sum(int(r.headers[-1][1] or 0) < (r.log_ms - 5_000) * 1_000 for r in moved) >= len(edge)
    (original, copied) = run_until_caught_up(app, spark, "account_activity", "copied_activity")
    assert original.error is None, original.error
    assert copied.error is None, copied.error
    assert original.records() == copied.records()
    topic = app.profile.topic_name("payments")
    log = oracle.read_log(cluster.endpoints.bootstrap, topic, app.log[1].versions(f"{topic}-value"))
    prefix = f"lf:{app.profile.namespace}:row:copied_activity:{copied.build}:"
    tiles = oracle.check_tiles(log, cluster.endpoints.redis_url, prefix)
    client = redis.Redis.from_url(
        cluster.endpoints.redis_url
    )  # a store that lost the view: repaired by first log times
    client.delete(*client.scan_iter(f"lf:{app.profile.namespace}:*:copied_activity:*", count=10_000))
    (repaired,) = run_until_caught_up(app, spark, "copied_activity")
    assert (repaired.error, repaired.repairs) == (None, 1)
    assert oracle.check_tiles(log, cluster.endpoints.redis_url, prefix) == tiles
    explained = app.why("copied_activity", account=next(iter(log.tiles))[0])
    assert explained.verdict == "same", explained.reason
    print(
        f"seed {SEED}: {len(source):,} records, {KILLS} kills of the copier: 0 lost, 0 doubled, per-key order and "
        f"first log times kept; 0 of {tiles:,} tiles differ; {len({r.partition for r in moved})} partitions"
    )


def check_copy(source: list[Raw], copy_of_it: list[Raw], partitions: int) -> None:
    """Each record once, in the order of its key, at its key's partition, with its headers and its first log time."""

    def by_key(records: list[Raw]) -> dict[bytes | None, list[Raw]]:
        found: dict[bytes | None, list[Raw]] = defaultdict(list)
        for record in sorted(records, key=lambda r: (r.partition, r.offset)):
            found[record.key].append(record)
        # What has no key has an order within its partition only, and these are not the same.
        found[None].sort(key=lambda r: dict(r.headers)["trace"] or b"")
        return found

    assert len(source) == len(copy_of_it)
    before, after = by_key(source), by_key(copy_of_it)
    assert before.keys() == after.keys()
    for key, records in before.items():
        copies = after[key]
        assert [r.value for r in records] == [c.value for c in copies], f"{key!r}: lost, doubled or out of order"
        assert key is None or len({c.partition for c in copies}) == 1, key
        for record, copied in zip(records, copies, strict=True):
            assert copied.headers[-1] == ("leftfold.log_time", str(record.log_ms * 1_000).encode())
            assert copied.headers[:-1] == tuple(h for h in record.headers if h[0] != "leftfold.log_time")
            assert key is not None or copied.partition == record.partition % partitions
