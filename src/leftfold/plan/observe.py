"""What the cluster looks like now: one pass, batched calls, read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leftfold.kafka.admin import Admin, ObservedTopic
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.settings import Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.companions import companions_of
from leftfold.spec.schema import avro_schema
from leftfold.spec.topic import Topic


@dataclass(frozen=True)
class ObservedSubject:
    compatibility: str | None
    registered: bool  # the declared schema is already there
    accepted: bool  # ... or would be taken


@dataclass(frozen=True)
class Observed:
    brokers: int
    topics: dict[str, ObservedTopic]
    subjects: dict[str, ObservedSubject]


def has_schema(topic: Topic[Any]) -> bool:
    """Whether the topic has a schema that is ours to register: JSON has none, an external topic's is its owner's."""
    return topic.format == "avro" and not topic.external


def observe(catalog: Catalog, profile: Profile, admin: Admin, registry: SchemaRegistry) -> Observed:
    names = {profile.topic_name(n, external=t.external): t for n, t in catalog.topics.items()}
    subjects = {}
    for name, topic in names.items():
        if not has_schema(topic):
            continue
        subject, schema = subject_of(name), avro_schema(topic.event)
        registered = registry.id_of(subject, schema) is not None
        subjects[subject] = ObservedSubject(
            registry.compatibility(subject), registered, registered or registry.accepts(subject, schema)
        )
    companions = [profile.topic_name(name) for name in companions_of(catalog)]
    return Observed(admin.brokers(), admin.topics([*names, *companions]), subjects)
