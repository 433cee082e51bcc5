"""Records of topics as rows of decoded events, in Catalyst.

Reads every schema version of a topic into the declared shape. A schema id that is not known here stops the batch
before any sink (`unknown_schema_id` finds it in the failure); bytes that are no record at all become rejects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from leftfold.settings import Kafka
from leftfold.spark.json_decode import json_event
from leftfold.spec.event import Event
from leftfold.spec.first_log import AHEAD, DIGITS, HEADER
from leftfold.spec.framing import HEADER_BYTES, frame
from leftfold.spec.schema import avro_schema

# After each poll Spark asks the broker for the partition's first and last offset, on the connection on which the
# consumer has just begun its next fetch. At the end of a partition that fetch waits for records, and the question
# behind it: half a second for every partition and batch, unless it is told not to. Of 500 records a poll, as is usual,
# there are many questions; far more would make large what Spark keeps of a fetch.
POLLS = {"kafka.max.poll.records": "2000", "kafka.fetch.max.wait.ms": "10"}
# Offsets per batch and partition: about a second of work for one core, so that views take turns and a stop is quick.
OFFSETS_PER_PARTITION = 50_000
# A partition of one of several topics is one number, its slot: the topic's place in the list, and the partition.
SLOTS_PER_TOPIC = 1 << 20
# Of a scan: some seconds of work for one core, so that a lost task costs little, and progress can be told.
OFFSETS_PER_TASK = 250_000
_UNKNOWN_ID = "leftfold-unknown-schema-id:"

Offsets = dict[str, dict[int, int]]  # by topic and partition


@dataclass(frozen=True)
class Source:
    """Where a view reads, and how its bytes are understood."""

    topics: tuple[str, ...]  # as the cluster names them, in the order of the view's origins
    partitions: tuple[int, ...]
    kafka: Kafka
    event: type[Event]
    fields: frozenset[str]  # those that the view reads
    format: Literal["avro", "json"]
    writer_schemas: Mapping[int, str]  # by id; all that the registry has for the topics
    rejected_ids: frozenset[int] = frozenset()  # ids the registry never gave out: their records are rejects
    most_offsets: int | None = None  # of a partition in one batch
    archives: tuple[str | None, ...] = ()  # the table of each topic that has one; empty if none has
    first_log: frozenset[str] = frozenset()  # those of the topics whose copied records say their first log time
    per_task: int = OFFSETS_PER_TASK  # of a partition, that one task of a batch reads at the most


def read_stream(
    session: SparkSession, source: Source, *, raw: bool = False, starts: Offsets | None = None
) -> DataFrame:
    """`raw` keeps the value's bytes beside the event that was made of them. A new query begins at `starts`."""
    # A view is a fold over the whole log; where a scan has done that, its stream begins later.
    begin = "earliest" if starts is None else json.dumps(starts)
    return records_of(kafka_stream(session, source, {"startingOffsets": begin}), source, raw=raw)


def kafka_stream(session: SparkSession, source: Source, own: Mapping[str, str]) -> DataFrame:
    """Records as Kafka has them; `own` are further options of the reader."""
    options = {
        **common_options(source, source.topics),
        **own,
        "maxOffsetsPerTrigger": str((source.most_offsets or OFFSETS_PER_PARTITION) * sum(source.partitions)),
    }
    return session.readStream.format("kafka").options(**options).load()


def read_range(session: SparkSession, source: Source, starts: Offsets, ends: Offsets) -> DataFrame:
    """The same records again, as a batch: from `starts`, up to and without `ends`."""
    options = {
        **common_options(source, source.topics),
        "startingOffsets": json.dumps({t: {p: starts[t].get(p, 0) for p in ends[t]} for t in ends}),
        "endingOffsets": json.dumps(ends),
        "maxRecordsPerPartition": str(source.per_task),
    }
    return records_of(session.read.format("kafka").options(**options).load(), source)


def kafka_range(
    session: SparkSession, kafka: Kafka, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
) -> DataFrame:
    """Records of one topic as Kafka has them."""
    options = {
        **_connected(kafka, (topic,)),
        "startingOffsets": json.dumps({topic: starts}),
        "endingOffsets": json.dumps({topic: ends}),
    }
    return session.read.format("kafka").options(**options).load()


def common_options(source: Source, topics: tuple[str, ...]) -> dict[str, str]:
    headers = {"includeHeaders": "true"} if source.first_log.intersection(topics) else {}
    return {**_connected(source.kafka, topics), **headers}


def _connected(kafka: Kafka, topics: tuple[str, ...]) -> dict[str, str]:
    return {
        **kafka.for_spark(),
        "subscribe": ",".join(topics),
        "failOnDataLoss": "true",  # retention that overtakes a reader must stop it, not be skipped
        "kafka.isolation.level": "read_committed",  # records of an aborted transaction never happened
        **POLLS,
    }


def records_of(records: DataFrame, source: Source, *, raw: bool = False) -> DataFrame:
    """slot, offset, key, deleted, log_time, by_broker, event (a struct of nulls if it could not be decoded)."""
    place = reduce(
        lambda case, topic: case.when(F.col("topic") == topic[1], F.lit(topic[0] * SLOTS_PER_TOPIC)),
        list(enumerate(source.topics))[1:],
        F.when(F.col("topic") == source.topics[0], F.lit(0)),
    )
    log_time, by_broker = _stamped(source)
    return records.select(
        (F.col("partition") if len(source.topics) == 1 else place + F.col("partition")).alias("slot"),
        "offset",
        "key",
        F.col("value").isNull().alias("deleted"),
        log_time.alias("log_time"),
        by_broker.alias("by_broker"),
        decoded(source).alias("event"),
        *(["value"] if raw else []),
    )


def _stamped(source: Source) -> tuple[Column, Column]:
    """Log time, and whether it is believed where a broker's is wanted: spec/first_log.py in Catalyst."""
    log_time, by_broker = F.col("timestamp"), F.col("timestampType") == 1
    if not source.first_log:
        return log_time, by_broker
    found = F.try_element_at(F.filter("headers", lambda header: header["key"] == HEADER), F.lit(-1))
    if source.first_log != set(source.topics):
        found = F.when(F.col("topic").isin(*source.first_log), found)
    text = found["value"].cast("string")
    first_us = F.when(text.rlike(f"^{DIGITS}\\z"), text.try_cast("long"))
    believed = F.coalesce(by_broker & (first_us <= F.unix_micros(log_time) + F.lit(AHEAD)), F.lit(False))
    return (
        F.when(believed, F.timestamp_micros(first_us)).otherwise(log_time),
        F.when(found.isNull(), by_broker).otherwise(believed),
    )


def decoded(source: Source) -> Column:
    if source.format == "json":
        return json_event(source.event, source.fields)
    schema = avro_schema(source.event, only=source.fields)
    header = F.expr(f"substring(value, 1, {HEADER_BYTES})")
    body = F.expr(f"substring(value, {HEADER_BYTES + 1}, greatest(length(value) - {HEADER_BYTES}, 0))")
    # Decoding nothing gives the struct of nulls that undecodable bytes give.
    nothing = from_avro(F.lit(None).cast("binary"), schema, {"mode": "PERMISSIVE"})
    cases = None
    for schema_id, writer in sorted(source.writer_schemas.items(), reverse=True):  # newest first: most records
        mine = header == F.lit(frame(schema_id))
        value = from_avro(body, writer, {"mode": "PERMISSIVE", "avroSchema": schema})
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
