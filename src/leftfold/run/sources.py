"""Declared topics as a source that Spark can read: their names, partitions and schemas, as they are now.

What the schemas are may change while something reads: `learned` adds one that was met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leftfold.errors import RunError
from leftfold.errors import Source as Declared
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.settings import Kafka, Profile
from leftfold.spark.source import Source, unknown_schema_id
from leftfold.spec.companions import archive_table
from leftfold.spec.topic import Topic


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
    """`who` reads them, and is declared `at`."""
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
        most_offsets=profile.spark.most_offsets,
        archives=tuple(archive_table(lake, t) for t in topics),
        first_log=frozenset(p for t, p in zip(topics, physical, strict=True) if t.log_time == "header"),
    )


def learned(source: Source, registry: SchemaRegistry, failure: str) -> Source | None:
    """The source with the schema whose absence was the failure, or with its id as a reject; None if it was not that."""
    schema_id = unknown_schema_id(failure)
    if schema_id is None or schema_id in source.writer_schemas or schema_id in source.rejected_ids:
        return None
    schema = registry.schema(schema_id)
    if schema is None:
        return replace(source, rejected_ids=source.rejected_ids | {schema_id})
    return replace(source, writer_schemas={**source.writer_schemas, schema_id: schema})
