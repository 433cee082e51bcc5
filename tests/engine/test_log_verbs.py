"""`topics`, `groups` and `read` against Kafka's own tools, on topics and groups that are made at random."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined] # its stubs forget to re-export it

import leftfold
from leftfold.errors import LogError
from tests.engine import kafka_tools, projects
from tests.engine.conftest import Cluster
from tests.engine.test_view import payment, send

TOPICS = 20
PRESENT = "payments"


@pytest.fixture(scope="module")
def app(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> leftfold.App:
    root = tmp_path_factory.mktemp("log") / "project"
    made = projects.make(root, cluster.endpoints, f"l{uuid.uuid4().hex[:8]}")
    projects.apply(made)
    return made


# Kafka's own tools --------------------------------------------------------------------------------------------------


def described_partitions(app: leftfold.App) -> dict[tuple[str, int], dict[str, Any]]:
    pattern = re.compile(r"\s*Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\S+)\s+Isr: (\S+)")
    rows = (pattern.match(line) for line in kafka_tools.lines(app, kafka_tools.TOPICS, "--describe"))
    return {
        (row[1], int(row[2])): {"leader": int(row[3]), "replicas": numbers(row[4]), "in_sync": sorted(numbers(row[5]))}
        for row in rows
        if row is not None
    }


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def offsets(app: leftfold.App, which: str) -> dict[tuple[str, int], int]:
    rows = (line.rsplit(":", 2) for line in kafka_tools.lines(app, kafka_tools.OFFSETS, "--time", which))
    return {(name, int(partition)): int(offset) for name, partition, offset in rows}


def sizes(app: leftfold.App) -> dict[tuple[str, int], int]:
    """The bytes of the largest copy of each partition."""
    text = kafka_tools.lines(app, kafka_tools.LOG_DIRS, "--describe")[-1]
    largest: dict[tuple[str, int], int] = defaultdict(int)
    for broker in json.loads(text)["brokers"]:
        for directory in broker["logDirs"]:
            for part in directory["partitions"]:
                name, _, number = part["partition"].rpartition("-")
                largest[name, int(number)] = max(largest[name, int(number)], part["size"])
    return largest


def described_groups(app: leftfold.App) -> dict[str, dict[tuple[str, int], tuple[int, int, int]]]:
    """Position, end and lag by group and partition; without partitions that have no position."""
    asked = ["--describe", "--all-groups", "--timeout", "120000"]  # its default of 5 s is short for a busy machine
    groups: dict[str, dict[tuple[str, int], tuple[int, int, int]]] = defaultdict(dict)
    for line in kafka_tools.lines(app, kafka_tools.GROUPS, *asked):
        words = line.split()
        if len(words) >= 6 and words[2].isdigit() and words[3].isdigit():
            name, topic, partition, position, end, lag = words[:6]
            groups[name][topic, int(partition)] = (int(position), int(end), int(lag))
    return groups


# Topics and groups at random ----------------------------------------------------------------------------------------


def client(app: leftfold.App, transactional: str | None) -> Producer:
    """A plain producer; with an id for transactions it has ended what an earlier one of that id left open."""
    settings: dict[str, Any] = {"bootstrap.servers": app.kafka.bootstrap, "log_level": 0}
    if transactional is None:
        return Producer(settings)
    producer = Producer({**settings, "transactional.id": transactional})
    producer.init_transactions(60)
    return producer


@pytest.fixture(scope="module")
def made(app: leftfold.App) -> list[str]:
    """Topics of 1 to 12 partitions: some empty, some with their heads deleted, some with transactions."""
    draw = random.Random(16)
    names = [f"{app.profile.namespace}.made-{number}" for number in range(TOPICS)]
    new = [NewTopic(name, draw.choice([1, 2, 6, 12]), draw.choice([1, 2, 3])) for name in names]
    admin = app.log[0]
    admin.each(admin.client.create_topics(new))
    for name in names:
        admin.partitions_of(name)
    for number, name in enumerate(names[2:]):
        transactional = number % 3 == 0
        producer = client(app, name if transactional else None)
        for part in range(draw.choice([1, 3])):
            if transactional:
                producer.begin_transaction()
            for at in range(draw.randrange(1, 300)):
                producer.produce(name, draw.randbytes(draw.randrange(200)), key=f"{part}-{at}".encode())
            if transactional:
                try:
                    producer.abort_transaction(60) if part == 1 else producer.commit_transaction(60)
                except KafkaException:  # librdkafka gives up if a busy broker answers too late: another one ends it
                    producer = client(app, name)
        producer.flush(60)
    for name in names[5:10]:
        ends = admin.end_offsets(name, admin.partitions_of(name))
        cut = [TopicPartition(name, p, draw.randrange(end + 1)) for p, end in ends.items()]
        admin.each(admin.client.delete_records(cut))
    return names


@contextmanager
def reading(app: leftfold.App, group: str, topics: list[str], protocol: str, *, commit: bool) -> Iterator[None]:
    """A member of the group, until the block ends. It has read some records, and committed if it is to."""
    member = Consumer(
        {
            "bootstrap.servers": app.kafka.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    member.subscribe(topics)
    try:
        seen = 0
        deadline = time.monotonic() + 240
        while not (member.assignment() and seen) and time.monotonic() < deadline:
            seen += len(member.consume(50, timeout=1.0))
        assert seen, f"{group} got nothing"
        if commit:
            member.commit(asynchronous=False)
        yield
    finally:
        member.close()


@pytest.mark.timeout(900)
def test_topics_equal_kafkas_own_tools(app: leftfold.App, made: list[str]) -> None:
    statuses = {status.topic: status for status in app.topics()}
    assert set(made) < set(statuses)
    ours = {(name, part.partition): part for name, status in statuses.items() for part in status.partitions}
    theirs = {place: row for place, row in described_partitions(app).items() if not place[0].startswith("__")}
    assert set(ours) == set(theirs)
    for place, part in ours.items():
        shown = {"leader": part.leader, "replicas": list(part.replicas), "in_sync": sorted(part.in_sync)}
        assert shown == theirs[place], place
    firsts, ends, largest = offsets(app, "earliest"), offsets(app, "latest"), sizes(app)
    assert {place: part.first for place, part in ours.items()} == {place: firsts[place] for place in ours}
    assert {place: part.end for place, part in ours.items()} == {place: ends[place] for place in ours}
    assert {place: part.bytes for place, part in ours.items()} == {place: largest[place] for place in ours}
    assert any(part.first for part in ours.values())


@pytest.mark.timeout(900)
def test_groups_equal_kafkas_own_tools(app: leftfold.App, made: list[str]) -> None:
    draw = random.Random(17)
    prefix = f"{app.profile.namespace}-group"
    with ExitStack() as living:
        for number in range(20):
            topics = draw.sample(made[10:], draw.choice([1, 2, 3]))
            protocol = "classic" if number % 2 else "consumer"
            member = reading(app, f"{prefix}-{number}", topics, protocol, commit=number % 5 != 4)
            if number < 4:
                living.enter_context(member)
            else:
                with member:
                    pass
        ours = {status.group: status for status in app.groups()}
        theirs = described_groups(app)
    names = {name for name in theirs if name.startswith(prefix)}
    assert len(names) >= 16  # those that committed nothing and have no member are not groups
    for name in names:
        places = {
            (topic.topic, at.partition): (at.position, at.end, at.lag)
            for topic in ours[name].topics
            for at in topic.positions
        }
        assert places == theirs[name], name
    members = {name: status.members for name, status in ours.items() if status.group in names}
    assert members == {name: int(name in {f"{prefix}-{number}" for number in range(4)}) for name in names}
    assert {ours[f"{prefix}-{number}"].state for number in range(4)} == {"stable"}
    behind = [status for status in ours.values() if status.group in names and status.lag]
    assert behind
    for status in behind:
        assert status.lag_s is not None
        assert 0 <= status.lag_s < 900


def test_idle_members_are_counted(app: leftfold.App, made: list[str]) -> None:
    topic = f"{app.profile.namespace}.one"
    admin = app.log[0]
    admin.create(topic, partitions=1, replication=3, configs={})
    Producer({"bootstrap.servers": app.kafka.bootstrap}).flush()
    group = f"{app.profile.namespace}-idle"
    settings = {"bootstrap.servers": app.kafka.bootstrap, "group.id": group, "group.protocol": "consumer"}
    members = [Consumer(settings | {"log_level": 0}) for _ in range(3)]
    try:
        for member in members:
            member.subscribe([topic])

        def joined() -> bool:
            for member in members:
                member.poll(0.1)
            found = [s for s in app.groups(topic) if s.group == group]
            return bool(found) and found[0].members == 3 and found[0].idle == 2

        projects.await_true(joined, timeout=240, what="three members, two of them idle")
    finally:
        for member in members:
            member.close()


# Reading ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sent(app: leftfold.App) -> datetime:
    """500 payments, then one that breaks a rule and one that no schema describes. Returns the time between."""
    send(app, [payment(number, f"a{number % 50}") for number in range(500)])
    between = datetime.now(UTC) + timedelta(milliseconds=50)
    while datetime.now(UTC) < between:
        time.sleep(0.01)
    send(app, [payment(1_000 + number, "late") for number in range(3)])
    raw = Producer({"bootstrap.servers": app.kafka.bootstrap, "log_level": 0})
    raw.produce(app.profile.topic_name(PRESENT), b"not avro", key=b"bad")
    raw.flush(60)
    return between


def test_the_newest_records(app: leftfold.App, sent: datetime) -> None:
    newest = list(app.read(PRESENT, most=4))
    assert [record.key for record in newest] == [b"late", b"late", b"late", b"bad"]
    assert [record.outcome for record in newest] == ["accepted"] * 3 + ["rejected"]
    assert newest[0].fields is not None
    assert newest[0].fields["id"] == 1_000
    assert isinstance(newest[0].fields["at"], datetime)
    assert newest[-1].reason == "too short or not framed"
    assert newest[-1].value == b"not avro"


def test_records_from_a_time_of_a_key_and_at_an_offset(app: leftfold.App, sent: datetime) -> None:
    assert sorted(record.key or b"" for record in app.read(PRESENT, start=sent, most=None)) == [b"bad", *[b"late"] * 3]
    of_key = list(app.read(PRESENT, key="a7", most=None))
    assert [record.fields["id"] for record in of_key if record.fields] == list(range(7, 500, 50))
    assert len({record.partition for record in of_key}) == 1
    third = of_key[2]
    (again,) = app.read(PRESENT, partition=third.partition, offset=third.offset, most=1)
    assert again == third
    everything = list(app.read(PRESENT, start=datetime(2020, 1, 1, tzinfo=UTC), most=None))
    assert len(everything) == 504


def test_it_follows(app: leftfold.App, sent: datetime) -> None:
    following = app.read(PRESENT, most=None, follow=True, key="followed")
    send(app, [payment(2_000, "followed")])
    assert next(following).key == b"followed"
    send(app, [payment(2_001, "followed")])
    later = next(following)
    assert later.fields is not None
    assert later.fields["id"] == 2_001
    following.close()  # type: ignore[attr-defined] # it is a generator


def test_transactions_and_markers(app: leftfold.App, made: list[str]) -> None:
    """Aborted records are not shown, and markers at the end hide none of the newest ones."""
    name = made[2]  # transactional
    everything = list(app.read(name, start=datetime(2020, 1, 1, tzinfo=UTC), most=None))
    newest = list(app.read(name, most=5))
    assert len(newest) == min(5, len(everything))
    assert {(r.partition, r.offset) for r in newest} <= {(r.partition, r.offset) for r in everything}
    assert not any((record.key or b"").startswith(b"1-") for record in everything)


def test_what_is_not_there_is_told(app: leftfold.App, made: list[str], sent: datetime) -> None:
    cut = next(s for s in app.topics() if s.topic in made[5:10] and any(p.first for p in s.partitions))
    part = next(p for p in cut.partitions if p.first)
    for code, asked in {
        "topic-missing": {"topic": "nobody"},
        "partition-missing": {"topic": PRESENT, "partition": 6},
        "offset-gone": {"topic": cut.topic, "partition": part.partition, "offset": 0},
    }.items():
        with pytest.raises(LogError) as refused:
            list(app.read(**asked))  # type: ignore[arg-type] # each is one of its arguments
        assert refused.value.code == code


def test_the_command_line(app: leftfold.App, sent: datetime) -> None:
    def verb(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "leftfold", *words], cwd=app.root, capture_output=True, text=True, check=True
        )

    assert app.profile.topic_name(PRESENT) in verb("topics").stdout
    shown = verb("topics", PRESENT)
    assert "on at least 2 of 3 brokers and survives the loss of any 1; writes stop while 2 are away" in shown.stderr
    assert len(shown.stdout.splitlines()) == 6
    (document,) = (json.loads(line) for line in verb("topics", PRESENT, "--json").stdout.splitlines())
    assert document["topics"][0]["declared"] == PRESENT
    lines = [json.loads(line) for line in verb("read", PRESENT, "-n", "3", "--json").stdout.splitlines()]
    assert len(lines) == 3
    assert {line["verb"] for line in lines} == {"read"}
    assert "accepted" in verb("read", PRESENT, "-n", "1", "--key", "a7").stdout
    assert json.loads(verb("groups", "--json").stdout)["verb"] == "groups"
