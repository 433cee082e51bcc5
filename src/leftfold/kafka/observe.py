"""Observes a cluster in one pass: with few calls, however many topics it has, and without changing anything.

One pass cannot show whether a group moves. So a few groups are observed a second time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs forget to re-export these
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)

from leftfold import clock
from leftfold.errors import LogError
from leftfold.fold.durations import SECOND
from leftfold.kafka.admin import ASK_S, EARLIEST, LATEST, Admin, passes
from leftfold.kafka.group_offsets import GroupOffsets
from leftfold.kafka.log_reader import LogReader
from leftfold.kafka.observed import (
    ObservedBroker,
    ObservedCluster,
    ObservedGroup,
    ObservedPartition,
    ObservedTopic,
)
from leftfold.kafka.python_admin import LogDirs, log_dirs
from leftfold.settings import Kafka

# Kafka's clients commit every 5 s by default.
WATCHED_S = 10
RATE_S = 60  # the time over which rates are counted
_ELECTED_S = 5.0  # how long a new leader may take to know its end offset
_COORDINATED_S = 15.0  # how long a group may be without a coordinator after a broker came or went
_READING_S = 10.0  # how long to search for records that groups have not read
_OWN = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
_Thing = TypeVar("_Thing")


def observe_cluster(admin: Admin, kafka: Kafka, names: Iterable[str] | None = None) -> ObservedCluster:
    """Observe the topics in `names` that exist, or all topics but Kafka's own, with the groups that read them."""
    described = admin.asked(lambda: {None: admin.client.describe_cluster(request_timeout=ASK_S)})[None]
    dirs = log_dirs(kafka)
    topics = _existing_topics(admin, names, dirs)
    # Each broker returns only its own settings, so each needs its own call.
    configs = {
        node.id: admin.configs(ConfigResource.Type.BROKER, [str(node.id)])[str(node.id)] for node in described.nodes
    }
    brokers = tuple(
        ObservedBroker(node.id, node.rack, _values(configs[node.id]), dirs.disks.get(node.id, ()))
        for node in sorted(described.nodes, key=lambda node: int(node.id))
    )
    groups = _groups(admin, kafka, topics)
    return ObservedCluster(str(described.cluster_id), clock.now_us(), brokers, topics, groups)


def observe_groups(admin: Admin, kafka: Kafka, names: Iterable[str] | None = None) -> ObservedCluster:
    """Observe topics and groups as `observe_cluster` does, without brokers and sizes, for which all would be asked."""
    topics = _existing_topics(admin, names, LogDirs())
    return ObservedCluster(str(admin.metadata().cluster_id), clock.now_us(), (), topics, _groups(admin, kafka, topics))


def observe_topics(admin: Admin, kafka: Kafka, names: Iterable[str] | None = None) -> dict[str, ObservedTopic]:
    """Observe the same topics as `observe_cluster`, without brokers and groups."""
    return _existing_topics(admin, names, log_dirs(kafka))


