"""Makes a source that Spark can read from declared topics: their names, partitions and schemas, as they are now.

The schemas may change while a query reads. `learned` adds a schema that the query met, or notes that records carry
schema ids that the registry never gave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leftfold.declare.companions import archive_table
from leftfold.declare.topic import Topic
from leftfold.errors import RunError
from leftfold.errors import SourceLine as Declared
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.settings import Kafka, Profile
from leftfold.spark import source as reading
from leftfold.spark.source import Source, unknown_schema_id


def source_of(
    topics: Sequence[Topic[Any]],
    fields: frozenset[str],
    *,
    profile: Profile,
    kafka: Kafka,
    lake: str,
    admin: Admin,
    registry: SchemaRegistry,
    who: str,
    at: Declared,
) -> Source:
    """Make the source of these topics. `who` reads them, and is declared at `at`."""
    physical = [profile.topic_name(t.name, external=t.external) for t in topics]
    partitions = admin.partitions(physical)
    schemas: dict[int, str] = {}
    for topic, topic_name in zip(topics, physical, strict=True):
        found = registry.versions(subject_of(topic_name)) if topic.format == "avro" else {}
        schemas |= found
        if topic_name not in partitions or (topic.format == "avro" and not found):
            lacks = "has no schema" if topic_name in partitions else "does not exist"
            raise RunError(
                "not-applied",
                f"{who} reads topic {topic_name}, which {lacks}",
                why="a view needs its topic and the schema of its records",
                fix="ask the topic's owner to create it with a schema" if topic.external else "leftfold apply --yes",
                source=at,
            )
    return Source(
        topics=tuple(physical),
        partitions=tuple(partitions[p] for p in physical),
        kafka=kafka,
        event=topics[0].event,
        fields=fields,
        format=topics[0].format,
        writer_schemas=schemas,
        most_offsets=_most_offsets(partitions, profile.spark.most_offsets, admin),
        archives=tuple(archive_table(lake, t) for t in topics),
        first_log=frozenset(p for t, p in zip(topics, physical, strict=True) if t.log_time == "header"),
        registry=registry,
    )


def _most_offsets(partitions: Mapping[str, int], wanted: int | None, admin: Admin) -> int:
    """The most offsets of a partition in one batch: the profile's number, limited by `BYTES_PER_PARTITION`."""
    widest = max(admin.width(topic, number) for topic, number in partitions.items())
    return max(1, min(wanted or reading.OFFSETS_PER_PARTITION, int(reading.BYTES_PER_PARTITION / max(widest, 1.0))))


def learned(source: Source, registry: SchemaRegistry, failure: str) -> Source | None:
    """The source with the schema whose absence caused the failure; None if the failure has another cause.

    If the registry does not know the id, there may be thousands like it. From then on a record is rejected if the
    registry never gave out its id. If the registry knows the id, for example from another subject, the range may
    contain more such ids.
    """
    schema_id = unknown_schema_id(failure)
    if schema_id is None or schema_id in source.writer_schemas or schema_id in source.rejected_ids:
        return None
    schema = registry.schema(schema_id)
    if schema is None:
        never = source.rejected_ids | {schema_id}
        if source.unknown != "stop":
            return replace(source, rejected_ids=never)
        return replace(source, rejected_ids=never, unknown="look", given_out=registry.given_out_if_few())
    return replace(source, writer_schemas={**source.writer_schemas, schema_id: schema}, given_out=None)
