"""Random histories of topics on three real brokers, recorded operation by operation.

Many topics share the deaths of brokers and the transactions: each has its own record of them. The model judges the
records; nothing here knows what is allowed.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from confluent_kafka import (
    Consumer,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs forget to re-export these
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from leftfold.kafka.partitioner import partition_of
from leftfold.local import endpoints as record
from leftfold.local import java, process, roster
from tests.engine import projects
from tests.engine.conftest import Cluster

KEYS = [f"k{number}" for number in range(6)]
BROKERS = (1, 2, 3)
REFUSED = {KafkaError.NOT_ENOUGH_REPLICAS}
# Segments of a moment and a cleaner that is always hungry: what may be cleaned is cleaned soon.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "86400000",
}

_SILENT = logging.getLogger(__name__)  # a producer that is fenced says so, and here that is expected
_SILENT.disabled = True


class Recorded:
    """One topic, and all that was done to it and seen of it."""

    def __init__(self, chance: random.Random) -> None:
        self.topic = f"history-{uuid.uuid4().hex[:12]}"
        self.chance = chance
        copies = chance.choice((2, 2, 3))
        self.settings: dict[str, Any] = {
            "brokers": [chance.sample(BROKERS, copies) for _ in range(2)],
            "min": chance.choice((1, 1, 2)),
            "unclean": chance.random() < 0.6,
            "compact": chance.random() < 0.35,
        }
        self.operations: list[list[Any]] = []
        self.leaders: list[tuple[int | None, list[int]]] = []
        self.seen = [0, 0]  # the ends that readers have seen
        self.transaction: Producer | None = None
        self._values = 0

    @property
    def document(self) -> dict[str, Any]:
        return {**self.settings, "operations": self.operations}

    @property
    def takes_transactions(self) -> bool:
        return all(leader is not None and len(isr) >= self.settings["min"] for leader, isr in self.leaders)

    def new_topic(self) -> NewTopic:
        config = {
            "min.insync.replicas": str(self.settings["min"]),
            "unclean.leader.election.enable": str(self.settings["unclean"]).lower(),
        }
        if self.settings["compact"]:
            config |= COMPACTED
        return NewTopic(self.topic, 2, replica_assignment=self.settings["brokers"], config=config)

    def value(self) -> tuple[int | None, bytes | None]:
        """Return the next value: numbers that count up; in a compacted topic some tombstones."""
        self._values += 1
        if self.settings["compact"] and self.chance.random() < 0.15:
            return None, None
        return self._values, str(self._values).encode()


class Clients:
    """Clients of one phase. A new leader is found by new clients at once."""

    def __init__(self, bootstrap: str) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "linger.ms": 0,
            "socket.nagle.disable": True,  # each record is sent alone, and would wait for 40 ms
            "partitioner": "murmur2_random",
            "logger": _SILENT,
        }
        once = {"message.send.max.retries": 0, "message.timeout.ms": 8_000, "request.timeout.ms": 5_000}
        self._bootstrap = bootstrap
        self._common = common
        self.producers = {acks: Producer({**common, **once, "acks": acks}) for acks in ("0", "1", "all")}
        for client in self.producers.values():
            client.list_topics(timeout=30)  # of all topics at once, not of each when it is first written to
        self.transactional: list[Producer] = []
        self._ids: dict[Producer, str] = {}
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._readers = {
            isolation: Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": "none",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": isolation,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 20,
                    "log_level": 0,
                }
            )
            for isolation in ("read_uncommitted", "read_committed")
        }

    def open_transaction(self, transactional_id: str | None = None) -> Producer:
        name = transactional_id or f"histories-{uuid.uuid4().hex}"
        client = Producer({**self._common, "transactional.id": name, "transaction.timeout.ms": 60_000})
        self._ids[client] = name
        client.list_topics(timeout=30)
        client.init_transactions(60)
        if transactional_id is None:
            client.begin_transaction()
            self.transactional.append(client)
        return client

    def fence(self, client: Producer) -> None:
        """Take a transactional id over: the open transaction is aborted, and its process is fenced."""
        self.open_transaction(self._ids[client])
        try:
            client.commit_transaction(30)
        except KafkaException:
            return
        raise AssertionError("a producer that was overtaken has committed")

    def read(self, isolation: str, parts: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, list[Any]]]:
        """Read whole partitions, and return where each ended and what was there."""
        reader = self._readers[isolation]
        left = set(parts)
        found: dict[tuple[str, int], tuple[int, list[Any]]] = {}
        records: dict[tuple[str, int], list[Any]] = {part: [] for part in left}
        reader.assign([TopicPartition(topic, p, 0) for topic, p in left])
        try:
            while left:
                messages = reader.consume(500, timeout=0.05)
                for message in messages:
                    part = message.topic(), message.partition()
                    error = message.error()
                    if error is None:
                        value = message.value()
                        if part in left:
                            records[part].append([message.offset(), None if value is None else int(value)])
                    elif error.code() == KafkaError._PARTITION_EOF:
                        if part in left:
                            left.discard(part)
                            found[part] = message.offset() or 0, records[part]
                    elif not error.retriable():
                        raise KafkaException(error)
        finally:
            reader.unassign()
        return found

    def close(self) -> None:
        for client in self.producers.values():
            client.flush(10)
        for reader in self._readers.values():
            reader.close()


class Histories:
    """Several topics on one cluster, through the same deaths."""

    def __init__(self, cluster: Cluster, number: int, seed: int, operations: tuple[int, int, int]) -> None:
        self._cluster = cluster
        self._operations = operations  # on each topic in a phase: before, during and after a transaction
        self._chance = random.Random(seed)
        self.recorded = [Recorded(random.Random(seed * 1_000 + n)) for n in range(number)]
        self._stack = ExitStack()
        self._clients: Clients
        self._alive = set(BROKERS)

    # Phases ----------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """A broker dies; then another while the first comes back, so that the newest records are away; then all are up.

        The controllers are on the same brokers, so no more than one broker is away for long.
        """
        with self._stack:
            self._connect()
            self._create()
            first, second = self._chance.sample(BROKERS, 2)
            self._work()
            self._kill(first)
            self._settle()
            self._work()
            self._kill(second)
            self._start(first)
            self._settle()
            self._work()
            self._start(second)
            self._settle()
            self._work()
            self._read_all()
            # Brokers that are killed in the next round have to recover all topics that are there.
            for done in self._clients.admin.delete_topics([h.topic for h in self.recorded]).values():
                done.result(timeout=60)

    def _work(self) -> None:
        """Operations on every topic, with transactions that are open while all of it is read."""
        self._connect()
        for history in self.recorded:
            self._operate(history, self._operations[0])
        clients = self._clients
        able = [h for h in self.recorded if h.takes_transactions]
        if able:
            pair = [clients.open_transaction() for _ in range(2)]
            for history in able:
                history.transaction = self._chance.choice([*pair, None])
        for history in self.recorded:
            self._operate(history, self._operations[1])
        self._read_all()
        if able:
            for client in pair:
                self._end(client, self._chance.choice(("commit", "commit", "abort", "fence")))
        for history in self.recorded:
            self._operate(history, self._operations[2])
        self._read_all()

    def _connect(self) -> None:
        """Make new clients, which know the leaders of now."""
        if hasattr(self, "_clients"):
            self._clients.close()
        else:
            self._stack.callback(lambda: self._clients.close())  # noqa: PLW0108 # those that are there at the end
        alive = [port for n, port in enumerate(self._cluster.endpoints.ports.brokers, 1) if n in self._alive]
        self._clients = Clients(",".join(f"127.0.0.1:{port}" for port in alive))

    def _create(self) -> None:
        clients = self._clients
        entry = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET)
        for broker in BROKERS:
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
            for done in clients.admin.incremental_alter_configs([resource]).values():
                done.result(timeout=30)
        for done in clients.admin.create_topics([h.new_topic() for h in self.recorded]).values():
            done.result(timeout=60)
        self._settle()

    # Operations ------------------------------------------------------------------------------------------------------

    def _operate(self, history: Recorded, number: int) -> None:
        for _ in range(number):
            if history.chance.random() < 0.06 and not history.settings["compact"]:
                self._delete(history)
            elif history.transaction is not None and history.chance.random() < 0.5:
                self._write(history)
            else:
                self._send(history)

    def _place(self, history: Recorded) -> tuple[int, str] | None:
        key = history.chance.choice(KEYS)
        p = partition_of(key.encode(), 2)
        return None if history.leaders[p][0] is None else (p, key)

    def _send(self, history: Recorded) -> None:
        if (place := self._place(history)) is None:
            return
        p, key = place
        acks = history.chance.choice(("0", "1", "1", "all", "all"))
        number, value = history.value()
        delivered = self._delivered(self._clients.producers[acks], history.topic, key, value)
        error = delivered.error()
        if error is None:
            answer = "unknown" if acks == "0" else "acknowledged"
            p = delivered.partition()
        else:
            answer = "refused" if error.code() in REFUSED else "unknown"
        offset = delivered.offset() if answer == "acknowledged" else None
        history.operations.append(["send", p, key, number, acks, answer, offset])

    def _write(self, history: Recorded) -> None:
        assert history.transaction is not None
        key = history.chance.choice(KEYS)
        number, value = history.value()
        delivered = self._delivered(history.transaction, history.topic, key, value)
        assert delivered.error() is None, delivered.error()
        history.operations.append(["write", delivered.partition(), key, number, delivered.offset()])

    def _delivered(self, client: Producer, topic: str, key: str, value: bytes | None) -> Any:
        reports: list[Any] = []
        client.produce(topic, value, key.encode(), on_delivery=lambda _, message: reports.append(message))
        client.flush(20)
        (message,) = reports
        return message

    def _end(self, client: Producer, how: str) -> None:
        match how:
            case "commit":
                client.commit_transaction(60)
            case "abort":
                client.abort_transaction(60)
            case "fence":
                self._clients.fence(client)
        ends: dict[tuple[str, int], int] = {}
        for history in self.recorded:
            if history.transaction is not client:
                continue
            history.transaction = None
            written = []
            for operation in reversed(history.operations):
                if operation[0] == "end":
                    break
                if operation[0] == "write":
                    written.append(operation)
            for operation in written:
                part = history.topic, operation[1]
                ends[part] = max(ends.get(part, 0), operation[4] + 1)
            if written:
                history.operations.append(["end", "commit" if how == "commit" else "abort"])
        # Markers are written after the answer. Once the last stable offset has moved on, they are there.
        projects.await_true(lambda: self._stable(ends), timeout=60, what="the markers of a transaction")

    def _stable(self, ends: dict[tuple[str, int], int]) -> bool:
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for topic, p in ends}  # type: ignore[no-untyped-call]
        if not asked:
            return True
        found = self._clients.admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return all(result.result().offset > ends[part.topic, part.partition] for part, result in found.items())

    def _delete(self, history: Recorded) -> None:
        p = history.chance.randrange(2)
        if history.leaders[p][0] is None or not history.seen[p]:
            return
        before = history.chance.randint(0, history.seen[p])
        part = TopicPartition(history.topic, p, before)
        try:
            self._clients.admin.delete_records([part])[part].result(timeout=30)
        except KafkaException:
            return  # a leader that is new knows the high-water mark late, and refuses what is beyond it
        history.operations.append(["delete", p, before])

    def _read_all(self) -> None:
        for isolation in ("read_uncommitted", "read_committed"):
            parts = {(h.topic, p): h for h in self.recorded for p in range(2) if h.leaders[p][0] is not None}
            found = self._clients.read(isolation, parts)
            for history in self.recorded:
                mine = [(p, *found[history.topic, p]) for p in range(2) if (history.topic, p) in found]
                history.operations.append(["read", isolation, mine])
                for p, end, _ in mine:
                    history.seen[p] = end

    # Brokers ---------------------------------------------------------------------------------------------------------

    def _kill(self, broker: int) -> None:
        endpoints = self._cluster.endpoints
        os.kill(endpoints.processes[f"broker-{broker}"].pid, signal.SIGKILL)
        assert process.wait_until(lambda: not endpoints.alive(f"broker-{broker}"), timeout_s=20)
        self._alive.discard(broker)
        for history in self.recorded:
            history.operations.append(["kill", broker])

    def _start(self, broker: int) -> None:
        """Start one broker, and leave the others as they are."""
        root, endpoints = self._cluster.root, self._cluster.endpoints
        service = roster.service(root, endpoints, name=f"broker-{broker}", java_path=java.find())
        identity = process.start(
            service.argv,
            mark=f"{roster.mark(root)}{service.name}",
            directory=service.directory,
            log=service.log,
            environment=service.environment,
        )
        record.write(root, endpoints.having(service.name, identity))
        self._alive.add(broker)
        for history in self.recorded:
            history.operations.append(["restart", broker])

    def _settle(self) -> None:
        """Wait until every partition has the leader and the in-sync replicas that it can have, and note them."""
        self._connect()
        projects.await_true(self._settled, timeout=120, what="leaders and in-sync replicas")
        for history in self.recorded:
            history.operations.append(["leaders", [[leader, isr] for leader, isr in history.leaders]])

    def _settled(self) -> bool:
        admin = self._clients.admin
        topics = admin.list_topics(timeout=10).topics
        waiting = []
        for history in self.recorded:
            found = topics.get(history.topic)
            if found is None or len(found.partitions) < 2:
                return False
            history.leaders = []
            for p, replicas in enumerate(history.settings["brokers"]):
                partition = found.partitions[p]
                able = set(replicas) & self._alive
                leader = partition.leader if partition.leader in self._alive else None
                history.leaders.append((leader, sorted(partition.isrs)))
                if leader is not None and set(partition.isrs) != able:
                    return False
                if leader is None and partition.leader != -1:
                    return False
                if leader is None and able and self._may_lead(history, p, able, set(partition.isrs)):
                    waiting.append(TopicPartition(history.topic, p))
        if waiting:
            with suppress(KafkaException):  # it is asked again
                admin.elect_leaders(ElectionType.UNCLEAN, waiting).result(timeout=10)
            return False
        return True

    def _may_lead(self, history: Recorded, p: int, able: set[int], in_sync: set[int]) -> bool:
        return bool(history.settings["unclean"] or able & in_sync or len(self._alive) == len(BROKERS))


@contextmanager
def histories(
    cluster: Cluster, number: int, seed: int, *, operations: tuple[int, int, int]
) -> Iterator[list[Recorded]]:
    """Run histories, and leave the cluster as it was."""
    made = Histories(cluster, number, seed, operations)
    try:
        made.run()
        yield made.recorded
    finally:
        cluster.cluster.up(cluster.root)
