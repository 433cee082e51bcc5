"""Hazards of brokers: their load, how it is spread over them, and broker defaults that lose something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from leftfold.fold.durations import SECOND, text
from leftfold.hazards.cluster_copies import COPIES, broker_ids
from leftfold.hazards.hazard import Facts, Hazard
from leftfold.observe.settings import least
from leftfold.units import counted, percent, size

# Kafka's makers advise these limits and do not enforce them. Every replica costs a broker files, fetches, and work at
# a restart.
PARTITIONS_OF_A_BROKER = 4_000
PARTITIONS_OF_A_CLUSTER = 200_000
# This share stays free for what a rebalance, a burst or a reader's catch-up adds before somebody has bought a disk.
_FREE = 0.15
# A broker with half more than its share does work that the other brokers could do. With fewer than fifty leaders per
# broker, chance alone causes that, because Kafka places a topic of one partition anywhere.
_SKEWED = 1.5
_LEADERS_TO_JUDGE = 50
# The settings by which Kafka makes its own topics, with the least values that survive the loss of a broker while
# another one is down.
_OWN_TOPICS = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


def partitions_per_broker(facts: Facts) -> Iterator[Hazard]:
    """Yield one hazard for the whole cluster: if one broker has too many partitions, the others mostly do too."""
    held = Counter(id for topic in facts.observed.topics.values() for p in topic.spread for id in p.replicas)
    over = {id: n for id, n in held.items() if n > PARTITIONS_OF_A_BROKER}
    if not over:
        return
    id, most = max(over.items(), key=lambda item: item[1])
    brokers = len(broker_ids(facts.observed.cluster))
    yield Hazard(
        "partitions-per-broker",
        "warning",
        "cluster",
        f"{len(over):,} of {counted(brokers, 'broker')} hold more than {PARTITIONS_OF_A_BROKER:,} partitions, copies "
        f"included; broker {id} holds {most:,}",
        f"About {PARTITIONS_OF_A_BROKER:,} are what a broker carries well. With more, a restart and the election of "
        "new leaders take minutes, and every partition costs open files and memory.",
        f"add brokers ({_needed(sum(held.values()))} carry these) and move partitions there, or delete topics",
    )


def _needed(copies: int) -> str:
    return f"{-(-copies // PARTITIONS_OF_A_BROKER):,}"


def partitions_per_cluster(facts: Facts) -> Iterator[Hazard]:
    partitions = sum(topic.partitions for topic in facts.observed.topics.values())
    if partitions > PARTITIONS_OF_A_CLUSTER:
        yield Hazard(
            "partitions-per-cluster",
            "warning",
            "cluster",
            f"it has {counted(partitions, 'partition')}, copies not counted",
            f"About {PARTITIONS_OF_A_CLUSTER:,} are advised for a cluster: its controller keeps all of them in memory, "
            "and a new one must load them before it can do anything.",
            "delete topics that nobody needs, make new ones with fewer partitions, or divide the cluster",
        )


def leaders_skewed(facts: Facts) -> Iterator[Hazard]:
    cluster = facts.observed.cluster
    leaders = Counter(p.leader for topic in cluster.topics.values() for p in topic.spread if p.leader >= 0)
    if not cluster.brokers or leaders.total() < _LEADERS_TO_JUDGE * len(cluster.brokers):
        return
    share = leaders.total() / len(cluster.brokers)
    id, most = leaders.most_common(1)[0]
    if most < _SKEWED * share:
        return
    chosen = sum(p.replicas[0] == id for topic in cluster.topics.values() for p in topic.spread)
    elect = chosen < _SKEWED * share
    yield Hazard(
        "leaders-skewed",
        "warning",
        f"broker {id}",
        f"it leads {most:,} of {leaders.total():,} partitions; an even share is {share:,.0f}",
        "All writing and most reading of a partition goes to its leader, so this broker does more than the others."
        + (" Leaders are not where Kafka would put them: some broker was away." if elect else ""),
        "kafka-leader-election --election-type preferred --all-topic-partitions"
        if elect
        else "kafka-reassign-partitions: make other brokers the first copy of some of its partitions",
    )


def disk_low(facts: Facts) -> Iterator[Hazard]:
    for broker in facts.observed.cluster.brokers:
        for disk in broker.disks:
            if disk.total > 0 and disk.usable < _FREE * disk.total:
                yield Hazard(
                    "disk-low",
                    "warning",
                    f"broker {broker.id}",
                    f"its disk at {disk.path} has {percent(disk.usable / disk.total)} free "
                    f"({size(disk.usable)} of {size(disk.total)})",
                    "A broker takes a disk that is full out of use, and stops if it has no other. Retention deletes "
                    "only whole segments that are old enough, so it does not help in a hurry.",
                    "enlarge the disk, move partitions away, or shorten the retention of the largest topics",
                )


def internal_replication(facts: Facts) -> Iterator[Hazard]:
    """Judge only the brokers' defaults. Internal topics that already exist are not checked, and the text says so."""
    cluster = facts.observed.cluster
    if len(broker_ids(cluster)) < COPIES:
        return
    settings = {setting: least(cluster, setting) for setting in _OWN_TOPICS}
    low = [f"{k}={v}" for k, v in settings.items() if v is not None and v < _OWN_TOPICS[k]]
    wanted = ", ".join(f"{setting}={least_}" for setting, least_ in _OWN_TOPICS.items())
    if low:
        yield Hazard(
            "internal-replication",
            "danger",
            "cluster",
            f"brokers have {', '.join(low)}",
            "When Kafka first needs them, it creates __consumer_offsets (the positions of groups) and "
            "__transaction_state with these settings; the plan does not look at the topics themselves. With too few "
            "replicas, the loss of 1 broker loses positions or open transactions.",
            f"set {wanted} in server.properties of every broker, and restart them one by one; if kafka-topics "
            "--describe --topic __consumer_offsets (or __transaction_state) shows fewer replicas, add some with "
            "kafka-reassign-partitions",
        )


