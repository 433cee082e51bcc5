"""A real cluster, looked at: faults made with plain Kafka calls are found, all of them and nothing else."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from leftfold.declare.catalog import Catalog
from leftfold.hazards import rules, sampled
from leftfold.hazards.hazard import Facts, Hazard
from leftfold.kafka.admin import MOVING, Admin, passes
from leftfold.kafka.observe import observe_cluster, watch_groups
from leftfold.kafka.observed import ObservedCluster, dump, load
from leftfold.kafka.sample import Judge, take_sample
from leftfold.observe.observation import Observed
from leftfold.observe.sampling import take_samples
from leftfold.settings import Kafka, Profile
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.log import delete_before
from tests.engine.test_view import payment

NOTHING = Catalog({}, {}, {})
PER_PARTITION = 20  # records


class Tools:
    """What anybody's scripts do to a cluster, in a namespace of their own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.namespace = f"n{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def name(self, name: str) -> str:
        return f"{self.namespace}.{name}"

    def topic(self, name: str, partitions: int = 2, replicas: int = 3, **settings: object) -> str:
        config = {k.replace("_", "."): str(v) for k, v in settings.items()}
        new = NewTopic(self.name(name), num_partitions=partitions, replication_factor=replicas, config=config)
        self.admin.create_topics([new])[self.name(name)].result(timeout=240)
        return self.name(name)

    def fill(self, topic: str, partitions: int = 2, *, ago: int = 0, **settings: object) -> str:
        """By an idempotent producer, unless `settings` say otherwise; as if sent so many seconds ago."""
        producer = self.producer(**({"enable_idempotence": True} | settings))
        at = 1_000 * (int(time.time()) - ago) if ago else 0
        for number in range(PER_PARTITION * partitions):
            producer.produce(topic, value=b"x", key=str(number), partition=number % partitions, timestamp=at)
        assert producer.flush(120) == 0
        return topic

    def producer(self, **settings: object) -> Producer:
        named: dict[str, Any] = {k.replace("_", "."): v for k, v in settings.items()}
        return Producer({"bootstrap.servers": self.bootstrap, **named})

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        """Without joining the group."""
        consumer = self._consumer(group)
        places = [TopicPartition(topic, p, at) for p, at in enumerate(offsets)]

        def committed() -> bool:
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in MOVING:
                    raise
                return False
            return True

        projects.await_true(committed, timeout=240, what="a coordinator")
        consumer.close()

    @contextmanager
    def members(self, group: str, topic: str, number: int, protocol: str = "classic") -> Iterator[list[Consumer]]:
        """So many readers, as soon as as many as can have a partition."""
        readers: list[Consumer] = []
        # A broker that has not heard of a new topic says that it has no partitions, and 0 readers would be awaited.
        expected = min(number, Admin(Kafka(bootstrap=self.bootstrap)).partitions_of(topic))
        joined = float("-inf")
        if protocol == "consumer":
            self._beat_slowly(group)

        def settled() -> bool:
            # Clients that joined while their coordinator moved may wait for ever: then others join. Members that could
            # not say that they left keep their partitions for the 45 s of a session, so others come well after that.
            nonlocal joined
            if time.monotonic() - joined > 100:
                joined = time.monotonic()
                while readers:
                    readers.pop().close()
                readers.extend(self._consumer(group, protocol) for _ in range(number))
                for reader in readers:
                    reader.subscribe([topic])
            for reader in readers:
                reader.poll(0.1)
            return sum(bool(reader.assignment()) for reader in readers) == expected

        try:
            projects.await_true(settled, timeout=380, what=f"{expected} of {number} readers to have partitions")
            yield readers
        finally:
            for reader in readers:
                reader.close()

    def _beat_slowly(self, group: str) -> None:
        """Give a group Kafka's own intervals. A plain client misses what a broker answers after an interval."""
        config = {"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "5000"}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, self.name(group), incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(timeout=240)

    def _consumer(self, group: str, protocol: str = "classic") -> Consumer:
        settings: dict[str, Any] = {"group.id": self.name(group), "group.protocol": protocol}
        common = {"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        return Consumer({**common, **settings})


@pytest.fixture
def tools(cluster: Cluster) -> Tools:
    return Tools(cluster.endpoints.bootstrap)


def observed(cluster: Cluster) -> ObservedCluster:
    kafka = Kafka(bootstrap=cluster.endpoints.bootstrap)
    return observe_cluster(Admin(kafka), kafka)


def looked_at(cluster: Cluster, namespace: str) -> Observed:
    """As `leftfold inspect` does, with samples of a test's own topics, however few records they have."""
    kafka = Kafka(bootstrap=cluster.endpoints.bootstrap)
    admin = Admin(kafka)
    found = observe_cluster(admin, kafka)
    mine = [topic for topic in found.topics.values() if topic.name.startswith(f"{namespace}.")]
    samples = take_samples(admin, kafka, mine)
    assert set(samples) == {topic.name for topic in mine}
    return Observed(watch_groups(admin, kafka, found), {}, samples=samples)


def hazards(found: Observed) -> list[Hazard]:
    return list(rules.hazards(Facts(found, NOTHING, Profile(name="any"))))


def own(found: list[Hazard], namespace: str) -> list[tuple[str, str]]:
    """The cluster is shared: what other tests left there is theirs."""
    mine = [(h.code, h.subject.replace(f" {namespace}.", " ")) for h in found if f" {namespace}." in h.subject]
    return sorted(mine)


def test_twelve_faults_are_found_and_nothing_else(cluster: Cluster, tools: Tools) -> None:
    tools.topic("one-copy", replicas=1, min_insync_replicas=1)
    tools.topic("one-in-sync", min_insync_replicas=1)
    tools.topic("all-in-sync", min_insync_replicas=3)
    tools.topic("never-in-sync", min_insync_replicas=4)
    tools.topic("any-leader", unclean_leader_election_enable="true")
    tools.topic("huge", max_message_bytes=200_000_000)
    tools.topic("forgets-deletions", cleanup_policy="compact", delete_retention_ms=86_400_000)
    brief = tools.fill(tools.topic("brief", retention_ms=3_600_000))
    tools.commit("reads-brief", brief, PER_PARTITION, PER_PARTITION)
    tools.fill(tools.topic("for-nobody"))
    sound = tools.fill(tools.topic("sound"))
    tools.commit("away", sound, 0, PER_PARTITION)
    tools.commit("done", sound, PER_PARTITION, PER_PARTITION)
    overtaken = tools.fill(tools.topic("overtaken"))
    tools.commit("too-slow", overtaken, 3, PER_PARTITION)
    delete_before(tools.bootstrap, overtaken, dict.fromkeys(range(2), PER_PARTITION))
    tools.topic("few-partitions")
    with tools.members("crowd", tools.name("few-partitions"), 3), tools.members("fitting", sound, 2):
        found = looked_at(cluster, tools.namespace)
    assert own(hazards(found), tools.namespace) == sorted(
        [
            ("replication-low", "topic one-copy"),
            ("min-in-sync-low", "topic one-in-sync"),
            ("min-in-sync-tight", "topic all-in-sync"),
            ("min-in-sync-above", "topic never-in-sync"),
            ("unclean-election", "topic any-leader"),
            ("message-size", "topic huge"),
            ("tombstones-below-downtime", "topic forgets-deletions"),
            ("retention-below-downtime", "topic brief"),
            ("unread-topic", "topic for-nobody"),
            ("group-without-members", "group away"),
            ("position-lost", "group too-slow"),
            ("idle-members", "group crowd"),
        ]
    )
    assert load(dump(found.cluster)) == found.cluster


def test_what_only_a_second_look_and_the_newest_records_show(cluster: Cluster, tools: Tools) -> None:
    """Groups that stand still and groups that only seem to; producers that are not idempotent and those that are."""
    once = [
        tools.fill(tools.topic("plain"), enable_idempotence=False, acks=1),
        tools.fill(tools.topic("safe")),
        tools.fill(tools.topic("safe-by-broker", message_timestamp_type="LogAppendTime")),
        tools.fill(tools.topic("too-old-to-tell"), ago=2 * 86_400, enable_idempotence=False),
    ]
    by_broker = tools.topic("plain-by-broker", message_timestamp_type="LogAppendTime")
    once.append(tools.fill(by_broker, enable_idempotence=False, acks=1))
    mixed = tools.fill(tools.topic("mixed"), ago=5)
    tools.fill(mixed, enable_idempotence=False)
    again = tools.fill(tools.topic("safe-again"), ago=5, enable_idempotence=False)
    tools.fill(again)
    for topic in once:
        tools.commit("done", topic, PER_PARTITION, PER_PARTITION)
    for topic in (mixed, again):
        tools.commit("done", topic, 2 * PER_PARTITION, 2 * PER_PARTITION)
    old = tools.fill(tools.topic("old"), ago=3_600)
    fresh = tools.topic("fresh")
    aborted = tools.fill(tools.topic("aborted"), ago=3_600)
    writer = tools.producer(transactional_id=tools.name("writer"))
    writer.init_transactions(20)
    writer.begin_transaction()
    for number in range(10):
        writer.produce(aborted, value=b"x", partition=number % 2)
    assert writer.flush(240) == 0
    writer.abort_transaction(20)
    ended = threading.Event()

    def move(reader: Consumer) -> None:
        for at in range(PER_PARTITION - 2):
            reader.commit(offsets=[TopicPartition(old, p, at) for p in range(2)], asynchronous=False)
            if ended.wait(2):
                return

    with (
        tools.members("stuck", old, 1) as stuck,
        tools.members("moves", old, 1) as moves,
        tools.members("nearly", old, 2) as nearly,
        tools.members("commits-slowly", fresh, 1) as slow,
        tools.members("at-the-end", aborted, 1) as at_the_end,
        tools.members("keeps-positions-elsewhere", old, 1),
    ):
        stuck[0].commit(offsets=[TopicPartition(old, 0, 3), TopicPartition(old, 1, PER_PARTITION)], asynchronous=False)
        ends = [TopicPartition(old, 0, PER_PARTITION - 1), TopicPartition(old, 1, PER_PARTITION)]
        nearly[0].commit(offsets=ends, asynchronous=False)
        tools.fill(fresh)
        slow[0].commit(offsets=[TopicPartition(fresh, 0, 3)], asynchronous=False)
        ends = [TopicPartition(aborted, p, PER_PARTITION) for p in range(2)]
        at_the_end[0].commit(offsets=ends, asynchronous=False)
        mover = threading.Thread(target=move, args=moves)
        mover.start()
        try:
            found = looked_at(cluster, tools.namespace)
        finally:
            ended.set()
            mover.join()
    assert own(hazards(found), tools.namespace) == [
        ("group-stalled", "group stuck"),
        ("producers-not-idempotent", "topic mixed"),
        ("producers-not-idempotent", "topic plain"),
        ("producers-not-idempotent", "topic plain-by-broker"),
    ]
    groups = {name: found.cluster.groups[tools.name(name)] for name in ("stuck", "moves", "commits-slowly")}
    assert list(groups["stuck"].still[old]) == [0]
    assert groups["moves"].still == {}
    assert list(groups["commits-slowly"].still[fresh]) == [0]  # it stood still too, but its records came just now
    assert found.cluster.groups[tools.name("at-the-end")].still == {}
    assert found.cluster.groups[tools.name("at-the-end")].watched_s >= 10
    assert aborted not in {name for name, sample in found.samples.items() if sample.idempotent}
    (hazard,) = [h for h in hazards(found) if h.subject == f"group {tools.name('stuck')}"]
    assert f"it has 1 member, is {PER_PARTITION - 3} offsets behind in 1 partition of {old}" in hazard.what
    assert "the first record that waits was logged 60 m ago" in hazard.what
    assert load(dump(found.cluster)) == found.cluster


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group_are_seen_whatever_its_protocol(cluster: Cluster, tools: Tools, protocol: str) -> None:
    topic = tools.topic("read")
    with tools.members("readers", topic, 2, protocol) as readers:

        def settled() -> bool:  # each member has what it reads before the group says so
            for reader in readers:  # whoever must give up a partition does so in poll
                reader.poll(0.1)
            group = observed(cluster).groups.get(tools.name("readers"))
            return group is not None and (group.state, group.members, group.owners) == ("STABLE", 2, {topic: 2})

        projects.await_true(settled, timeout=180, what="both members")


def test_a_project_as_it_is_applied_has_no_hazards(cluster: Cluster, tmp_path: Path) -> None:
    namespace = f"n{uuid.uuid4().hex[:8]}"
    app = projects.make(tmp_path / "project", cluster.endpoints, namespace)
    projects.apply(app)
    with app.producer("payments") as producer:
        for number in range(100):
            producer.send_dict(payment(number, f"a{number}"))
    found = looked_at(cluster, namespace)
    assert len([name for name in found.topics if name.startswith(f"{namespace}.")]) == 6
    assert own(hazards(found), namespace) == []


def test_a_broker_that_is_down(cluster: Cluster, tools: Tools) -> None:
    lone = NewTopic(
        tools.name("lone"), num_partitions=2, replica_assignment=[[1], [3]], config={"min.insync.replicas": "1"}
    )
    tools.admin.create_topics([lone])[tools.name("lone")].result(timeout=240)
    safe = NewTopic(tools.name("safe"), num_partitions=2, replica_assignment=[[3, 1, 2], [1, 2, 3]])
    tools.admin.create_topics([safe])[tools.name("safe")].result(timeout=240)
    groups = {f"g{number}" for number in range(12)}  # so many that each broker coordinates some
    for group in groups:
        tools.commit(group, tools.name("safe"), 0, 0)
    broker = cluster.endpoints.processes["broker-3"].pid
    os.kill(broker, signal.SIGSTOP)
    try:
        listed = tools.admin.list_consumer_groups(request_timeout=3).result(timeout=240)
        # On a busy machine the others may have noticed already, and leave it out.
        assert [passes(error) for error in listed.errors] in ([True], [])
        # It led a partition: the question is asked again until another broker does.
        assert Admin(Kafka(bootstrap=tools.bootstrap)).end_offsets(tools.name("safe"), 2) == {0: 0, 1: 0}
        os.kill(broker, signal.SIGKILL)
        left = Tools(",".join(cluster.endpoints.bootstrap.split(",")[:2]))

        def noticed() -> bool:
            partitions = left.admin.list_topics(tools.name("lone"), timeout=20).topics[tools.name("lone")].partitions
            return partitions[1].leader == -1

        projects.await_true(noticed, timeout=240, what="the controller to notice")
        kafka = Kafka(bootstrap=left.bootstrap)
        found = hazards(Observed(observe_cluster(Admin(kafka), kafka), {}))

        def taken_over() -> bool:
            return {tools.name(group) for group in groups} <= set(observe_cluster(Admin(kafka), kafka).groups)

        projects.await_true(taken_over, timeout=240, what="other coordinators")
    finally:
        with suppress(ProcessLookupError):
            os.kill(broker, signal.SIGKILL)  # one that is only stopped would keep `up` waiting
        cluster.cluster.up(cluster.root)
    assert own(found, tools.namespace) == [("no-leader", "topic lone"), ("replication-low", "topic lone")]
    (behind,) = [h for h in found if h.code == "under-replicated"]
    assert behind.subject == "broker 3"
    assert "it was down" in behind.what


def test_three_hundred_topics_in_ten_seconds(cluster: Cluster, tools: Tools) -> None:
    names = [tools.name(f"t{number}") for number in range(300)]
    new = [NewTopic(name, num_partitions=3, replication_factor=3) for name in names]
    for done in tools.admin.create_topics(new, operation_timeout=120).values():
        done.result(timeout=180)
    try:
        tools.fill(names[0], 3)
        for number in range(30):
            tools.commit(f"g{number}", names[0], *[PER_PARTITION] * 3)
        began = time.monotonic()
        found = observed(cluster)
        seconds = time.monotonic() - began
        print(f"{len(found.topics)} topics and {len(found.groups)} groups observed in {seconds:.1f} s")
        assert set(names) <= set(found.topics)
        assert all(found.topics[name].size is not None for name in names)
        assert found.topics[names[0]].records == 3 * PER_PARTITION
        assert own(hazards(Observed(found, {})), tools.namespace) == []
        assert seconds < 10
    finally:
        for done in tools.admin.delete_topics(names, operation_timeout=120).values():
            done.result(timeout=180)


def test_a_sample_shows_a_hot_key_late_records_and_rubbish(cluster: Cluster, tools: Tools, tmp_path: Path) -> None:
    app = projects.make(tmp_path / "project", cluster.endpoints, tools.namespace)
    projects.apply(app)
    old = datetime.now(UTC) - timedelta(hours=2)
    with app.producer("payments") as producer:
        for number in range(3_000):
            hot = number % 5 < 2
            record = payment(number, "hot" if hot else f"a{number}")
            record["at"] = old if number % 100 == 99 else datetime.now(UTC)
            producer.send_dict(record)
    raw = Producer({"bootstrap.servers": cluster.endpoints.bootstrap})
    for number in range(6):
        raw.produce(tools.name("payments"), value=b"rubbish", partition=number)
    assert raw.flush(240) == 0
    groups = group_names(tools)
    admin, registry = app.log

    def taken(**more: Any) -> Any:
        judge = Judge(app.catalog.topic("payments"), registry.schema)
        return take_sample(app.kafka, admin, tools.name("payments"), 6, judge, **more)

    sample, seconds = timed(taken)
    print(f"{sample.records:,} records sampled in {seconds:.2f} s")
    assert (sample.records, sample.without_key, sample.late, sample.rejected) == (3_006, 6, 30, 6)
    assert sample.top_keys[0] == ("hot", 1_200)
    assert (sample.keys, sample.split_keys, sample.by_producer, sample.future) == (1_801, 0, 0, 0)
    assert dict(sample.reasons) == {"too short or not framed": 6}
    assert sample.lags is not None
    assert 7_100_000_000 < sample.lags[2] < 7_400_000_000
    assert sum(sample.by_partition.values()) * sample.seconds == pytest.approx(3_006)
    assert 594 <= taken(records=600).records <= 606  # each partition's share is rounded
    found = observe_cluster(admin, app.kafka, [tools.name("payments")])
    samples = {sample.topic: sample}
    facts = Facts(Observed(found, {}, samples=samples), app.catalog, app.profile)
    codes = [h.code for rule in sampled.RULES for h in rule(facts)]
    assert codes == ["hot-key", "records-without-key", "late-records", "rejected-records"]
    assert group_names(tools) == groups  # a sample leaves no trace
    assert seconds < 5


def group_names(tools: Tools) -> set[str]:
    listed: Any = tools.admin.list_consumer_groups().result(timeout=240)
    return {group.group_id for group in listed.valid}


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began
