"""A Redis Cluster as a store: fail-overs that lose acknowledged writes, a slot that is moved, builds and readers.

No broker and no Spark: rows are written as executors write them. `make redis-cluster` runs more of each.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.fold.definition import Key, Origin
from leftfold.fold.latest import Latest, TakenColumn
from leftfold.store.engine import Calls
from leftfold.store.frames import framed_row
from leftfold.store.layout import Build, LedgerRow
from leftfold.store.opening import open_store
from leftfold.store.reader import Reader
from leftfold.store.redis.cluster.buckets import BUCKETS, slot_of, tags
from leftfold.store.redis.cluster.nodes import Nodes
from leftfold.store.redis.link import Command
from leftfold.store.redis.names import names_of
from leftfold.store.writer import BuildWriter, write_rows
from tests.engine.projects import await_true
from tests.engine.redis_clusters import HOST, Node, RedisClusterNodes, redis_cluster_nodes

FULL = os.environ.get("LEFTFOLD_REDIS_CLUSTER") == "full"
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
FAIL_OVERS = 20 if FULL else 2
ENTITIES = [f"e{number}" for number in range(2_000)]

LEDGER = [LedgerRow("t", 0, "accepted", 10, newest_log=5, newest_event=4, newest_offset=9)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClusterNodes]:
    with redis_cluster_nodes(tmp_path_factory.mktemp("cluster")) as made:
        yield made


class Table:
    """A build of a table whose rows tell the batch that wrote them."""

    def __init__(self, url: str, namespace: str = "", *, fields: int = 1) -> None:
        self.url, self.namespace = url, namespace or uuid.uuid4().hex[:8]
        columns = tuple(TakenColumn(f"c{number}", f"c{number}", "int") for number in range(fields))
        definition = Latest("items", (Origin("t", 0, "broker"),), (Key("item", "string"),), columns)
        self.writer = BuildWriter(url, self.namespace, Build(definition, uuid.uuid4().hex))
        self.at = self.writer.at
        self.reader = Reader(url, self.namespace)
        self.writer.announce()

    def rows(self, batch: int, entities: list[str] = ENTITIES, *, repairs: bool = False) -> list[Calls]:
        rows = [framed_row(entity, ["row"], [f"[{batch},{batch},{batch}]"]) for entity in sorted(entities)]
        return list(write_rows(self.url, self.at, rows, 0, repairs=repairs)[1])

    def apply(self, batch: int) -> None:
        self.writer.check(batch)
        self.writer.mark(batch, LEDGER, self.rows(batch))

    def read(self, entities: list[str] = ENTITIES) -> list[int | None]:
        return [row.values["c0"] for row in self.reader.read("items", [{"item": one} for one in entities], None)]


def bucket_of(entity: str) -> int:
    """As the protocol's page says it, without the code that is tested."""
    return zlib.crc32(entity.encode()) % 256


def test_builds_and_their_readers(nodes: RedisClusterNodes) -> None:
    old = Table(nodes.url)
    old.apply(0)
    assert old.read() == [0] * len(ENTITIES)
    new = Table(nodes.url, old.namespace)
    new.apply(0)
    new.writer.check(1)
    new.writer.mark(1, LEDGER, new.rows(1))
    place = old.at.of
    with open_store(nodes.url) as store:
        new.writer.stage()
        assert set(old.read()) == {0}
        assert store.promote(place, new.at.build, old.at.build, clock.now_us() + 10**9)
        moved = clock.monotonic()
        while set(old.read()) == {0}:  # all of a read is of one build
            assert clock.monotonic() < moved + 1.5
        assert set(old.read()) == {1}
        assert store.builds(place).previous is not None
        assert store.roll_back(place, old.at.build, new.at.build)
        await_true(lambda: set(old.read()) == {0}, timeout=1.5, what="readers of the previous build")
        store.beat(new.at, 60)
        assert store.retire(new.at, clock.now_us()) == "staged"
        assert store.promote(place, new.at.build, old.at.build, 0)  # kept for no time at all
        assert store.retire(old.at, clock.now_us()) == ""
        store.erase(old.at)
        assert set(old.read()) == {1}  # at once: what it remembered of the other build does not count
        store.rest(new.at)
        assert not [key for node in nodes.masters() for key in node.client.scan_iter(f"*{old.at.build}:*")]
        told = store.memory()
        assert told is not None
        assert told.used > max(node.client.info("memory")["used_memory"] for node in nodes.masters())
        other = Table(nodes.url, f"{old.namespace}x")
        other.apply(0)
        store.remove_namespace(old.namespace)
        assert not [key for node in nodes.masters() for key in node.client.scan_iter(f"*:{old.namespace}:*")]
        assert set(other.read()) == {0}


