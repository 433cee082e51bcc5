"""Checks of the model of the log. Each takes the package as an argument, so that mutants can be checked too.

A check raises if the model is wrong. Together they must notice every mutant of `mutants.py`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import leftfold as lf
from tests.unit.testing import billing
from tests.unit.testing.billing import Ride, fares, rides

CORPUS = Path(__file__).parents[2] / "data" / "log-histories.json"
ALL = frozenset({1, 2, 3})


class Tariff(lf.Event):
    city: str
    cents: int


tariffs = lf.Topic("tariffs", Tariff, key=Tariff.city, partitions=2, compacted=True)


def _draft(m: Any, value: Any, **fields: Any) -> Any:
    return m.replicas.Draft(fields.pop("key", str(value).encode()), value, **fields)


def _values(entries: Any) -> list[Any]:
    return [entry.value for entry in entries]


def _raises(reason: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 # the classes belong to the package under test
        found = getattr(error, "reason", getattr(error, "code", type(error).__name__))
    else:
        found = "nothing"
    assert found == reason


# Replicas -------------------------------------------------------------------------------------------------------------


def acknowledgements(m: Any) -> None:
    one = m.replicas.PartitionModel.of([1, 2, 3], min_in_sync=2)
    assert [one.append([_draft(m, "a"), _draft(m, "b")]), one.append([_draft(m, "c")])] == [0, 2]
    assert one.high_water == one.log.end == 3
    assert one.append([_draft(m, "d")], acks="1") == 3
    assert (one.high_water, one.log.end) == (3, 4), "an acknowledgement of the leader alone raises no high-water mark"
    assert _values(one.read("read_uncommitted")) == ["a", "b", "c"]
    one.copy_to(2, 4)
    assert one.high_water == 3, "one of two followers is not enough"
    one.copy_to(3, 4)
    assert one.high_water == 4
    one.kill(2)
    assert (one.in_sync, one.eligible) == ({1, 3}, set())
    one.append([_draft(m, "e")])
    one.kill(3)
    assert (one.in_sync, one.eligible) == ({1}, {3})
    _raises("NOT_ENOUGH_REPLICAS", lambda: one.append([_draft(m, "f")]))
    assert one.append([_draft(m, "g")], acks="1") == 5
    one.catch_up(one.in_sync)
    assert one.high_water == 5, "the high-water mark stands while too few replicas are in sync"
    one.kill(1)
    assert (one.leader, one.in_sync) == (None, {1}), "the last in-sync replica stays in sync"
    _raises("LEADER_NOT_AVAILABLE", lambda: one.append([_draft(m, "h")], acks="1"))
    one.restart(2)
    assert one.can_lead(2) == "no"
    one.restart(3)
    assert one.can_lead(3) == "no", "a broker that was killed is not counted on"
    _raises("ELIGIBLE_LEADERS_NOT_AVAILABLE", lambda: one.elect(3))
    one.restart(1)
    assert one.can_lead(1) == "clean"
    one.elect(1)
    one.rejoin(2)
    assert (one.high_water, one.in_sync) == (6, {1, 2})
    assert _values(one.read("read_uncommitted")) == ["a", "b", "c", "d", "e", "g"]


def elections(m: Any) -> None:
    one = m.replicas.PartitionModel.of([1, 2], unclean=True)
    one.append([_draft(m, "a")])
    one.kill(2)
    one.append([_draft(m, "b")])
    assert one.high_water == 2
    one.append([_draft(m, "c")])
    one.kill(1)
    one.restart(2)
    assert one.can_lead(2) == "unclean"
    one.elect(2)
    assert (one.high_water, one.in_sync, one.epoch) == (1, {2}, 1)
    one.append([_draft(m, "d")])
    one.restart(1)
    assert one.can_lead(1) == "unclean"
    one.rejoin(1)
    for broker in (1, 2):
        assert _values(one.replicas[broker].entries) == ["a", "d"], "a returning replica cuts what was never agreed"
    one.kill(2)
    assert one.can_lead(1) == "clean"
    one.elect(1)
    assert _values(one.read("read_uncommitted")) == ["a", "d"]
    # The same without permission: the partition waits for the one that has all records.
    two = m.replicas.PartitionModel.of([1, 2])
    two.kill(2)
    two.append([_draft(m, "a")])
    two.kill(1)
    two.restart(2)
    _raises("ELIGIBLE_LEADERS_NOT_AVAILABLE", lambda: two.elect(2))
    # An eligible replica has all that is below the high-water mark, and leads cleanly.
    three = m.replicas.PartitionModel.of([1, 2], min_in_sync=2)
    three.append([_draft(m, "a")])
    three.eligible, three.in_sync = {2}, {1}
    three.append([_draft(m, "b")], acks="1")
    three.kill(1)
    assert three.can_lead(2) == "clean"
    three.elect(2)
    three.restart(1)
    three.rejoin(1)
    assert _values(three.replicas[1].entries) == ["a"]
    assert three.eligible == set()
    assert three.can_lead(3) == "no"


def random_partitions(m: Any) -> None:  # noqa: PLR0912 # one branch for each operation
    """Any history of appends, copies, deaths and clean elections loses nothing that all have acknowledged."""
    for seed in range(60):
        chance = random.Random(seed)
        one = m.replicas.PartitionModel.of([1, 2, 3], min_in_sync=chance.choice((1, 2)))
        agreed: list[int] = []
        for number in range(40):
            before = one.high_water
            match chance.choice(("all", "all", "1", "copy", "kill", "restart")):
                case "all" | "1" as acks if one.leader is not None:
                    try:
                        one.append([_draft(m, number)], acks=acks)
                    except m.replicas.RefusedAppend:
                        assert len(one.in_sync) < one.min_in_sync
                        continue
                    if acks == "all":
                        assert len(one.in_sync) >= one.min_in_sync
                        agreed.append(number)
                        assert one.high_water == one.log.end
                case "copy" if one.leader is not None:
                    for broker in one.in_sync - {one.leader}:
                        one.copy_to(broker, chance.randint(one.replicas[broker].end, one.log.end))
                case "kill" if len(one.alive) > 1:
                    one.kill(chance.choice(sorted(one.alive)))
                case "restart" if one.alive != ALL:
                    one.restart(chance.choice(sorted(ALL - one.alive)))
            if one.leader is None:
                for broker in sorted(one.alive):
                    if one.can_lead(broker) == "clean":
                        epoch = one.epoch
                        one.elect(broker)
                        assert one.epoch == epoch + 1
                        break
            if one.leader is None:
                continue
            for broker in sorted(one.alive - one.in_sync):
                one.rejoin(broker)
                assert one.replicas[broker].entries == one.log.entries
            assert one.leader in one.in_sync <= one.alive
            assert one.high_water >= before, "a clean election keeps the high-water mark"
            assert all(one.replicas[b].end >= one.high_water for b in one.in_sync)
            assert set(agreed) <= set(_values(one.log.entries))
            shown = one.read("read_uncommitted")
            assert [e.offset for e in shown] == list(range(one.high_water)), "offsets are dense and never reused"
            for broker in one.in_sync:
                entries = one.replicas[broker].entries
                assert entries == one.log.entries[: len(entries)]


def idempotence(m: Any) -> None:
    one = m.replicas.PartitionModel.of([1])

    def send(sequence: int, epoch: int = 0) -> int:
        return int(one.append([_draft(m, sequence, producer=7, producer_epoch=epoch, sequence=sequence)]))

    assert [send(n) for n in range(7)] == list(range(7))
    assert [send(6), send(2)] == [6, 2], "a batch that is sent again has its first offset"
    _raises("OUT_OF_ORDER_SEQUENCE_NUMBER", lambda: send(1))  # older than what brokers remember
    _raises("OUT_OF_ORDER_SEQUENCE_NUMBER", lambda: send(9))
    assert one.log.end == 7
    assert send(0, epoch=1) == 7
    _raises("INVALID_PRODUCER_EPOCH", lambda: send(7))


def retention(m: Any) -> None:
    one = m.replicas.PartitionModel.of([1, 2, 3])
    for number in range(5):
        one.append([_draft(m, number)])
    one.kill(3)
    one.append([_draft(m, 5)], acks="1")
    one.delete_before(3)
    assert one.log.start == 3
    assert _values(one.read("read_uncommitted", since=0)) == [3, 4]
    one.delete_before(9)
    assert one.log.start == 5, "what is not agreed on is not deleted"
    assert (one.log.end, one.replicas[2].start, one.replicas[3].start) == (6, 5, 0)
    one.restart(3)
    one.rejoin(3)
    assert one.replicas[3].start == 5
    assert one.append([_draft(m, 6)]) == 6, "offsets go on after the head is gone"
    one.kill(2)
    one.restart(2, start=3)
    assert (one.replicas[2].start, one.replicas[2].earlier) == (3, (0,)), "a killed broker may bring the head back"


# Transactions and compaction ------------------------------------------------------------------------------------------


def transactions(m: Any) -> None:
    coordinator = m.transactions.TransactionModel()
    one, two = (m.replicas.PartitionModel.of([1, 2, 3]) for _ in range(2))
    a, b = coordinator.init("a"), coordinator.init("b")
    assert a.producer != b.producer
    coordinator.begin(a)
    coordinator.begin(b)
    assert coordinator.write(a, one, [_draft(m, "a0"), _draft(m, "a1")]) == 0
    assert coordinator.write(b, one, [_draft(m, "b0")]) == 2
    coordinator.write(b, two, [_draft(m, "b1")])
    one.append([_draft(m, "plain")])
    assert (one.stable_end, one.high_water) == (0, 4), "an open transaction holds the last stable offset"
    assert _values(one.read("read_uncommitted")) == ["a0", "a1", "b0", "plain"]
    assert one.read("read_committed") == []
    coordinator.commit(a)
    assert one.stable_end == 2
    assert _values(one.read("read_committed")) == ["a0", "a1"]
    coordinator.abort(b)
    assert (one.stable_end, one.log.end, two.log.end) == (6, 6, 2), "a marker takes an offset"
    assert _values(one.read("read_committed")) == ["a0", "a1", "plain"]
    assert _values(two.read("read_committed")) == []
    assert _values(two.read("read_uncommitted")) == ["b1"]
    coordinator.begin(b)
    coordinator.write(b, one, [_draft(m, "b2")])
    coordinator.commit(b)
    assert _values(one.read("read_committed")) == ["a0", "a1", "plain", "b2"], "only that transaction was aborted"
    # A later process fences the earlier one, and aborts what it has left open.
    coordinator.begin(a)
    coordinator.write(a, two, [_draft(m, "lost")])
    newer = coordinator.init("a")
    assert (newer.producer, newer.epoch) == (a.producer, a.epoch + 1)
    assert two.stable_end == two.high_water
    for call in (coordinator.begin, coordinator.commit, coordinator.abort):
        _raises("Fenced", partial(call, a))
    _raises("Fenced", lambda: coordinator.write(a, one, [_draft(m, "late")]))
    coordinator.begin(newer)
    coordinator.write(newer, two, [_draft(m, "new")])
    coordinator.commit(newer)
    assert _values(two.read("read_committed")) == ["new"]
    # An open transaction of a silent process is aborted by time.
    coordinator.begin(newer)
    coordinator.write(newer, two, [_draft(m, "silent")])
    assert coordinator.is_open("a")
    coordinator.expire("a")
    assert not coordinator.is_open("a")
    assert _values(two.read("read_committed")) == ["new"]
    _raises("Fenced", lambda: coordinator.commit(newer))


def offsets_in_a_transaction(m: Any) -> None:
    at = m.groups.CommittedOffset
    coordinator, group = m.transactions.TransactionModel(), m.groups.GroupModel([("t", 0), ("t", 1)])
    group.enter("x")
    group.join("x")
    identity = coordinator.init("a")
    partition = m.replicas.PartitionModel.of([1])
    for how in ("abort", "commit"):
        coordinator.begin(identity)
        coordinator.write(identity, partition, [_draft(m, how)])
        coordinator.send_offsets(identity, group, {("t", 0): at(5)}, member="x", generation=1)
        assert group.committed == {}, "positions wait for the commit"
        getattr(coordinator, how)(identity)
    assert group.committed == {("t", 0): at(5)}
    group.enter("y")
    group.join("x")
    group.join("y")
    coordinator.begin(identity)
    _raises(
        "Fenced",
        lambda: coordinator.send_offsets(identity, group, {("t", 0): at(9)}, member="x", generation=1),
    )
    _raises(
        "Fenced",
        lambda: coordinator.send_offsets(identity, group, {("t", 0): at(9)}, member="z", generation=2),
    )


def compaction(m: Any) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        one = m.replicas.PartitionModel.of([1, 2], compacts=True)
        coordinator = m.transactions.TransactionModel()
        identity = coordinator.init("a")
        newest: dict[bytes, Any] = {}
        for number in range(30):
            key = b"k%d" % chance.randrange(4)
            value = None if chance.random() < 0.2 else number
            if chance.random() < 0.3:
                coordinator.begin(identity)
                coordinator.write(identity, one, [_draft(m, value, key=key)])
                how = chance.choice(("commit", "abort"))
                getattr(coordinator, how)(identity)
            else:
                how = "commit"
                one.append([_draft(m, value, key=key)])
            if how == "commit":
                newest[key] = value
        before = one.read("read_committed")
        end = one.log.end
        one.compact()
        after = one.read("read_committed")
        assert {e.key: e.value for e in after} == newest == {e.key: e.value for e in before}
        assert len(after) == len(newest), "of each key one record, the newest"
        assert [e for e in before if e in after] == after, "records keep their offsets and their order"
        assert one.read("read_uncommitted") == after, "aborted records are gone"
        assert one.log.end == end
        one.compact()
        assert one.read("read_committed") == after
        identity = coordinator.init("a")
        coordinator.begin(identity)
        at = coordinator.write(identity, one, [_draft(m, "open", key=b"k0")])
        one.append([_draft(m, "later", key=b"k0")])
        one.compact()
        shown = one.read("read_uncommitted")
        assert _values(shown)[-2:] == ["open", "later"]
        assert [e for e in shown if e.offset < at] == after, "nothing is cleaned because of what may be aborted"
    no_key = [m.replicas.LogEntry(0, 0, None, 1), m.replicas.LogEntry(1, 0, None, 2)]
    assert m.compaction.compacted(no_key, set()) == no_key
    tombstone = [m.replicas.LogEntry(0, 0, b"k", None)]
    assert m.compaction.compacted(tombstone, set()) == tombstone
    assert m.compaction.compacted(tombstone, set(), tombstones=False) == []


# Groups ---------------------------------------------------------------------------------------------------------------


def assignment(m: Any) -> None:
    seven, two = [("a", n) for n in range(7)], [("b", n) for n in range(2)]
    range_, robin, sticky = (m.assignment.ASSIGNORS[n] for n in ("range", "roundrobin", "cooperative-sticky"))
    names = ["m2", "m1", "m3"]
    assert range_(names, [*seven, *two], {}) == {
        "m1": {("a", 0), ("a", 1), ("a", 2), ("b", 0)},
        "m2": {("a", 3), ("a", 4), ("b", 1)},
        "m3": {("a", 5), ("a", 6)},
    }
    assert robin(names, [*seven, *two], {}) == {
        "m1": {("a", 0), ("a", 3), ("a", 6)},
        "m2": {("a", 1), ("a", 4), ("b", 0)},
        "m3": {("a", 2), ("a", 5), ("b", 1)},
    }
    owned: dict[str, set[Any]] = {}
    for seed in range(40):
        chance = random.Random(seed)
        members = [f"m{n}" for n in range(chance.randrange(1, 6))]
        parts = [("t", n) for n in range(chance.randrange(1, 13))]
        for assignor in (range_, robin, sticky):
            given = assignor(members, parts, owned)
            assert sorted(part for mine in given.values() for part in mine) == parts, "each partition has one owner"
            sizes = [len(mine) for mine in given.values()]
            assert len(sizes) == len(members)
            assert max(sizes) - min(sizes) <= 1
        before = sticky(members, parts, {})
        assert sticky(members, parts, before) == before, "nothing moves without a reason"
        after = sticky([*members, "new"], parts, before)
        moved = sum(len(after[name] - before.get(name, set())) for name in after)
        assert moved == len(after["new"]) == len(parts) // (len(members) + 1) or moved == len(after["new"])


def generations(m: Any) -> None:
    at = m.groups.CommittedOffset
    parts = [("t", n) for n in range(4)]
    group = m.groups.GroupModel(parts)
    group.enter("x")
    assert group.assignment == {"x": set()}
    group.join("x")
    assert (group.generation, group.assignment["x"]) == (1, set(parts))
    group.commit("x", 1, {("t", 0): at(3)})
    group.enter("y")
    assert group.rebalancing
    group.commit("x", 1, {("t", 0): at(4)})  # until the rebalance is done, the old generation may commit
    group.join("y")
    assert group.generation == 1, "a rebalance waits for every member"
    group.join("x")
    assert (group.generation, group.rebalancing) == (2, False)
    assert group.assignment == {"x": {("t", 0), ("t", 1)}, "y": {("t", 2), ("t", 3)}}
    _raises("Fenced", lambda: group.commit("x", 1, {("t", 0): at(9)}))
    _raises("Fenced", lambda: group.commit("z", 2, {("t", 0): at(9)}))
    group.leave("x")
    assert group.rebalancing
    _raises("Fenced", lambda: group.commit("x", 2, {("t", 0): at(9)}))
    _raises("Fenced", lambda: group.join("x"))
    group.join("y")
    assert (group.generation, group.assignment) == (3, {"y": set(parts)})
    assert group.committed == {("t", 0): at(4)}
    # Cooperative: a partition that moves has no owner for one generation.
    group = m.groups.GroupModel(parts, assignor="cooperative-sticky")
    group.enter("x")
    group.join("x")
    group.enter("y")
    group.join("x")
    group.join("y")
    assert (len(group.assignment["x"]), group.assignment["y"], group.rebalancing) == (2, set(), True)
    kept = group.assignment["x"]
    group.join("x")
    group.join("y")
    assert (group.assignment["x"], len(group.assignment["y"]), group.rebalancing) == (kept, 2, False)


# Deliveries -----------------------------------------------------------------------------------------------------------


def _log(m: Any, seed: int, number: int = 12, **options: Any) -> Any:
    log = m.model.Log(seed, **options)
    log.send(rides, *billing.POOL[:number])
    return log


def deaths(m: Any) -> None:
    """A death at each step of each delivery: what the table in docs/guide/delivery.md says."""
    of_kafka, of_sql = ("records written", "commit due"), ("position locked", "position moved")
    charges = (billing.charge_at_most_once, billing.charge_naively, billing.charge)
    for consumer in (*charges, billing.invoice, billing.bill):
        others = of_sql if consumer.into is None else of_kafka
        for step, deliveries in m.crashes.STEPS.items():
            if consumer.delivery not in deliveries or step in ("dead letter acknowledged", *others):
                continue
            lost = doubled = 0
            for seed in range(12):
                billing.bank = billing.Bank()
                count = 1 + seed % 3 if step in ("handler half done", "handler done", "settled") else 1
                into = None if consumer.into is None else m.database.InMemoryDatabase(billing.SCHEMA)
                outcome = _log(m, seed).consume(consumer, crash_at=(step, count), members=1 + seed % 2, into=into)
                assert [name for _, name in outcome.crashes] == [step]
                assert len(outcome.expected) == 12
                assert sum(outcome.half.values()) == (step == "handler half done")
                lost += outcome.lost
                doubled += outcome.doubled
            where = f"{consumer.name}, {step}: {lost} lost, {doubled} doubled"
            if consumer.delivery == "at_most_once":
                assert doubled == 0, where
                assert (lost > 0) == (step not in ("polled", "commit due")), where
            elif consumer.delivery == "at_least_once":
                assert lost == 0, where
                if step not in ("polled", "handler half done"):  # what was settled before may be uncommitted then
                    assert (doubled > 0) == (step != "committed"), where
            else:
                assert (lost, doubled) == (0, 0), where


def rebalances(m: Any) -> None:
    """Members that come, go and are overtaken lose nothing at least once, and double nothing exactly once."""
    fenced = generations = 0
    for seed in range(80):
        log, database = _log(m, seed), m.database.InMemoryDatabase(billing.SCHEMA)
        outcome = log.consume(billing.bill, members=2, rebalances=4, into=database)
        assert (outcome.lost, outcome.doubled) == (0, 0), (seed, "bill")
    for seed in range(60):
        for assignor in ("range", "roundrobin", "cooperative-sticky"):
            for consumer in (billing.charge, billing.invoice, billing.charge_at_most_once):
                billing.bank = billing.Bank()
                log = _log(m, seed)
                outcome = log.consume(
                    consumer,
                    members=2,
                    rebalances=3,
                    assignor=assignor,
                    crashes=m.crashes.random_crashes(random.Random(seed), consumer.delivery, most=1),
                )
                fenced += outcome.fenced
                generations += outcome.generations
                if consumer is not billing.charge_at_most_once:
                    assert outcome.lost == 0, (seed, assignor, consumer.name)
                if consumer is not billing.charge:
                    assert outcome.doubled == 0, (seed, assignor, consumer.name)
                if consumer is billing.invoice:
                    assert sorted(f.ride_id for f in log.read(fares)) == sorted(r.ride_id for r in billing.POOL[:12])
                again = log.consume(consumer)
                assert (again.expected, again.effects) == (frozenset(), Counter()), "what is committed comes again"
    assert fenced > 20, "no member was overtaken"
    assert generations > 500


def failures(m: Any) -> None:
    """Retries, dead letters, late records, batches, order, and where a group begins."""
    calls: list[tuple[str, int]] = []

    @lf.consumer(rides, start="beginning", name="fails", retry=lf.Retry(attempts=3, first="1ms"))
    def fails(ride: Ride, record: lf.Record) -> None:
        calls.append((ride.ride_id, record.attempt))
        if ride.ride_id == "r3":
            raise ValueError("always")
        if ride.ride_id == "r4":
            raise lf.Unprocessable("never")
        if ride.ride_id == "r5" and record.attempt < 3:
            raise ValueError("twice")

    log = _log(m, 1)
    outcome = log.consume(fails)
    attempts = Counter(name for name, _ in calls)
    assert (attempts["r3"], attempts["r4"], attempts["r5"], attempts["r6"]) == (3, 1, 3, 1)
    assert sorted(outcome.dead.values()) == ["Unprocessable: never", "ValueError: always"]
    assert (outcome.lost, outcome.doubled, len(outcome.effects)) == (0, 0, 10)

    failed: set[str] = set()

    @lf.consumer(
        rides,
        start="beginning",
        name="fails_in_sql",
        retry=lf.Retry(attempts=2, first="1ms"),
        delivery="exactly_once",
        into=lf.Sql("env:LEDGER_URL"),
    )
    def fails_in_sql(ride: Ride, db: lf.SqlConnection) -> None:
        db.cursor().execute("insert into accounts values (%s, 1)", (ride.ride_id,))
        with suppress(ValueError), db.transaction():
            db.execute("delete from accounts")
            raise ValueError("not all of them")
        if ride.ride_id not in failed:
            failed.add(ride.ride_id)
            raise ValueError("once")

    database = m.database.InMemoryDatabase(billing.SCHEMA)
    outcome = _log(m, 3).consume(fails_in_sql, into=database)
    assert (outcome.lost, outcome.dead) == (0, {}), "a call that failed leaves nothing in the database"
    assert database.execute("select count(*), sum(cents) from accounts").fetchone() == (12, 12)

    orders: dict[str, list[str]] = {}

    @lf.consumer(rides, start="beginning", name="in_order", parallel=8)
    def in_order(ride: Ride) -> None:
        orders.setdefault(ride.customer, []).append(ride.ride_id)

    whole: list[str] = []

    @lf.consumer(rides, start="beginning", name="in_batches", batch=lf.Batch(3))
    def in_batches(batch: list[Ride], records: list[lf.Record]) -> None:
        assert len(batch) == len(records) <= 3
        assert len({record.partition for record in records}) == 1
        whole.extend(ride.ride_id for ride in batch)

    log = _log(m, 2, 60)
    log.consume(in_order)
    for customer, seen in orders.items():
        assert seen == [r.ride_id for r in billing.POOL[:60] if r.customer == customer], "the order of a key is kept"
    assert list(orders) != list(dict.fromkeys(r.customer for r in billing.POOL[:60])) or len(orders) == 1
    assert log.consume(in_batches).lost == 0
    assert sorted(whole) == sorted(r.ride_id for r in billing.POOL[:60])

    @lf.consumer(rides, start="now", name="from_now")
    def from_now(ride: Ride) -> None:
        pass

    @lf.consumer(rides, start=billing.POOL[20].at, name="from_then", late="skip")
    def from_then(ride: Ride) -> None:
        pass

    assert log.consume(from_now).effects == Counter()
    (sent,) = log.send(rides, billing.POOL[399])
    assert log.consume(from_now).effects == Counter({sent: 1})
    (late,) = log.send(rides, billing.POOL[0].model_copy(update={"at": billing.POOL[0].at.replace(year=2025)}))
    outcome = log.consume(from_then)
    assert len(outcome.effects) == 41
    assert outcome.skipped == {late}
    assert outcome.lost == 0


def surface(m: Any) -> None:
    """Handlers that stop, wait or are asynchronous; tombstones; and positions that the log no longer has."""

    @lf.consumer(rides, start="beginning", name="stops", failure="stop", retry=lf.Retry(attempts=1))
    def stops(ride: Ride) -> None:
        raise KeyError(ride.ride_id)

    _raises("KeyError", lambda: _log(m, 1).consume(stops))
    waits: list[str] = []

    @lf.consumer(rides, start="beginning", name="waits", order="none", parallel=3)
    async def waiting(ride: Ride, record: lf.Record) -> None:
        assert record.attempt == 1, "waiting is no attempt"
        waits.append(ride.ride_id)
        if waits.count(ride.ride_id) < 3:
            raise lf.NotNow("1s")

    outcome = _log(m, 1).consume(waiting)
    assert (outcome.lost, outcome.doubled, len(waits), len(outcome.effects)) == (0, 0, 36, 12)

    @lf.consumer(rides, start="beginning", name="fails_once", delivery="at_most_once")
    def fails_once(ride: Ride) -> None:
        raise ValueError("at most once")

    outcome = _log(m, 1).consume(fails_once, crash_at=("dead letter acknowledged", 2))
    assert (outcome.doubled, outcome.effects, len(outcome.crashes)) == (0, Counter(), 1)
    assert 2 <= len(outcome.dead) <= 12

    log = _log(m, 4)
    log.consume(billing.charge_naively)
    log.send(rides, *billing.POOL[12:20])
    log.advance(timedelta(days=400))
    log.retain(rides)
    assert log.read(rides) == []
    _raises("log-overtaken", lambda: log.consume(billing.charge_naively))
    log = _log(m, 5, brokers=2, unclean=True)
    log.kill(2)
    log.send(rides, *billing.POOL[12:20])
    log.consume(billing.charge_naively)
    log.kill(1)
    log.restart(2)
    assert len(log.read(rides)) == 12, "an unclean election loses what the new leader does not have"
    _raises("position-beyond-log", lambda: log.consume(billing.charge_naively))

    log = m.model.Log(6)
    for number in range(10):
        log.send(tariffs, Tariff(city="Rome", cents=number), Tariff(city="Bern", cents=number))
    log.delete(tariffs, "Bern")
    log.compact(tariffs)
    assert [tariff.cents for tariff in log.read(tariffs) if tariff.city == "Rome"] == [9]
    assert sum(len(partition.log.entries) for partition in log.partitions(tariffs)) == 2, "a tombstone is the newest"


def brokers(m: Any) -> None:
    """Records that all in-sync replicas have acknowledged survive any single death."""
    for seed in range(30):
        log = m.model.Log(seed)
        chance = random.Random(seed)
        for number in range(30):
            log.send(rides, billing.POOL[number])
            if chance.random() < 0.3:
                broker = chance.choice(log.brokers)
                log.kill(broker)
                log.send(rides, billing.POOL[100 + number])
                log.restart(broker)
        sent = [*billing.POOL[:30]]
        assert {r.ride_id for r in sent} <= {r.ride_id for r in log.read(rides)}
        assert all(one.in_sync == ALL for one in log.partitions(rides))
    lost = 0
    for seed in range(20):
        log = m.model.Log(seed)
        log.send(rides, *billing.POOL[:20], acks="1")
        log.kill(1)
        log.restart(1)
        lost += 20 - len(log.read(rides))
    assert lost > 0, "a record that only the leader has acknowledged may be lost"


def money(m: Any) -> None:
    """Billing is right to the cent, and versions that cannot be right are wrong somewhere."""
    schedules = billing.Schedules(m)
    for number in range(120):
        accounts, expected = schedules.run(number)
        assert accounts == expected, number
    assert schedules.crashes > 60
    for wrong in (billing.charge_naively, billing.charge_at_most_once):
        results = [schedules.run(number, wrong) for number in range(40)]
        assert any(accounts != expected for accounts, expected in results)


def recorded(m: Any) -> None:
    """Every recorded history of real brokers is allowed."""
    for settings in json.loads(CORPUS.read_text()):
        history = m.allowed.JudgedHistory(settings)
        for operation in settings["operations"]:
            history.tell(operation)


CHECKS: tuple[Callable[[Any], None], ...] = (
    acknowledgements,
    elections,
    random_partitions,
    idempotence,
    retention,
    transactions,
    offsets_in_a_transaction,
    compaction,
    assignment,
    generations,
    failures,
    surface,
    brokers,
    deaths,
    money,
    rebalances,
    recorded,
)
