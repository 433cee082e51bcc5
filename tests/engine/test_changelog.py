"""The changelog on real brokers: one effect per batch, and no old writer that could spoil it."""

from __future__ import annotations

import itertools
import os
import random
import signal
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # its stubs forget these

from leftfold.errors import LogError
from leftfold.kafka import changelog as module
from leftfold.kafka.admin import Admin
from leftfold.kafka.changelog import ChangelogTopic, StaleWriterError, marks, write, writer_of
from leftfold.settings import Kafka
from tests.engine import projects
from tests.engine.conftest import Cluster

PARTITIONS = 3
COMPACTED = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
# Compacted as soon as a broker looks, which it does every 15 s.
AT_ONCE = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}


def made(cluster: Cluster, **configs: str) -> ChangelogTopic:
    """A changelog of its own, with the partitions that exist as its writers."""
    kafka = Kafka(bootstrap=cluster.endpoints.bootstrap)
    topic = f"changelog.{uuid.uuid4().hex[:8]}"
    Admin(kafka).create(topic, partitions=PARTITIONS, replication=3, configs=COMPACTED | configs)
    return ChangelogTopic(kafka, topic, scope=f"lf.{topic}.b1", build="b1", writers=PARTITIONS)


@pytest.fixture
def changelog(cluster: Cluster) -> Iterator[ChangelogTopic]:
    yield made(cluster)
    module.close()


def row(entity: str, batch: int, *partials: int) -> tuple[str, str, str]:
    return entity, "60:1", f"[{','.join(map(str, (100, batch, *partials)))}]"


def read(changelog: ChangelogTopic) -> list[tuple[str, str | None, dict[str, str]]]:
    """What a fresh reader sees: key, value and headers, in the order of each partition."""
    await_ended(changelog)
    consumer = Consumer(
        {
            "bootstrap.servers": changelog.kafka.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(changelog.topic, p, 0) for p in range(PARTITIONS)])
    found, ended = [], 0
    while ended < PARTITIONS:
        message = consumer.poll(240)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        key, value = message.key(), message.value()
        assert key is not None
        headers: Any = message.headers() or ()
        found.append(
            (
                key.decode(),
                None if value is None else value.decode(),
                {name: text.decode() for name, text in headers},
            )
        )
    consumer.close()
    return found


