"""Looks at a topic before it is declared: its settings, its schemas, its newest records. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from leftfold.errors import LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.decode import schema_id_of
from leftfold.kafka.log_reader import Logged, LogReader
from leftfold.kafka.observe import observe_cluster
from leftfold.kafka.observed import ObservedTopic
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.settings import Kafka

# Enough to see an optional field and to distinguish a key from a coincidence. Reading them takes a second or two.
RECORDS = 500
_FEWEST_OF_A_PARTITION = 5
_MOST_BYTES = 32 * 1_024 * 1_024  # if records are large, fewer are kept


@dataclass(frozen=True)
class Looked:
    """Everything that was seen of a topic."""

    topic: ObservedTopic
    versions: dict[int, str] = field(default_factory=dict)  # schemas of the topic's subject by id, oldest first
    others: dict[int, str] = field(default_factory=dict)  # other schemas that sampled records name
    key_schema: str | None = None  # the newest schema that is registered for the keys
    records: tuple[Logged, ...] = ()


def look(name: str, kafka: Kafka, admin: Admin, registry: SchemaRegistry) -> Looked:
    topic = observe_cluster(admin, kafka, [name]).topics.get(name)
    if topic is None:
        raise LogError(
            "topic-missing",
            f"topic {name} does not exist",
            why="adopt declares a topic that is there, under the name that it has in the cluster",
            fix="name an existing topic",
        )
    records = _newest(topic, kafka)
    versions = registry.versions(subject_of(name))
    named = {schema_id_of(record.value) for record in records if record.value is not None}
    others = {id_: registry.schema(id_) for id_ in sorted(n for n in named if n is not None) if id_ not in versions}
    key_schema = next(reversed(registry.versions(f"{name}-key").values()), None)
    return Looked(topic, versions, {id_: s for id_, s in others.items() if s is not None}, key_schema, records)


def _newest(topic: ObservedTopic, kafka: Kafka) -> tuple[Logged, ...]:
    """The newest records, about the same number from every partition. Gaps in the offsets make it fewer."""
    each = max(_FEWEST_OF_A_PARTITION, RECORDS // topic.partitions)
    ranges = {number: (max(p.start, p.end - each), p.end) for number, p in enumerate(topic.spread)}
    reader = LogReader(kafka)
    records: list[Logged] = []
    size = 0
    try:
        for record in reader.read(topic.name, ranges):
            records.append(record)
            size += len(record.key or b"") + len(record.value or b"")
            if size > _MOST_BYTES:
                break
    finally:
        reader.close()
    return tuple(records)
