"""Which topics of a cluster are worth a look at their newest records, and that look. Read-only."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from leftfold.errors import LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.idempotent import IdempotentProducers
from leftfold.kafka.observed import ObservedCluster, ObservedTopic
from leftfold.kafka.registry import SchemaRegistry
from leftfold.kafka.sample import Judge, Sample, take_sample
from leftfold.plan.hazards.settings_in_force import of_a_tool
from leftfold.plan.observe import Observed
from leftfold.settings import Kafka, Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.companions import receipts_topic

# A topic takes about a second and five at most, and a person waits. Where most records are, a fault costs most.
MOST_TOPICS = 20


def worth_a_sample(cluster: ObservedCluster, names: Container[str] | None = None) -> list[ObservedTopic]:
    """Of all or of `names` those with the most records; not those of a tool, whose keys and partitions are its own."""
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
    """With the newest records of declared topics, each judged as its views would."""
    declared = {profile.topic_name(n, external=t.external): t for n, t in catalog.topics.items()}
    topics = worth_a_sample(observed.cluster, declared)
    judges = {topic.name: Judge(declared[topic.name], registry.schema) for topic in topics}
    return replace(observed, samples=take_samples(admin, kafka, topics, judges))


def take_samples(
    admin: Admin, kafka: Kafka, topics: Iterable[ObservedTopic], judges: Mapping[str, Judge] | None = None
) -> dict[str, Sample]:
    """Without topics that were deleted meanwhile, or that are not for us to read."""
    judges = judges or {}
    samples = {}
    producers = IdempotentProducers(kafka)
    try:
        for topic in topics:
            try:
                sample = take_sample(kafka, admin, topic.name, topic.partitions, judges.get(topic.name))
            except LogError:
                continue
            # At once: what a leader remembers is compared with the newest records.
            idempotent = producers.last_times(topic.name, sorted(sample.newest))
            samples[topic.name] = replace(sample, idempotent=idempotent)
    finally:
        producers.close()
    return samples
