"""The Kafka resources that a load needs: partitions, brokers, disk, network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from leftfold.errors import DeclarationError
from leftfold.sizing.constants import Constants
from leftfold.sizing.line import Advice, Line
from leftfold.sizing.load import Load
from leftfold.units import amount, number


def partitions(load: Load) -> int:
    """The number of partitions as it is, or the number that keeping up and catching up need."""
    return load.partitions or max(_keeping_up(load), _catching_up(load))


def _keeping_up(load: Load) -> int:
    return math.ceil(load.rate / load.consumer_rate)


def _catching_up(load: Load) -> int:
    return math.ceil(load.rate * (1 + load.downtime_s / load.catch_up_s) / load.consumer_rate)


def partition_lines(load: Load) -> Iterator[Line]:
    rate, consumer = number(load.rate), number(load.consumer_rate)
    yield Line(
        "partitions, at the least",
        "records/s ÷ records/s of one consumer, rounded up: a partition has one consumer of a group",
        f"{rate} ÷ {consumer}",
        _keeping_up(load),
        "partitions",
    )
    yield Line(
        "partitions, to catch up",
        "records/s × (1 + longest outage ÷ time to catch up) ÷ records/s of one consumer, rounded up",
        f"{rate} × (1 + {amount(load.downtime_s, 's')} ÷ {amount(load.catch_up_s, 's')}) ÷ {consumer}",
        _catching_up(load),
        "partitions",
    )
    count = partitions(load)
    yield Line(
        "each partition carries",
        f"records/s ÷ partitions{'' if load.partitions else ', the larger of the two'}",
        f"{rate} ÷ {number(count)}",
        load.rate / count,
        "records/s",
    )


def log_lines(load: Load, constants: Constants) -> tuple[Line, ...]:
    """The lines for Kafka. Raises an error if there are more partitions than Kafka carries; see `check_partitions`."""
    count, chosen = partitions(load), brokers(load, constants)
    check_partitions(count, replication=load.replication, brokers=chosen, constants=constants)
    network = (*_network_lines(load), _producer_line(load, constants))
    wanted = tuple(_broker_lines(load, constants, count))
    largest = Line(
        "brokers", "the largest of these", f"max({', '.join(number(w.result) for w in wanted)})", chosen, "brokers"
    )
    there = Line("brokers", "as many as there are", number(chosen), chosen, "brokers")
    disk = _disk_lines(load, constants, chosen)
    return (*partition_lines(load), *network, *wanted, there if load.brokers else largest, *disk)


def brokers(load: Load, constants: Constants) -> int:
    """The number of brokers as it is, or the number that the load needs."""
    return load.brokers or int(max(line.result for line in _broker_lines(load, constants, partitions(load))))


def log_advice(load: Load, constants: Constants) -> Iterator[Advice]:
    count, least, wanted = partitions(load), _keeping_up(load), brokers(replace(load, brokers=None), constants)
    if count < least:
        yield Advice(
            "partitions-few",
            f"{number(load.rate)} records/s in {number(count)} partitions are {number(load.rate / count)} in each, and "
            f"one consumer handles {number(load.consumer_rate)}",
            "a partition is read by one consumer of a group: more consumers would not help",
            f"use {number(max(least, _catching_up(load)))} partitions ({number(least)} at the least)",
        )
    if load.brokers is not None and load.brokers < wanted:
        yield Advice(
            "brokers-few",
            f"the load asks for {number(wanted)} brokers, and there are {number(load.brokers)}",
            "brokers that are written to faster than they can write make producers wait, and then fail",
            f"add brokers, or probe what these can do: the model takes {amount(constants.broker_bytes_s, 'B/s')} each",
        )


def _network_lines(load: Load) -> Iterator[Line]:
    rate, size = number(load.rate), amount(load.record_bytes, "B")
    bytes_s = load.rate * load.record_bytes
    yield Line("written by producers", "records/s × bytes of a record", f"{rate} × {size}", bytes_s, "B/s")
    yield Line(
        "network in, all brokers",
        "written × replicas: the leader from the producer, the others from the leader",
        f"{amount(bytes_s, 'B/s')} × {load.replication}",
        bytes_s * load.replication,
        "B/s",
    )
    yield Line(
        "network out, all brokers",
        "written × (readers + replicas - 1)",
        f"{amount(bytes_s, 'B/s')} × ({load.readers} + {load.replication} - 1)",
        bytes_s * (load.readers + load.replication - 1),
        "B/s",
    )


def _producer_line(load: Load, constants: Constants) -> Line:
    by_rate, by_bytes = load.rate / constants.producer_rate, load.rate * load.record_bytes / constants.producer_bytes_s
    rate, size = number(load.rate), amount(load.rate * load.record_bytes, "B/s")
    return Line(
        "producers, at the least",
        "records/s or bytes/s ÷ what one Python producer sends, whichever is more, rounded up",
        f"max({rate} ÷ {number(constants.producer_rate)}, {size} ÷ {amount(constants.producer_bytes_s, 'B/s')})",
        math.ceil(max(by_rate, by_bytes)),
        "producers",
    )


def _broker_lines(load: Load, constants: Constants, count: int) -> Iterator[Line]:
    written = load.rate * load.record_bytes * load.replication
    yield Line(
        "brokers, for writes",
        "written × replicas ÷ what one broker writes, rounded up, and one more that may be away",
        f"{amount(written, 'B/s')} ÷ {amount(constants.broker_bytes_s, 'B/s')} + 1",
        math.ceil(written / constants.broker_bytes_s) + 1,
        "brokers",
    )
    yield Line(
        "brokers, for partitions",
        "partitions × replicas ÷ the most that one broker carries, rounded up",
        f"{number(count)} × {load.replication} ÷ {number(constants.partitions_per_broker)}",
        math.ceil(count * load.replication / constants.partitions_per_broker),
        "brokers",
    )
    yield Line(
        "brokers, for replicas",
        "as many as a record has copies",
        str(load.replication),
        load.replication,
        "brokers",
    )


def _disk_lines(load: Load, constants: Constants, brokers: int) -> Iterator[Line]:
    size, room = amount(load.record_bytes, "B"), constants.disk_room
    if load.retention_s is not None:
        total = load.rate * load.record_bytes * load.retention_s * load.replication * room
        formula = f"records/s × bytes × retention × replicas × {room:g} for what is not yet deleted"
        numbers = f"{number(load.rate)} × {size} × {amount(load.retention_s, 's')} × {load.replication} × {room:g}"
    elif load.keys is not None:
        total = load.keys * load.record_bytes * load.replication * room * 2
        formula = f"keys × bytes × replicas × {room:g} × 2: half of a log may be old records before it is compacted"
        numbers = f"{number(load.keys)} × {size} × {load.replication} × {room:g} × 2"
    else:
        return  # compacted, and the number of keys is not known
    yield Line("disk in all", formula, numbers, total, "B")
    yield Line("disk per broker", "disk in all ÷ brokers", f"{amount(total, 'B')} ÷ {brokers}", total / brokers, "B")


def check_partitions(count: int, *, replication: int, brokers: int, constants: Constants) -> None:
    layout = f"{number(count)} partitions × {replication} replicas on {brokers} brokers are"
    if (held := over_limit(count, count * replication, brokers, constants)) is not None:
        fits = min(constants.partitions_per_broker * brokers // replication, constants.partitions_per_cluster)
        raise too_many(
            f"{layout} {held}",
            fix=f"use at most {number(fits)} partitions here: a key needs no partition of its own"
            if fits
            else "use fewer replicas or more brokers",
        )


def over_limit(partitions: int, replicas: int, brokers: int, constants: Constants) -> str | None:
    """The number of replicas or partitions and the limit that it exceeds, as text; None if no limit is exceeded.

    A broker carries replicas, a controller carries partitions.
    """
    most, in_all = constants.partitions_per_broker, constants.partitions_per_cluster
    each = math.ceil(replicas / brokers)
    if each > most:
        held, limit = f"{number(each)} replicas of partitions on each", f"{number(most)} per broker"
    elif partitions > in_all:
        held, limit = f"{number(partitions)} partitions in all", f"{number(in_all)} per cluster"
    else:
        return None
    return f"{held}; Kafka's own advice is at most {limit}"


def too_many(what: str, *, fix: str) -> DeclarationError:
    return DeclarationError(
        "too-many-partitions",
        what,
        why="each replica costs files, memory, and an election when its broker dies; beyond that advice clusters have "
        "been seen to stand still (KIP-578)",
        fix=fix,
    )


# Reasons for a topic's number of partitions, in words: order, throughput, load per partition, sharing, growth.


def explain_partitions(load: Load, *, key: str) -> tuple[str, ...]:
    """Explain the number of partitions in words. `key` names the topic's key, in the singular: "driver"."""
    return tuple(_sentences(load, key))