def test_a_reader_in_an_event_loop(nodes: RedisClusterNodes) -> None:
    table = Table(nodes.url)
    table.apply(0)
    reads = [{"item": one} for one in ENTITIES]

    async def read() -> list[Any]:
        return list(await table.reader.aread("items", reads, None))

    assert {row.values["c0"] for row in asyncio.run(read())} == {0}
    asyncio.run(read())  # a loop of its own, with connections of its own


class LostError(Exception):
    """A process that dies."""


@pytest.mark.parametrize("buckets", [0, 1, 100, BUCKETS])
def test_a_death_while_marks_move(nodes: RedisClusterNodes, buckets: int) -> None:
    """Some buckets have the batch and others do not: it is written again, and readers see it meanwhile."""
    table = Table(nodes.url)
    table.apply(0)
    table.writer.check(1)
    calls = table.rows(1)
    run = Nodes.run

    def dies(self: Nodes, commands: Sequence[Command]) -> list[Any]:
        run(self, commands[:buckets])
        raise LostError

    with patch.object(Nodes, "run", dies), pytest.raises(LostError):
        table.writer.mark(1, LEDGER, calls)
    assert table.writer.applied() == 0
    table.writer.check_not_beyond(1)
    if buckets:
        with pytest.raises(StoreError) as ahead:
            table.writer.check_not_beyond(0)
        assert ahead.value.code == "store-ahead"
    assert set(table.read()) == {1}
    table.apply(1)
    assert table.writer.ledger() == (1, LEDGER)
    assert table.writer.behind(1) == frozenset()


def test_only_the_mark_of_the_build_is_behind(nodes: RedisClusterNodes) -> None:
    """Its server has lost the last write, and no rows: nothing is to be written but the mark."""
    table = Table(nodes.url)
    for batch in (0, 1):
        table.apply(batch)
    mark = names_of(table.at, f"control:{table.namespace}").mark(table.at.build)
    nodes.client().hset(mark, "batch", 0)
    with pytest.raises(StoreError) as noticed:
        table.writer.check(2)
    assert noticed.value.code == "store-behind"
    assert table.writer.behind(1) == frozenset()
    table.writer.restore(1, LEDGER, [], buckets=frozenset(), redriven=0, history=None)
    table.apply(2)
    assert set(table.read()) == {2}


