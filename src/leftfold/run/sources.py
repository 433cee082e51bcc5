"""Adds to a source what its query met while it read: a schema, or ids that the registry never gave out."""

from __future__ import annotations

from dataclasses import replace

from leftfold.kafka.registry import SchemaRegistry
from leftfold.spark.source import Source, unknown_schema_id


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
