"""Hazards of consumer groups and of unread topics: groups that lag, stall or lost offsets, and members that are idle.

A group is known to move or stall only if it was observed a second time. A reader that keeps its offsets outside Kafka,
as Spark does, is not seen at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from leftfold.declare.companions import redrive_topic, rejects_topic
from leftfold.fold.durations import SECOND
from leftfold.hazards.hazard import Facts, Hazard
from leftfold.kafka.observed import MARKER, ObservedCluster
from leftfold.observe.settings import is_compacted, of_a_tool
from leftfold.units import counted, listed, rough

# Kafka Streams commits every 30 s, a sink connector every 60 s. A record that has waited for twice the longer of these
# is not just uncommitted.
_UNCOMMITTED = 120 * SECOND


def group_without_members(facts: Facts) -> Iterator[Hazard]:
    cluster = facts.observed.cluster
    for group in cluster.groups.values():
        behind = {name: sum(places.values()) for name, places in cluster.unread(group).items()}
        if group.members or not behind:
            continue
        topics = sorted(behind, key=lambda name: (-behind[name], name))
        yield Hazard(
            "group-without-members",
            "warning",
            f"group {group.name}",
            f"Kafka sees no member of it, and it is {counted(sum(behind.values()), 'offset')} behind in "
            f"{listed(topics)}",
            "It is down, or given up, or runs only now and then. A reader that takes partitions without joining its "
            "group, as Flink does, looks the same while it runs.",
            f"start it again; if nobody needs it, kafka-consumer-groups --delete --group {group.name}",
        )


def group_stalled(facts: Facts) -> Iterator[Hazard]:
    """Yield a warning only: nothing is lost until retention overtakes the group. Then position-lost is the danger."""
    cluster = facts.observed.cluster
    for group in cluster.groups.values():
        waiting = {
            (name, number): first
            for name, places in group.still.items()
            for number, first in places.items()
            if cluster.seen_at - first > _UNCOMMITTED
        }
        if not waiting:
            continue
        unread = cluster.unread(group)
        offsets = sum(unread.get(name, {}).get(number, 0) for name, number in waiting)
        topics = sorted({name for name, _ in waiting})
        longest = rough(cluster.seen_at - min(waiting.values()))
        yield Hazard(
            "group-stalled",
            "warning",
            f"group {group.name}",
            f"it has {counted(group.members, 'member')}, is {counted(offsets, 'offset')} behind in "
            f"{counted(len(waiting), 'partition')} of {listed(topics)}, and committed nothing there in "
            f"{group.watched_s} s; the first record that waits was logged {longest} ago",
            "A member hangs, or fails at the same record again and again, or takes longer between two commits (Kafka "
            "Streams 30 s, a sink connector 60 s). Nothing is lost until retention overtakes the group.",
            f"look again in a minute (kafka-consumer-groups --describe --group {group.name}); if it still stands, look "
            "at the logs of its members",
        )


def position_lost(facts: Facts) -> Iterator[Hazard]:
    cluster = facts.observed.cluster
    for group in cluster.groups.values():
        lost: dict[str, int] = {}
        for name, _, at, partition in cluster.places(group):
            if (gone := partition.start - at) > MARKER:
                lost[name] = lost.get(name, 0) + gone
        if lost:
            yield Hazard(
                "position-lost",
                "danger",
                f"group {group.name}",
                f"its position is {counted(sum(lost.values()), 'offset')} before the first that is left in "
                f"{listed(sorted(lost))}",
                "Records were deleted before the group read them, by retention or by a person. It will go on where its "
                "auto.offset.reset says, without an error.",
                "find out what it missed and read that from an archive; then keep the topic longer than the group's "
                "longest outage",
            )


def idle_members(facts: Facts) -> Iterator[Hazard]:
    """Judge a group only while it is stable. Count the partitions of every topic that it owns or has offsets in.

    Declared consumers are left out: how they share partitions is known (consumers-beyond-partitions).
    """
    cluster = facts.observed.cluster
    declared = {facts.group(name) for name in facts.catalog.consumers}
    for group in cluster.groups.values():
        if group.name in declared:
            continue
        topics = sorted({*group.owners, *group.positions} & set(cluster.topics))
        partitions = sum(cluster.topics[name].partitions for name in topics)
        if group.state == "STABLE" and group.members > partitions:
            yield Hazard(
                "idle-members",
                "warning",
                f"group {group.name}",
                f"it has {counted(group.members, 'member')} for {counted(partitions, 'partition')} of {listed(topics)}",
                "A partition is read by one member, so the others wait, unless they read topics that were not looked "
                "at. They make it no faster.",
                f"run {counted(partitions, 'member')} at most, or make a topic with more partitions",
            )


def unread_topic(facts: Facts) -> Iterator[Hazard]:
    """Skip compacted topics: whoever reads a table reads it all at every start, without a consumer group."""
    cluster = facts.observed.cluster
    read = {name for group in cluster.groups.values() for name in (*group.positions, *group.owners)}
    read |= _by_leftfold(cluster)
    for topic in facts.undeclared:
        if topic.name in read or topic.records == 0 or is_compacted(topic) or of_a_tool(topic):
            continue
        yield Hazard(
            "unread-topic",
            "warning",
            f"topic {topic.name}",
            f"it holds {counted(topic.records, 'offset')}, and no group that can be seen has a position in it",
            "What nobody reads costs disk and hides a reader that is missing. Readers that keep their positions "
            "elsewhere, as Spark does, are not seen here.",
            "ask its producers who it is for; if nobody, stop them and delete the topic",
        )


def _by_leftfold(cluster: ObservedCluster) -> set[str]:
    """The topics that Leftfold reads, for any project.

    A topic with a rejects topic is read by an intake. An external topic has no namespace before its name, so the name
    without its first part counts too.
    """
    suffix = rejects_topic("")
    bases = [name.removesuffix(suffix) for name in cluster.topics if name.endswith(suffix)]
    return {name for base in bases for name in (base, base.partition(".")[2], redrive_topic(base))}


RULES = (group_without_members, group_stalled, position_lost, idle_members, unread_topic)
