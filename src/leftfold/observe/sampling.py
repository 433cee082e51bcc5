"""Chooses the topics of a cluster that are worth a sample, and samples their newest records. Read-only."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import receipts_topic
from leftfold.errors import LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.observed import ObservedCluster, ObservedTopic
from leftfold.kafka.python_admin import IdempotentProducers
from leftfold.kafka.registry import SchemaRegistry
from leftfold.kafka.sample import Judge, Sample, take_sample
from leftfold.observe.consumers import observe_consumers
from leftfold.observe.observation import Observed
from leftfold.observe.settings import of_a_tool
from leftfold.settings import Kafka, Profile

# A sample takes about one second and at most five, and a user waits for it. So only the topics with the most records
# are sampled, because a fault costs most there.
MOST_TOPICS = 20


def worth_a_sample(cluster: ObservedCluster, names: Container[str] | None = None) -> list[ObservedTopic]:
    """The topics with the most records, of all topics or of `names`; at most MOST_TOPICS.

    Left out are empty topics, receipts, topics with a partition without a leader, and topics of a tool, which chooses
    its keys and partitions in its own way.
    """
    topics = [
        topic
        for topic in cluster.topics.values()
        if topic.records > 0
        and (names is None or topic.name in names)
        and not of_a_tool(topic)
        and not f".{topic.name}".endswith(f".{receipts_topic()}")
        and all(p.leader >= 0 for p in topic.spread)
    ]
    return sorted(topics, key=lambda topic: (-topic.records, topic.name))[:MOST_TOPICS]


def sampled(
    observed: Observed, catalog: Catalog, profile: Profile, kafka: Kafka, admin: Admin, registry: SchemaRegistry
) -> Observed:
    """Add samples of the newest records of declared topics, and what the log keeps of declared consumers.

    Each record of a sample is judged as the topic's views would do it.
    """
    declared = {profile.topic_name(n, external=t.external): t for n, t in catalog.topics.items()}
    topics = worth_a_sample(observed.cluster, declared)
    judges = {topic.name: Judge(declared[topic.name], registry.schema) for topic in topics}
    samples = take_samples(admin, kafka, topics, judges)
    consumers = observe_consumers(catalog, profile, observed.cluster, kafka, admin)
    return replace(observed, samples=samples, consumers=consumers)


def take_samples(
    admin: Admin, kafka: Kafka, topics: Iterable[ObservedTopic], judges: Mapping[str, Judge] | None = None
) -> dict[str, Sample]:
    """Sample each topic. Skip topics that were deleted meanwhile, or that Leftfold may not read."""
    judges = judges or {}
    samples = {}
    producers = IdempotentProducers(kafka)
    try:
        for topic in topics:
            try:
                sample = take_sample(kafka, admin, topic.name, topic.partitions, judges.get(topic.name))
            except LogError:
                continue
            # Ask at once, because what a leader remembers is compared with the newest records.
            idempotent = producers.last_times(topic.name, sorted(sample.newest))
            samples[topic.name] = replace(sample, idempotent=idempotent)
    finally:
        producers.close()
    return samples
