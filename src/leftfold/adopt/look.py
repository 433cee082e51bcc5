"""What there is to know of a topic before it is declared: its settings, its schemas, its newest records. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, field

from leftfold.errors import LogError
from leftfold.kafka.admin import Admin
from leftfold.kafka.decode import schema_id_of
from leftfold.kafka.observe import observe_cluster
from leftfold.kafka.observed import ObservedTopic
from leftfold.kafka.reading import Logged, LogReader
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.settings import Kafka

# Enough to see an optional field and to tell a key from a coincidence, and read in a second or two.
RECORDS = 500
_FEWEST_OF_A_PARTITION = 5
_MOST_BYTES = 32 * 1_024 * 1_024  # of large records fewer are kept


@dataclass(frozen=True)
class Looked:
    topic: ObservedTopic
    versions: dict[int, str] = field(default_factory=dict)  # schemas of its subject by id, oldest first
    others: dict[int, str] = field(default_factory=dict)  # schemas that sampled records name beside these
    key_schema: str | None = None  # the newest that is registered for its keys
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
    """Of every partition about as many; with holes in the log fewer."""
    each = max(_FEWEST_OF_A_PARTITION, RECORDS // topic.partitions)
    ranges = {number: (max(p.start, p.end - each), p.end) for number, p in enumerate(topic.spread)}
    reader = LogReader(kafka)
    kept: list[Logged] = []
    size = 0
    try:
        for record in reader.read(topic.name, ranges):
            kept.append(record)
            size += len(record.key or b"") + len(record.value or b"")
            if size > _MOST_BYTES:
                break
    finally:
        reader.close()
    return tuple(kept)