class Readers:
    """Threads that read some rows all the time, each batch after the other."""

    def __init__(self, table: Table, entities: list[str]) -> None:
        self.reads, self.slowest_s = 0, 0.0
        self.wrong: list[str] = []
        self._table, self._entities = table, entities
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._read, daemon=True) for _ in range(2)]

    def _read(self) -> None:
        reader = Reader(self._table.url, self._table.namespace)
        seen = -1
        chance = random.Random(SEED)
        while not self._over.is_set():
            began = clock.monotonic()
            try:
                asked = [{"item": one} for one in chance.sample(self._entities, 20)]
                values = [row.values["c0"] for row in reader.read("items", asked, None)]
            except StoreError as refused:
                self.wrong.append(str(refused))
                continue
            self.slowest_s = max(self.slowest_s, clock.monotonic() - began)
            if None in values or max(values) - min(values) > 1 or max(values) < seen:
                self.wrong.append(f"{values} after {seen}")
            seen = max(seen, *(value for value in values if value is not None))
            self.reads += 1

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.timeout(1_800 if FULL else 300)
def test_fail_overs_that_lose_acknowledged_writes(nodes: RedisClusterNodes) -> None:
    """A server takes over without the last batch: it is noticed by the next one, and only its buckets are repaired."""
    chance = random.Random(SEED)
    table = Table(nodes.url)
    control = slot_of(names_of(table.at, f"control:{table.namespace}").active)
    batch = lost = with_control = 0
    table.apply(batch)
    for number in range(FAIL_OVERS):
        master = nodes.owner(control) if number % 3 == 1 else chance.choice(nodes.masters())
        mine = nodes.buckets_of(master)
        safe = [entity for entity in ENTITIES if bucket_of(entity) not in mine]
        with Readers(table, safe) as readers:
            replica = nodes.lag(master)
            with_control += nodes.owner(control) is master
            batch += 1
            table.apply(batch)
            nodes.fail_over(master, replica)
            with pytest.raises(StoreError) as noticed:
                table.apply(batch + 1)
            assert noticed.value.code == "store-behind"
            behind = table.writer.behind(batch)
            assert behind == mine
            repaired = [entity for entity in ENTITIES if bucket_of(entity) in behind]
            lost += sum(value != batch for value in table.read(repaired))
            table.writer.begin_again()
            calls = table.rows(batch, repaired, repairs=True)
            table.writer.restore(batch, LEDGER, calls, buckets=behind, redriven=0, history=None)
            table.writer.announce()
            batch += 1
            table.apply(batch)
        assert set(table.read()) == {batch}
        assert not readers.wrong, f"seed {SEED}, {number}: {len(readers.wrong)} of {readers.reads}: {readers.wrong[:2]}"
        assert readers.reads > 10
        nodes.replace(master)
        told = f"{readers.reads} reads of the others, the slowest took {readers.slowest_s:.1f} s"
        print(f"{number + 1}: {len(behind)} buckets behind, {told}")
    assert lost
    print(
        f"seed {SEED}: {FAIL_OVERS} fail-overs, {with_control} of the server with the marks of builds: each noticed by "
        f"the next batch; {lost:,} rows were behind, and only rows of buckets behind were written again"
    )


@contextmanager
def writing(table: Table) -> Iterator[Callable[[], int]]:
    """Write batch after batch in a thread. Yields what returns the last one."""
    over, failed = threading.Event(), list[StoreError]()
    batch = table.writer.applied()

    def write() -> None:
        nonlocal batch
        try:
            while not over.is_set():
                table.apply(batch + 1)
                batch += 1
        except StoreError as error:
            failed.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield lambda: batch
    over.set()
    thread.join()
    assert not failed, failed


def move_slot(nodes: RedisClusterNodes, slot: int, to: Node) -> int:
    """Move a slot as `redis-cli --cluster reshard` does, with waits between keys. Returns how many keys moved."""
    source = nodes.owner(slot)
    ids = {node.port: node.client.execute_command("CLUSTER", "MYID") for node in (source, to)}
    to.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
    source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to.port])
    moved = 0
    while keys := source.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 3):
        source.client.execute_command("MIGRATE", HOST, to.port, "", 0, 5_000, "KEYS", *keys)
        moved += len(keys)
        threading.Event().wait(0.01)
    for node in (to, *nodes.masters()):
        node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[to.port])
    return moved


@pytest.mark.timeout(1_800 if FULL else 300)
def test_slots_that_move_under_load(nodes: RedisClusterNodes) -> None:
    """Of two buckets and of the marks of builds, while a writer and readers use them."""
    chance = random.Random(SEED)
    table = Table(nodes.url)
    table.apply(0)
    control = slot_of(names_of(table.at, f"control:{table.namespace}").active)
    slots = [slot_of(tags()[bucket]) for bucket in chance.sample(range(BUCKETS), 40 if FULL else 2)] + [control]
    with Readers(table, ENTITIES) as readers, writing(table) as last:
        moved = 0

        def passed(batch: int) -> bool:
            return last() > batch

        for slot in slots:
            before = last()
            to = chance.choice([node for node in nodes.masters() if node is not nodes.owner(slot)])
            moved += move_slot(nodes, slot, to)
            await_true(partial(passed, before + 1), timeout=60, what="batches after a slot has moved")
    assert not readers.wrong, f"seed {SEED}: {len(readers.wrong)} of {readers.reads} reads: {readers.wrong[:2]}"
    assert set(table.read()) == {last()}
    assert moved
    print(
        f"seed {SEED}: {len(slots)} slots with {moved} keys moved under a writer ({last()} batches) and readers "
        f"({readers.reads} reads, slowest {readers.slowest_s:.2f} s): 0 refused, 0 mixed, 0 rows differ"
    )