def records_since(admin: Admin, topics: Iterable[ObservedTopic], seconds: int) -> dict[tuple[str, int], int]:
    """Return the number of offsets that each partition has got in the last `seconds`, by the brokers' time index.

    Partitions without a leader are left out.
    """
    led = {
        (topic.name, number): part for topic in topics for number, part in enumerate(topic.spread) if part.leader >= 0
    }
    since: Any = OffsetSpec.for_timestamp(clock.now_us() // 1_000 - seconds * 1_000)
    firsts = _offsets(admin, [TopicPartition(*place) for place in led], since)
    # The brokers answer -1 if no record is that new.
    return {place: max(0, led[place].end - first) if first >= 0 else 0 for place, first in firsts.items()}


def watch_groups(admin: Admin, kafka: Kafka, seen: ObservedCluster) -> ObservedCluster:
    """Return the same cluster, with the partitions in which a group's position has not moved since.

    It observes groups that have members and lag. Without such groups it does nothing. It looks only at topics that a
    member reads, because a group may have old positions in other topics.
    """
    behind: dict[str, dict[str, dict[int, int]]] = {}
    for name, group in seen.groups.items():
        if _settled(group.state, group.members):
            unread = {topic: places for topic, places in seen.unread(group).items() if topic in group.owners}
            if unread:
                behind[name] = unread
    if not behind:
        return seen
    passed = (clock.now_us() - seen.seen_at) / SECOND
    time.sleep(min(max(0.0, WATCHED_S - passed), WATCHED_S))  # bounded: the clock may have been set meanwhile
    watched_s = max(WATCHED_S, (clock.now_us() - seen.seen_at) // SECOND)
    suspects: dict[str, dict[str, list[int]]] = {name: {} for name in behind}
    for name, (description, positions) in _looked_at(admin, kafka, sorted(behind)).items():
        if not _settled(description.state.name, len(description.members)):
            continue
        before = seen.groups[name].positions
        for topic, places in behind[name].items():
            same = [p for p in places if positions.get(topic, {}).get(p) == before[topic][p]]
            if same:
                suspects[name][topic] = same
    still = {
        name: {topic: firsts for topic, firsts in topics.items() if firsts}
        for name, topics in first_unread(kafka, seen, suspects).items()
    }
    watched = {name: replace(seen.groups[name], watched_s=watched_s, still=still.get(name, {})) for name in behind}
    return replace(seen, groups=seen.groups | watched)


def _settled(state: str, members: int) -> bool:
    return state == "STABLE" and members > 0


def first_unread(
    kafka: Kafka, seen: ObservedCluster, suspects: Mapping[str, Mapping[str, Sequence[int]]]
) -> dict[str, dict[str, dict[int, int]]]:
    """Return the log time of the first record that a group has not read, by group, topic and partition.

    Partitions without such a record are left out. Offsets alone do not show it: markers, records of an aborted or open
    transaction, and records that compaction removed all have offsets. A topic that this user may not read is left out,
    and so is one that could not be read in time.
    """
    unread_since: dict[str, dict[str, dict[int, int]]] = {}
    asked = [(name, topic, places) for name, topics in suspects.items() for topic, places in topics.items()]
    if not asked:
        return unread_since
    deadline = clock.monotonic() + _READING_S
    reader = LogReader(kafka)
    try:
        for name, topic, places in asked:
            spread, positions = seen.topics[topic].spread, seen.groups[name].positions[topic]
            ranges = {p: (max(positions[p], spread[p].start), spread[p].end) for p in places}
            firsts = _first_of_each(reader, topic, ranges, deadline)
            if firsts is not None:
                unread_since.setdefault(name, {})[topic] = firsts
    finally:
        reader.close()
    return unread_since


def _first_of_each(
    reader: LogReader, topic: str, ranges: Mapping[int, tuple[int, int]], deadline: float
) -> dict[int, int] | None:
    """Return the log time of the first record of each range that has one; None if that is not known in time."""
    firsts: dict[int, int] = {}
    if clock.monotonic() > deadline:
        return None
    try:
        for record in reader.read(topic, ranges):
            firsts.setdefault(record.partition, record.log_us)
            if len(firsts) == len(ranges):
                break
            if clock.monotonic() > deadline:
                return firsts or None
    except LogError:  # we may not read the topic, so nothing is known about it
        return None
    return firsts


def _offsets(admin: Admin, places: list[TopicPartition], spec: Any) -> dict[tuple[str, int], int]:
    """Return the offsets of those partitions whose leader knows them.

    A leader that was just elected does not know them at once. It is asked again for a while.
    """

    asked_before = False

    def ask(asked: list[TopicPartition]) -> dict[TopicPartition, Any]:
        nonlocal asked_before
        if asked_before:
            admin.metadata()  # else the client asks the leaders that it knows
        asked_before = True
        return dict(admin.client.list_offsets(dict.fromkeys(asked, spec), request_timeout=ASK_S))

    infos = _asked_again(admin, places, ask, _ELECTED_S)
    return {(place.topic, place.partition): int(answer.offset) for place, answer in infos.items()}


def _existing_topics(admin: Admin, names: Iterable[str] | None, dirs: LogDirs) -> dict[str, ObservedTopic]:
    existing = admin.metadata().topics
    wanted = [n for n in (existing if names is None else names) if n in existing and existing[n].error is None]
    if names is None:
        wanted = [n for n in wanted if not n.startswith("__")]
    return _topics(admin, sorted(set(wanted)), existing, dirs)


def _topics(admin: Admin, names: list[str], existing: Any, dirs: LogDirs) -> dict[str, ObservedTopic]:
    if not names:
        return {}
    configs = admin.configs(ConfigResource.Type.TOPIC, names)
    names = sorted(configs)  # without those that were deleted meanwhile
    described = admin.described(names)
    led = [(name, n) for name in names for n, part in existing[name].partitions.items() if part.leader >= 0]
    places = [TopicPartition(name, number) for name, number in led]
    starts, ends = _offsets(admin, places, EARLIEST), _offsets(admin, places, LATEST)
    return {
        name: ObservedTopic(
            name,
            str(described[name].topic_id),
            tuple(
                ObservedPartition(
                    part.leader,
                    tuple(part.replicas),
                    tuple(part.isrs),
                    starts.get((name, number), 0),
                    ends.get((name, number), 0),
                    dirs.sizes.get((name, number)),
                )
                for number, part in sorted(existing[name].partitions.items())
            ),
            _values(configs[name]),
            frozenset(k for k, entry in configs[name].items() if entry.source == _OWN),
        )
        for name in names
    }


def _values(entries: dict[str, Any]) -> dict[str, str]:
    """Return configs as texts, without secrets: brokers send them without a value, and we must not show them."""
    return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}


def _groups(admin: Admin, kafka: Kafka, topics: dict[str, ObservedTopic]) -> dict[str, ObservedGroup]:
    """Return the groups that have a position in one of the topics, or a member that reads one."""
    deadline = clock.monotonic() + _COORDINATED_S
    listed = admin.answer(admin.client.list_consumer_groups(request_timeout=ASK_S))
    # Wait for a broker that still loads the groups that it has taken over. A broker that refuses to list groups would
    # continue to refuse.
    # The library's documentation calls these errors KafkaException; in fact they are KafkaError.
    while any(passes(error) for error in listed.errors) and clock.monotonic() < deadline:
        time.sleep(0.2)
        listed = admin.answer(admin.client.list_consumer_groups(request_timeout=ASK_S))
    names = sorted(group.group_id for group in listed.valid)
    if not names:
        return {}
    groups = {}
    for name, (group, everywhere) in _looked_at(admin, kafka, names).items():
        positions = {topic: places for topic, places in everywhere.items() if topic in topics}
        owners: Counter[str] = Counter()
        for member in group.members:
            owners.update({tp.topic for tp in member.assignment.topic_partitions if tp.topic in topics})
        if positions or owners:
            idle = sum(not member.assignment.topic_partitions for member in group.members)
            groups[name] = ObservedGroup(name, group.state.name, len(group.members), dict(owners), positions, idle=idle)
    return groups


def _looked_at(admin: Admin, kafka: Kafka, names: list[str]) -> dict[str, tuple[Any, dict[str, dict[int, int]]]]:
    """Return each group's description and its positions; without groups that no coordinator answers for."""
    by_group: dict[str, tuple[Any, dict[str, dict[int, int]]]] = {}
    asked: Admin | None = None

    def describe(groups: list[str]) -> dict[str, Any]:
        """Ask for descriptions; if asked again, with a new client (see `admin.MOVING`)."""
        nonlocal asked
        asked = admin if asked is None else Admin(kafka)
        return dict(asked.client.describe_consumer_groups(groups, request_timeout=ASK_S))

    described = _asked_again(admin, names, describe, _COORDINATED_S)
    with closing(GroupOffsets(kafka)) as offsets:
        for name, description in described.items():
            try:
                committed = offsets.of(name)
            except LogError as error:
                if error.code != "kafka-denied" and not error.retriable:
                    raise
                continue
            positions: dict[str, dict[int, int]] = {}
            for part, at in committed.items():
                positions.setdefault(part.topic, {})[part.partition] = at.offset
            by_group[name] = (description, positions)
    return by_group


def _asked_again(
    admin: Admin, things: list[_Thing], ask: Callable[[list[_Thing]], dict[_Thing, Any]], patience_s: float
) -> dict[_Thing, Any]:
    """Return the answers that arrive within `patience_s`. Leaves out the rest, and what this user may not see.

    A user who may describe the cluster gets the names of all groups, even of groups that it may not describe.
    """
    answers: dict[_Thing, Any] = {}
    deadline = clock.monotonic() + patience_s
    while things:
        left = []
        for thing, answer in ask(things).items():
            try:
                answers[thing] = admin.answer(answer)
            except LogError as error:
                if error.code == "kafka-denied":
                    continue
                if not error.retriable:
                    raise
                left.append(thing)
        things = left if clock.monotonic() < deadline else []
        if things:
            time.sleep(0.2)
    return answers
