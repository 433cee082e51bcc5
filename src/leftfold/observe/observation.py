"""The current state of the cluster, the registry, the store and its builds. One pass, batched calls, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leftfold.declare.catalog import Catalog
from leftfold.declare.companions import companions_of
from leftfold.declare.compatibility import is_whole, verdict
from leftfold.declare.schema import avro_schema
from leftfold.declare.topic import Topic
from leftfold.fold.definition import LAYOUT
from leftfold.kafka.admin import Admin
from leftfold.kafka.observe import observe_cluster
from leftfold.kafka.observed import ObservedCluster, ObservedTopic
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.kafka.sample import Sample
from leftfold.settings import Kafka, Profile
from leftfold.store.builds import StoredBuild


@dataclass(frozen=True)
class ObservedSubject:
    """The state of a subject in the schema registry."""

    compatibility: str | None  # None if only the registry's own default holds
    registered: bool = True  # the declared schema is already there
    accepted: bool = True  # the registry would accept it under the declared rule, which a plan sets first
    versions: tuple[str, ...] = ()  # every schema ever registered, oldest first


@dataclass(frozen=True)
class ObservedBuild:
    """A build that the online store knows."""

    view: str
    id: str
    followed: bool  # readers read it
    batch: int  # the last batch that was applied
    kind: str  # features or latest
    definition: dict[str, Any]  # as JSON, from any release
    layout: int = LAYOUT  # the layout of its rows in the store


@dataclass(frozen=True)
class ObservedStore:
    """The memory of the online store, in bytes."""

    used: int
    limit: int  # 0: all memory of its machine
    policy: str  # its action at the limit, as Redis names it


@dataclass(frozen=True)
class ObservedConsumer:
    """The notes and dead letters of a declared consumer, as far as they could be read."""

    paused_at: int | None = None  # µs; None if it is not paused
    dead: tuple[int, ...] = ()  # when each open dead letter was written, µs
    is_whole: bool = True  # False if its dead letters are more than were read: some of those read may be removed
    session_ms: int | None = None  # the session timeout of its group; None if brokers do not tell it


@dataclass(frozen=True)
class Observed:
    """The observed cluster, subjects, builds, samples, store and consumers."""

    cluster: ObservedCluster
    subjects: dict[str, ObservedSubject]
    builds: tuple[ObservedBuild, ...] = ()
    samples: dict[str, Sample] = field(default_factory=dict)  # newest records, by the topic's name in the cluster
    store: ObservedStore | None = None  # None if the store does not report it
    stored: tuple[StoredBuild, ...] = ()
    consumers: dict[str, ObservedConsumer] = field(default_factory=dict)  # by declared name

    @property
    def topics(self) -> dict[str, ObservedTopic]:
        return self.cluster.topics


def has_schema(topic: Topic[Any]) -> bool:
    """Return whether Leftfold registers the topic's schema. JSON has none; an owner registers an external topic's."""
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
    """Observe the topics of a project, Leftfold's own topics for them, and the topics in `also`.

    Topics in `also` are given by their names in the cluster.
    """
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
    if rule is None and topic.compatibility == "NONE":  # Apicurio keeps no rule for such a subject
        rule = "NONE" if registry.compatibility(None) == "NONE" else None
    versions = tuple(registry.versions(subject).values())
    registered = registry.id_of(subject, schema) is not None
    if registered:
        accepted = True
    elif rule == topic.compatibility or not all(map(is_whole, versions)):
        accepted = registry.accepts(subject, schema, transitive=topic.compatibility.endswith("_TRANSITIVE"))
    else:  # the registry would answer by its current rule only
        accepted = verdict(versions, schema, topic.compatibility).compatible
    return ObservedSubject(rule, registered, accepted, versions)