def auto_create(facts: Facts) -> Iterator[Hazard]:
    cluster = facts.observed.cluster
    on = [broker for broker in cluster.brokers if broker.configs.get("auto.create.topics.enable") == "true"]
    if not on:
        return
    partitions, copies = least(cluster, "num.partitions"), least(cluster, "default.replication.factor")
    known = partitions is not None and copies is not None
    how = f"; they get num.partitions={partitions} and default.replication.factor={copies}" if known else ""
    yield Hazard(
        "auto-create",
        "warning",
        "cluster",
        f"topics are made by whoever first names them (auto.create.topics.enable=true){how}",
        "A misspelt name becomes a topic, and the records sent there are read by nobody. A deleted topic comes back, "
        "with other settings.",
        "set auto.create.topics.enable=false on every broker, and create topics on purpose",
    )


def positions_below_downtime(facts: Facts) -> Iterator[Hazard]:
    minutes = least(facts.observed.cluster, "offsets.retention.minutes")
    if minutes is not None and minutes * 60 * SECOND < facts.downtime:
        yield Hazard(
            "positions-below-downtime",
            "danger",
            "cluster",
            f"positions of a group without members are kept {text(minutes * 60 * SECOND)} "
            f"(offsets.retention.minutes={minutes}); an outage of {text(facts.downtime)} is to be survived",
            "A group that is down for longer has forgotten where it was. By its auto.offset.reset it then skips what "
            "came meanwhile, or reads everything again.",
            f"set offsets.retention.minutes to {-(-facts.downtime // (60 * SECOND))} or more on every broker",
        )


RULES = (
    *(partitions_per_broker, partitions_per_cluster, leaders_skewed, disk_low),
    *(internal_replication, auto_create, positions_below_downtime),
)
