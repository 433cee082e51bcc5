"""What there is now: the cluster, the registry, the store and its builds. One pass, batched calls, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leftfold.fold.definition import LAYOUT
from leftfold.kafka.admin import Admin
from leftfold.kafka.observe import observe_cluster
from leftfold.kafka.observed import ObservedCluster, ObservedTopic
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.kafka.sample import Sample
from leftfold.plan.compatibility import is_whole, verdict
from leftfold.settings import Kafka, Profile
from leftfold.spec.catalog import Catalog
from leftfold.spec.companions import companions_of
from leftfold.spec.schema import avro_schema
from leftfold.spec.topic import Topic


@dataclass(frozen=True)
class ObservedSubject:
    compatibility: str | None  # None if only the registry's own default holds
    registered: bool = True  # the declared schema is already there
    accepted: bool = True  # ... or would be taken under the declared rule, which a plan sets before it registers
    versions: tuple[str, ...] = ()  # every schema ever registered, oldest first


@dataclass(frozen=True)
class ObservedBuild:
    """A build that the online store knows."""

    view: str
    id: str
    followed: bool  # readers read it
    batch: int  # the last one applied
    kind: str  # features or latest
    definition: dict[str, Any]  # as JSON, of whatever release
    layout: int = LAYOUT  # of its rows in the store


@dataclass(frozen=True)
class StoredBuild:
    """What the online store has something of, whether it can be read or not."""

    view: str
    id: str
    role: str  # followed, staged, kept, running, left or other


@dataclass(frozen=True)
class ObservedStore:
    """The memory of the online store, in bytes."""

    used: int
    limit: int  # 0: as much as its machine has
    policy: str  # what it does at the limit, as Redis names it


@dataclass(frozen=True)
class Observed:
    cluster: ObservedCluster
    subjects: dict[str, ObservedSubject]
    builds: tuple[ObservedBuild, ...] = ()
    samples: dict[str, Sample] = field(default_factory=dict)  # of newest records, by the cluster's name of the topic
    store: ObservedStore | None = None  # None if it does not tell
    stored: tuple[StoredBuild, ...] = ()

    @property
    def topics(self) -> dict[str, ObservedTopic]:
        return self.cluster.topics


def has_schema(topic: Topic[Any]) -> bool:
    """Whether the topic has a schema that is ours to register: JSON has none, an external topic's is its owner's."""
    return topic.format == "avro" and not topic.external


def observe(
    catalog: Catalog,
    profile: Profile,
    kafka: Kafka,
    admin: Admin,
    registry: SchemaRegistry,
    builds: Sequence[ObservedBuild] = (),
    also: Sequence[str] = (),
    store: ObservedStore | None = None,
    stored: Sequence[StoredBuild] = (),
) -> Observed:
    """The topics of a project, those that Leftfold keeps beside them, and `also`, as the cluster names them."""
    names = {profile.topic_name(n, external=t.external): t for n, t in catalog.topics.items()}
    subjects = {}
    for name, topic in names.items():
        if not has_schema(topic):
            continue
        subject = subject_of(name)
        subjects[subject] = _subject(topic, subject, registry)
    companions = [profile.topic_name(name) for name in companions_of(catalog)]
    cluster = observe_cluster(admin, kafka, [*names, *companions, *also])
    return Observed(cluster, subjects, tuple(builds), store=store, stored=tuple(stored))


def _subject(topic: Topic[Any], subject: str, registry: SchemaRegistry) -> ObservedSubject:
    schema, rule = avro_schema(topic.event), registry.compatibility(subject)
    if rule is None and topic.compatibility == "NONE":  # to Apicurio that is no rule: it keeps none for the subject
        rule = "NONE" if registry.compatibility(None) == "NONE" else None
    versions = tuple(registry.versions(subject).values())
    registered = registry.id_of(subject, schema) is not None
    if registered:
        accepted = True
    elif rule == topic.compatibility or not all(map(is_whole, versions)):
        accepted = registry.accepts(subject, schema, transitive=topic.compatibility.endswith("_TRANSITIVE"))
    else:  # a registry answers only by the rule that it has now
        accepted = verdict(versions, schema, topic.compatibility).compatible
    return ObservedSubject(rule, registered, accepted, versions)
