"""Hazards of declared consumers: their members, deliveries, dead letters, pauses, and other groups on their topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.declare.companions import dead_topic
from leftfold.declare.consumer import Consumer
from leftfold.declare.guarantees import useful_members
from leftfold.declare.topic import Topic
from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.hazards.retention import DAY, FOR_EVER, foreign, retention, retention_of
from leftfold.observe.settings import number
from leftfold.settings import group_id
from leftfold.units import counted, listed, rough, spoken

CODES = (
    "at-most-once-beside-exactly-once",
    "consumer-paused-long",
    "consumers-beyond-partitions",
    "dead-below-retention",
    "dead-letters-open",
    "failover-slow",
    "group-not-declared",
)

# Three heartbeats of 5 s, Kafka's default. With less, a pause of a process counts as its death.
_SESSION_MS = 15_000
# A dead letter waits for a person. After a week it waits for nobody.
_OPEN = 7 * DAY
_PAUSED = DAY


def _beyond_partitions(facts: Facts) -> Iterator[Hazard]:
    """Judge a group only while it is stable: members that join or leave have no partition for a moment."""
    for consumer in facts.catalog.consumers.values():
        group = facts.observed.cluster.groups.get(facts.group(consumer.name))
        topics = [(topic, facts.found(topic)) for topic in consumer.topics]
        useful = useful_members([topic.partitions if found is None else found.partitions for topic, found in topics])
        if group is None or group.state != "STABLE" or group.members <= useful:
            continue
        names = [facts.name(topic) for topic in consumer.topics]
        largest = names[0] if len(names) == 1 else f"the largest of {listed(names)}"
        yield Hazard(
            "consumers-beyond-partitions",
            "warning",
            f"consumer {consumer.name}",
            f"has {counted(group.members, 'member')} for {counted(useful, 'partition')} of {largest}; "
            f"{counted(group.idle, 'member is idle', 'members are idle')}",
            "A partition is read by one member of a group. Idle members make nothing faster; each only takes over when "
            "another one dies.",
            f"run {counted(useful, 'process', 'processes')} at most; to handle more at once, declare a larger "
            "parallel=, or a new topic with more partitions",
            consumer.source,
        )


def _failover(facts: Facts) -> Iterator[Hazard]:
    """Judge the session of each group. Where it is not known, it is taken to be that of the brokers."""
    setting, brokers = "group.consumer.session.timeout.ms", facts.observed.cluster.brokers
    usual = max((ms for broker in brokers if (ms := number(broker.configs, setting)) is not None), default=0)
    observed = facts.observed.consumers
    sessions = {name: observed[name].session_ms if name in observed else None for name in facts.catalog.consumers}
    slow = {name: ms for name, of in sessions.items() if (ms := usual if of is None else of) > _SESSION_MS}
    if not slow:
        return
    yield Hazard(
        "failover-slow",
        "warning",
        "cluster",
        f"a member that dies is noticed after {spoken(max(slow.values()) * 1_000)} ({setting}): of "
        f"{listed(list(slow))}",
        "Nobody reads the partitions of a process that died until its session ends. A process that is stopped leaves "
        "its group at once.",
        f"set group.consumer.min.session.timeout.ms={_SESSION_MS} and "
        f"group.consumer.session.timeout.ms={_SESSION_MS} on every broker; the first allows the second",
    )


def _lost_beside(facts: Facts) -> Iterator[Hazard]:
    exactly = {
        topic.name: consumer.name
        for consumer in facts.catalog.consumers.values()
        for topic in consumer.topics
        if consumer.delivery == "exactly_once"
    }
    for consumer in facts.catalog.consumers.values():
        shared = [topic for topic in consumer.topics if topic.name in exactly]
        if consumer.delivery != "at_most_once" or not shared:
            continue
        topic = shared[0]
        yield Hazard(
            "at-most-once-beside-exactly-once",
            "note",
            f"consumer {consumer.name}",
            f"reads {topic.name} at most once, and {exactly[topic.name]} reads it exactly once",
            f"A crash loses up to {counted(consumer.in_flight, 'record')} of each process here, and of none there. "
            "What the two make of the topic then differs, and nothing tells by how much.",
            f'declare delivery="at_least_once" for {consumer.name} with record.id as idempotency key, unless its '
            "effects may be missing",
            consumer.source,
        )


def _letters_open(facts: Facts) -> Iterator[Hazard]:
    now = facts.observed.cluster.seen_at
    for name, seen in facts.observed.consumers.items():
        old = [since for since in seen.dead if now - since > _OPEN]
        if not old:
            continue
        consumer = facts.catalog.consumer(name)
        looked = "" if seen.is_whole else "; only the first were looked at, and some may be removed since"
        yield Hazard(
            "dead-letters-open",
            "warning",
            f"consumer {name}",
            f"has {counted(len(old), 'dead letter')} of more than {spoken(_OPEN)}, the oldest {rough(now - min(old))} "
            f"old{looked}",
            "What these records stand for has not happened. Their topic forgets them after its retention, and then "
            "nobody can handle them any more.",
            f"leftfold dead list {name}; then correct the handler and leftfold dead redrive {name} --all, or leftfold "
            f"dead drop {name} POSITION",
            consumer.source,
        )


def _below_retention(facts: Facts) -> Iterator[Hazard]:
    """Compare with topics that have a retention. In a compacted topic a record stays until its key has a newer one."""
    for consumer in facts.catalog.consumers.values():
        name = facts.profile.topic_name(dead_topic(consumer.name))
        found = facts.observed.topics.get(name)
        keeps = None if found is None else retention(found)
        if keeps is None:
            continue
        longest, topic = max(((_kept(facts, topic), topic) for topic in consumer.topics), key=lambda pair: pair[0])
        if keeps >= longest:
            continue
        until = "for ever" if longest == FOR_EVER else f"for {spoken(longest)}"
        wanted = -1 if longest == FOR_EVER else longest // 1_000
        yield Hazard(
            "dead-below-retention",
            "warning",
            f"consumer {consumer.name}",
            f"{name} keeps dead letters for {spoken(keeps)}, and {facts.name(topic)} keeps records {until}",
            "A dead letter is forgotten while its record is still in the log: it can no longer be listed or re-driven, "
            "and only who knows its position finds it.",
            f"ask the owner of {name} for retention.ms={wanted} and delete.retention.ms as long"
            if facts.profile.topics == "checked"
            else f'declare retention="{longest // DAY}d" for {topic.name}, then leftfold apply: {name} is kept as long'
            if topic.external
            else "leftfold apply sets it",
            consumer.source,
        )


def _kept(facts: Facts, topic: Topic[Any]) -> int:
    """The µs for which the topic keeps a record; 0 if that is not known, or if the topic is compacted."""
    if topic.compacted or (foreign(facts, topic) and facts.found(topic) is None):
        return 0
    keeps = retention_of(facts, topic)
    return FOR_EVER if keeps is None else keeps


def _paused(facts: Facts) -> Iterator[Hazard]:
    now = facts.observed.cluster.seen_at
    for name, seen in facts.observed.consumers.items():
        if seen.paused_at is None or now - seen.paused_at <= _PAUSED:
            continue
        yield Hazard(
            "consumer-paused-long",
            "warning",
            f"consumer {name}",
            f"has been paused for {rough(now - seen.paused_at)}",
            "Its members run, and look well, and handle nothing. Records that retention deletes meanwhile are never "
            "handled.",
            f"leftfold resume {name}, or stop its processes and take the declaration out",
            facts.catalog.consumer(name).source,
        )


def _not_declared(facts: Facts) -> Iterator[Hazard]:
    """Name groups of others on topics of this project. A group of Leftfold has a name of this namespace."""
    ours = f"{group_id(facts.profile.namespace)}."
    groups = [group for group in facts.observed.cluster.groups.values() if not group.name.startswith(ours)]
    writers = {c.to.name: c for c in facts.catalog.consumers.values() if c.to is not None}
    for topic in facts.catalog.topics.values():
        name = facts.name(topic)
        readers = sorted(group.name for group in groups if name in group.positions or name in group.owners)
        if topic.external or not readers:
            continue
        yield Hazard(
            "group-not-declared",
            "note",
            f"topic {name}",
            f"{counted(len(readers), 'group')} that this project does not declare "
            f"{'reads' if len(readers) == 1 else 'read'} it: {listed(readers)}",
            _told(writers.get(topic.name)),
            "nothing, if they are known; ask them before the topic changes or goes",
            topic.source,
        )


def _told(writer: Consumer[..., Any] | None) -> str:
    if writer is None:
        return "They depend on its records and their schema, and nothing here tells what a change does to them."
    return (
        f"{writer.name} writes it exactly once, which holds only for readers with isolation.level=read_committed; "
        "others also get what a crash has taken back. No broker tells how a group reads, and Java's clients take "
        "uncommitted records by default."
    )


RULES: tuple[Rule, ...] = (
    *(_beyond_partitions, _failover, _lost_beside, _letters_open, _below_retention),
    *(_paused, _not_declared),
)
