"""Hazards of replicas: records that are lost or unavailable when a broker, its disk or its rack is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from leftfold.hazards.hazard import Facts, Hazard
from leftfold.kafka.observed import ObservedCluster, ObservedTopic
from leftfold.observe.settings import by_owner, number, taken_from_brokers
from leftfold.units import counted, listed

# Three replicas, of which two must be in sync, are the fewest that survive a broker's failure while another is down,
# for example for maintenance.
COPIES = 3
_IN_SYNC = 2
_MIN_IN_SYNC = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"


def broker_ids(cluster: ObservedCluster) -> set[int]:
    """The ids of all brokers, including those that are down if they hold a replica of something."""
    holders = {id for topic in cluster.topics.values() for p in topic.spread for id in p.replicas}
    return holders | {broker.id for broker in cluster.brokers}


def few_brokers(facts: Facts) -> Iterator[Hazard]:
    """Yield one hazard for the cluster instead of one for each topic.

    Yield none if the profile's replication says that one or two replicas are meant.
    """
    brokers, capped = len(broker_ids(facts.observed.cluster)), facts.profile.replication
    if brokers >= COPIES or (capped is not None and capped <= brokers):
        return
    most = "one copy" if brokers == 1 else "two copies"
    yield Hazard(
        "few-brokers",
        "danger",
        "cluster",
        f"it has {counted(brokers, 'broker')}, so a topic can have {most} at most",
        "With one copy a lost disk loses records. With two, a topic either stops while a broker is down or keeps new "
        "records only once.",
        "run three brokers or more; for a laptop set replication = 1 in its profile",
    )


def replication_low(facts: Facts) -> Iterator[Hazard]:
    cluster = facts.observed.cluster
    brokers = len(broker_ids(cluster))
    if brokers < COPIES:
        return
    for topic in cluster.topics.values():
        if topic.replication >= COPIES:
            continue
        few = sum(len(p.replicas) < COPIES for p in topic.spread)
        of = "" if few == topic.partitions else f" of {few:,} of {topic.partitions:,} partitions"
        copies = counted(topic.replication, "copy", "copies")
        stops = topic.replication == 2 and (number(topic.configs, _MIN_IN_SYNC) or 1) >= 2
        if topic.replication == 1:
            why = "A broker that is down stops its partitions; a disk that is lost takes their records with it."
        elif stops:
            why = "With min.insync.replicas=2, writing with acks=all stops as soon as one broker is down."
        else:
            why = "While one broker is down, new records exist once: if the other is lost too, so are they."
        yield Hazard(
            "replication-low",
            "warning" if stops else "danger",
            f"topic {topic.name}",
            f"it has {copies}{of}, on a cluster of {brokers} brokers",
            why,
            "give it three copies with kafka-reassign-partitions, then set min.insync.replicas=2",
        )


def min_in_sync_low(facts: Facts) -> Iterator[Hazard]:
    """Judge only topics with three replicas or more. With fewer, the number of replicas is the cause."""
    low = [t for t in facts.observed.topics.values() if t.replication >= COPIES and _least(t) < _IN_SYNC]
    why = (
        "A producer with acks=all is told that a record is safe when its leader alone has it. If that broker is lost "
        "before the others copy it, so is the record."
    )
    own, inherited = by_owner(low, _MIN_IN_SYNC)
    for topic in own:
        yield Hazard(
            "min-in-sync-low",
            "danger",
            f"topic {topic.name}",
            f"it has {topic.replication} copies and min.insync.replicas={_least(topic)}",
            why,
            "set min.insync.replicas=2 on the topic",
        )
    if inherited:
        yield Hazard(
            "min-in-sync-low",
            "danger",
            "cluster",
            taken_from_brokers(inherited, _MIN_IN_SYNC),
            why,
            "set min.insync.replicas=2 as the brokers' default, or on each topic",
        )


def min_in_sync_tight(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.observed.topics.values():
        if topic.replication >= COPIES and _least(topic) == topic.replication:
            yield Hazard(
                "min-in-sync-tight",
                "warning",
                f"topic {topic.name}",
                f"it has {topic.replication} copies and min.insync.replicas={topic.replication}",
                "As soon as any broker with a copy is down, producers with acks=all cannot write; a rolling restart is "
                "enough.",
                f"set min.insync.replicas={topic.replication - 1}",
            )


def min_in_sync_above(facts: Facts) -> Iterator[Hazard]:
    for topic in facts.observed.topics.values():
        if _least(topic) > topic.replication:
            copies = counted(topic.replication, "copy", "copies")
            yield Hazard(
                "min-in-sync-above",
                "danger",
                f"topic {topic.name}",
                f"it has {copies} and min.insync.replicas={_least(topic)}",
                "So many copies can never be in sync. Every record of a producer with acks=all is refused.",
                "set min.insync.replicas to one less than the copies, or give it more copies",
            )


def unclean_election(facts: Facts) -> Iterator[Hazard]:
    """Judge only topics with more than one replica, because a single replica leaves no other one to elect."""
    unclean = [t for t in facts.observed.topics.values() if t.replication > 1 and t.configs.get(_UNCLEAN) == "true"]
    why = (
        "If all copies that are in sync are down, one that lacks the newest records becomes the leader. Those records "
        "are gone, although their producers were told that they are safe."
    )
    own, inherited = by_owner(unclean, _UNCLEAN)
    for topic in own:
        what = "it has unclean.leader.election.enable=true"
        fix = "set unclean.leader.election.enable=false on the topic"
        yield Hazard("unclean-election", "danger", f"topic {topic.name}", what, why, fix)
    if inherited:
        fix = "set unclean.leader.election.enable=false on the brokers"
        yield Hazard("unclean-election", "danger", "cluster", taken_from_brokers(inherited, _UNCLEAN), why, fix)


def no_leader(facts: Facts) -> Iterator[Hazard]:
    alive = {broker.id for broker in facts.observed.cluster.brokers}
    for topic in facts.observed.topics.values():
        without = [n for n, p in enumerate(topic.spread) if p.leader < 0]
        if not without:
            continue
        needed = sorted({id for n in without for id in topic.spread[n].replicas} - alive)
        start = f"start {' and '.join(f'broker {id}' for id in needed)} again" if needed else "see the brokers' logs"
        yield Hazard(
            "no-leader",
            "danger",
            f"topic {topic.name}",
            f"{len(without):,} of {topic.partitions:,} partitions had no leader: {listed([str(n) for n in without])}",
            "Nobody can read or write them: no broker that has all of their records is there.",
            f"{start}; an unclean election would lose records",
        )


def under_replicated(facts: Facts) -> Iterator[Hazard]:
    """Yield one hazard for each broker, because it is the one cause: if down, it is behind in all its partitions."""
    cluster = facts.observed.cluster
    alive = {broker.id for broker in cluster.brokers}
    missing: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    stopped: dict[int, int] = defaultdict(int)
    for topic in cluster.topics.values():
        least = _least(topic)
        for partition in topic.spread:
            for id in set(partition.replicas) - set(partition.in_sync):
                missing[id][topic.name] += 1
                stopped[id] += partition.leader >= 0 and len(partition.in_sync) < least <= len(partition.replicas)
    for id, topics in sorted(missing.items()):
        partitions = counted(sum(topics.values()), "partition")
        behind = "was behind in" if id in alive else "was down, and has a copy of"
        refused = f"; {stopped[id]:,} of them are below min.insync.replicas" if stopped[id] else ""
        yield Hazard(
            "under-replicated",
            "warning",
            f"broker {id}",
            f"it {behind} {partitions} of {counted(len(topics), 'topic')} ({listed(sorted(topics))}){refused}",
            "Each has a copy fewer than it should have, and below min.insync.replicas it refuses records sent with "
            "acks=all. After a restart or while partitions are moved that passes by itself.",
            "look again in a few minutes; if it stays, look at that broker's log, disk and network",
        )


def one_rack(facts: Facts) -> Iterator[Hazard]:
    """Judge only partitions whose brokers all say which rack they are in."""
    cluster = facts.observed.cluster
    racks = {broker.id: broker.rack for broker in cluster.brokers}
    known = {rack for rack in racks.values() if rack is not None}
    if len(known) < 2:
        return
    for topic in cluster.topics.values():
        places = [{racks.get(id) for id in p.replicas} for p in topic.spread if len(p.replicas) > 1]
        together = sum(len(place) == 1 and None not in place for place in places)
        if together:
            yield Hazard(
                "one-rack",
                "warning",
                f"topic {topic.name}",
                f"{together:,} of {topic.partitions:,} partitions have all copies in one rack, of {len(known)} racks",
                "If that rack or zone fails, they stop, however many copies they have.",
                "spread the copies over racks with kafka-reassign-partitions --generate",
            )


def _least(topic: ObservedTopic) -> int:
    """The topic's min.insync.replicas. If the brokers hide it, the right value, so that no hazard is reported."""
    configured = number(topic.configs, _MIN_IN_SYNC)
    return max(1, topic.replication - 1) if configured is None else configured


RULES = (
    *(few_brokers, replication_low, min_in_sync_low, min_in_sync_tight, min_in_sync_above),
    *(unclean_election, no_leader, under_replicated, one_rack),
)
