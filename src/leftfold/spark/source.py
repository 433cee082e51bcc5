"""Records of a topic as a stream of decoded events, in Catalyst.

Reads every schema version of the topic into the declared shape. A schema id that is not known here stops the batch
before any sink (`unknown_schema_id` finds it in the failure); bytes that are no record at all become rejects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from leftfold.settings import Kafka
from leftfold.spec.framing import HEADER_BYTES, frame

# Offsets per batch and partition: about a second of work for one core, so that views take turns and a stop is quick.
OFFSETS_PER_PARTITION = 50_000
_UNKNOWN_ID = "leftfold-unknown-schema-id:"


@dataclass(frozen=True)
class Source:
    """Where a view reads, and how its bytes are understood."""

    topic: str
    partitions: int
    kafka: Kafka
    reader_schema: str
    writer_schemas: Mapping[int, str]  # by id; all that the registry has for the topic
    rejected_ids: frozenset[int] = frozenset()  # ids the registry never gave out: their records are rejects


def read_stream(session: SparkSession, source: Source) -> DataFrame:
    """partition, offset, log_time, broker_time (bool), event (a struct of nulls if it could not be decoded)."""
    options = {
        **source.kafka.for_spark(),
        "subscribe": source.topic,
        "startingOffsets": "earliest",  # a view is a fold over the whole log
        "failOnDataLoss": "true",  # retention that overtakes a reader must stop it, not be skipped
        "kafka.isolation.level": "read_committed",  # records of an aborted transaction never happened
        "maxOffsetsPerTrigger": str(OFFSETS_PER_PARTITION * source.partitions),
    }
    records = session.readStream.format("kafka").options(**options).load()
    return records.select(
        "partition",
        "offset",
        F.col("timestamp").alias("log_time"),
        (F.col("timestampType") == 1).alias("broker_time"),
        decoded(source).alias("event"),
    )


def decoded(source: Source) -> Column:
    header = F.expr(f"substring(value, 1, {HEADER_BYTES})")
    body = F.expr(f"substring(value, {HEADER_BYTES + 1}, greatest(length(value) - {HEADER_BYTES}, 0))")
    # Decoding nothing gives the struct of nulls that undecodable bytes give.
    nothing = from_avro(F.lit(None).cast("binary"), source.reader_schema, {"mode": "PERMISSIVE"})
    cases = None
    for schema_id, writer in sorted(source.writer_schemas.items(), reverse=True):  # newest first: most records
        mine = header == F.lit(frame(schema_id))
        value = from_avro(body, writer, {"mode": "PERMISSIVE", "avroSchema": source.reader_schema})
        cases = F.when(mine, value) if cases is None else cases.when(mine, value)
    framed = (F.length("value") > HEADER_BYTES) & (F.expr("substring(value, 1, 1)") == F.lit(bytes(1)))
    refused = ~F.coalesce(framed, F.lit(False))
    for schema_id in source.rejected_ids:
        refused = refused | (header == F.lit(frame(schema_id)))
    stop = F.raise_error(F.concat(F.lit(_UNKNOWN_ID), F.conv(F.hex(F.expr("substring(value, 2, 4)")), 16, 10)))
    cases = F.when(refused, nothing) if cases is None else cases.when(refused, nothing)
    return cases.otherwise(stop)


def unknown_schema_id(failure: str) -> int | None:
    """The schema id that stopped a batch, if that is what the failure was."""
    match = re.search(re.escape(_UNKNOWN_ID) + r"(\d+)", failure)
    return int(match[1]) if match else None