def await_ended(changelog: ChangelogTopic) -> None:
    """A commit returns when it is decided; readers see it when its markers have reached the partitions."""
    client = AdminClient({"bootstrap.servers": changelog.kafka.bootstrap})
    places: Any = {TopicPartition(changelog.topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}  # type: ignore[no-untyped-call]

    def ends(level: IsolationLevel) -> list[int]:
        return [f.result().offset for f in client.list_offsets(places, isolation_level=level).values()]

    projects.await_true(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        timeout=240,
        what="the transactions to end",
    )


def state(changelog: ChangelogTopic) -> dict[str, str]:
    return {key: value for key, value, _ in read(changelog) if value is not None}


class Elsewhere:
    """Another process: it keeps writers of its own."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def __enter__(self) -> None:
        self._own, module._kept = module._kept, self._kept

    def __exit__(self, *_: object) -> None:
        module._kept = self._own

    def close(self) -> None:
        with self:
            module.close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    other = Elsewhere()
    yield other
    other.close()


def test_rows_and_deletions(changelog: ChangelogTopic) -> None:
    rows = [("a/b é", "60:1", '[7,0,"x,y"]'), ("c", "row", "[8,0]"), ("", "life", "[9,0,1]")]
    assert write(changelog, 0, 0, rows) == 3
    assert sorted(read(changelog), key=lambda r: r[0]) == [
        ("b1/60:1/a/b é", '[7,0,"x,y"]', {"batch": "0"}),
        ("b1/life/", "[9,0,1]", {"batch": "0"}),
        ("b1/row/c", None, {"batch": "0", "index": "8"}),
    ]


def test_a_repeated_batch_has_one_effect(changelog: ChangelogTopic, elsewhere: Elsewhere) -> None:
    assert write(changelog, 0, 5, [row("a", 5, 1)]) == 1
    assert write(changelog, 0, 5, [row("a", 5, 1)]) == 0  # known here
    with elsewhere:
        assert write(changelog, 0, 5, [row("a", 5, 1)]) == 0  # known by the mark
        assert write(changelog, 0, 7, [row("a", 7, 2)]) == 1  # batch 6 had no rows for this writer
    assert write(changelog, 0, 8, [row("a", 8, 3)]) == 1  # fenced meanwhile: opened anew
    assert write(changelog, 1, 0, []) == 0
    assert [value for _, value, _ in read(changelog)] == ["[100,5,1]", "[100,7,2]", "[100,8,3]"]
    assert marks(changelog) == {0: 8, 1: -1, 2: -1}


def test_a_repair_writes_again_but_not_the_past(changelog: ChangelogTopic) -> None:
    write(changelog, 0, 5, [row("a", 5, 1)])
    assert write(changelog, 0, 5, [row("a", 5, 1), row("b", 5, 2)], repair=True) == 2
    assert state(changelog) == {"b1/60:1/a": "[100,5,1]", "b1/60:1/b": "[100,5,2]"}
    with pytest.raises(StaleWriterError):
        write(changelog, 0, 4, [row("a", 4, 0)], repair=True)
    assert marks(changelog)[0] == 5


def test_a_zombie_with_an_open_transaction_is_fenced(changelog: ChangelogTopic, elsewhere: Elsewhere) -> None:
    def paused() -> Iterator[tuple[str, str, str]]:
        """The zombie stops after its first row; another run takes over and goes on; the zombie wakes up."""
        yield row("a", 3, 1)
        with elsewhere:
            assert marks(changelog)[0] == -1
            assert write(changelog, 0, 3, [row("a", 3, 1)]) == 1
            assert write(changelog, 0, 4, [row("a", 4, 2)]) == 1
        yield row("b", 3, 1)

    with pytest.raises(LogError) as caught:
        write(changelog, 0, 3, paused())
    assert caught.value.retriable
    assert [value for _, value, _ in read(changelog)] == ["[100,3,1]", "[100,4,2]"]
    with pytest.raises(StaleWriterError) as stale:  # it tries again, and by that fences the other
        write(changelog, 0, 3, [row("a", 3, 1)])
    assert (stale.value.found, stale.value.batch) == (4, 3)
    with elsewhere:  # which goes on all the same
        assert write(changelog, 0, 5, [row("a", 5, 3)]) == 1
    assert [value for _, value, _ in read(changelog)] == ["[100,3,1]", "[100,4,2]", "[100,5,3]"]


def test_a_zombie_that_kept_its_writer_is_refused(changelog: ChangelogTopic, elsewhere: Elsewhere) -> None:
    write(changelog, 0, 3, [row("a", 3, 1)])
    with elsewhere:
        write(changelog, 0, 4, [row("a", 4, 2)])
        write(changelog, 0, 5, [row("a", 5, 3)])
    with pytest.raises(StaleWriterError):
        write(changelog, 0, 4, [row("a", 4, 2)])
    assert state(changelog) == {"b1/60:1/a": "[100,5,3]"}


@pytest.mark.nightly
def test_a_writer_that_lost_all_brokers_is_opened_anew(cluster: Cluster, changelog: ChangelogTopic) -> None:
    def rows(batch: int) -> list[tuple[str, str, str]]:  # for every partition, so that it talks to every broker
        return [row(f"entity{number}", batch, number) for number in range(30)]

    write(changelog, 0, 0, rows(0))
    before = module._kept[changelog, 0]
    assert not before.has_lost_brokers()
    write(changelog, 0, 1, rows(1))
    assert module._kept[changelog, 0] is before
    for name in ("broker-1", "broker-2", "broker-3"):  # of one that goes away a client says nothing
        os.kill(cluster.endpoints.processes[name].pid, signal.SIGKILL)
    try:
        projects.await_true(before.has_lost_brokers, timeout=240, what="the writer to hear of it")
    finally:
        cluster.cluster.up(cluster.root)

    def written() -> bool:  # as a view does, until enough replicas are back
        try:
            write(changelog, 0, 2, rows(2))
        except LogError as error:
            if not error.retriable:
                raise
            return False
        return True

    projects.await_true(written, timeout=180, what="the brokers")
    assert module._kept[changelog, 0] is not before
    assert state(changelog) == {f"b1/60:1/entity{number}": f"[100,2,{number}]" for number in range(30)}


def test_after_compaction_a_fresh_reader_sees_the_newest_value(cluster: Cluster, elsewhere: Elsewhere) -> None:
    changelog = made(cluster, **AT_ONCE)
    write(changelog, 0, 0, [row("a", 0, 1), row("gone", 0, 1)])
    with elsewhere:
        write(changelog, 0, 1, [row("a", 1, 2), ("gone", "60:1", "[100,1]")])
    with pytest.raises(StaleWriterError):
        write(changelog, 0, 0, [row("a", 0, 1)], repair=True)

    numbers = itertools.count(2)

    def compacted() -> bool:
        """Only closed segments are: every look adds records to each partition, in a later batch."""
        number = next(numbers)
        with elsewhere:
            write(changelog, 0, number, [row(f"filler{n}", number, 0) for n in range(20)])
        values = [value for key, value, _ in read(changelog) if key in ("b1/60:1/a", "b1/60:1/gone")]
        return "[100,0,1]" not in values

    projects.await_true(compacted, timeout=240, what="the old value to be compacted away")
    seen = state(changelog)
    assert seen["b1/60:1/a"] == "[100,1,2]"
    assert "b1/60:1/gone" not in seen


def test_rows_that_fail_leave_nothing(changelog: ChangelogTopic) -> None:
    def failing() -> Iterator[tuple[str, str, str]]:
        for n in range(2_000):
            yield row(f"e{n}", 0, n)
        raise ValueError("rows")

    with pytest.raises(ValueError, match="rows"):
        write(changelog, 0, 0, failing())
    assert read(changelog) == []
    assert marks(changelog)[0] == -1
    assert write(changelog, 0, 0, [row("a", 0, 1)]) == 1
    assert list(state(changelog)) == ["b1/60:1/a"]


def test_more_rows_than_the_buffer_holds(changelog: ChangelogTopic) -> None:
    assert write(changelog, 0, 0, (row(f"e{n}", 0, n) for n in range(150_000))) == 150_000
    assert len(read(changelog)) == 150_000


@pytest.mark.nightly
def test_executors_write_what_the_driver_writes(changelog: ChangelogTopic, spark: Any, elsewhere: Elsewhere) -> None:
    from leftfold.spark.sinks.changelog import write_changelog, write_changelog_rows

    rows = [(f"é{n % 40}", f"60:{n}", f'[{n},0,"v"]') for n in range(200)] + [("x", "row", "[1,0]"), (None, "led", "1")]
    packed = spark.createDataFrame(rows, "entity string, name string, value string")
    assert write_changelog(packed, changelog, 0) == 201
    assert write_changelog(packed, changelog, 0) == 0
    by_driver = replace(changelog, scope=f"{changelog.scope}/driver", build="b2")
    assert write_changelog_rows(rows, by_driver, 0) == 201
    records = read(changelog)
    ours, theirs = ({(k[3:], v, *h.items()) for k, v, h in records if k[:2] == b} for b in ("b1", "b2"))
    assert ours == theirs
    assert len(records) == 402
    assert set(marks(changelog).values()) == {0}

    with elsewhere:  # a driver that was away while another went on
        write_changelog_rows([(e, f, v) for e, f, v in rows[:40]], changelog, 3)
    with pytest.raises(StaleWriterError) as stale:
        write_changelog(packed, changelog, 1)
    assert (stale.value.found, stale.value.batch) == (3, 1)
    assert len(read(changelog)) == 442


def test_the_last_record_of_a_slot_is_its_latest_tile(changelog: ChangelogTopic, spark: Any) -> None:
    """A batch that spans more time than a ring has several tiles of one slot, in any order."""
    from leftfold.spark.sinks.changelog import write_changelog, write_changelog_rows

    tiles = [-80, -5, 70, 145, 9_220, 10_045]  # of a ring of 75 slots
    rows = [(f"e{e}", "1:70", f'[{index},0,"v"]') for e in range(40) for index in tiles]
    random.Random(7).shuffle(rows)
    latest = {f"1:70/e{e}": '[10045,0,"v"]' for e in range(40)}
    assert write_changelog(spark.createDataFrame(rows, "entity string, name string, value string"), changelog, 0) == 240
    assert write_changelog_rows(rows, replace(changelog, scope=f"{changelog.scope}/driver", build="b2"), 0) == 240
    assert state(changelog) == {f"{build}/{key}": value for build in ("b1", "b2") for key, value in latest.items()}


def test_spark_chooses_the_same_writer(spark: Any) -> None:
    entities = ["", "a", "é", "ключ", "a/b", "x" * 300]
    frame = spark.createDataFrame([(e,) for e in entities], "entity string")
    theirs = [r[0] for r in frame.selectExpr("pmod(crc32(cast(entity as binary)), 4)").collect()]
    assert theirs == [writer_of(e, 4) for e in entities] == [zlib.crc32(e.encode()) % 4 for e in entities]