def _sentences(load: Load, key: str) -> Iterator[str]:
    count = partitions(load)
    needed = max(1, math.ceil(load.rate / load.consumer_rate))
    yield (
        f"order: all records of one {key} are in one partition, which one consumer of a group reads from front to "
        f"back; so the records of a {key} are seen in the order in which they were logged. Between two {key}s there "
        "is no order."
    )
    ratio = load.rate / load.consumer_rate
    does = f"{number(load.rate)} records/s ÷ {number(load.consumer_rate)} of one consumer = {number(ratio)}"
    if count > needed:
        yield f"throughput: {does}, so {needed} would do; {count} is {count - needed} more than throughput needs."
    else:
        yield f"throughput: {does}, so {needed} at the least; there are {count}."
    carried = f"{number(load.rate)} ÷ {count} = {number(load.rate / count)} records/s"
    if load.keys is not None:
        carried += f", of {number(load.keys)} ÷ {count} = {number(load.keys / count)} {key}s"
    yield f"each partition carries: {carried}, if no {key} is much busier than the others."
    yield (
        f"sharing: up to {count} consumers of a group share the work; one more would have nothing to read. Each view "
        "and each group reads all of it for itself."
    )
    yield (
        f"later: growing to {2 * count} partitions sends about half of the {key}s to another one, where their new "
        f"records can be read before their old ones; so partitions are chosen for the load to come."
    )
