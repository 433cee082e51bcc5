"""Records of topics as rows of decoded events, in Catalyst.

Reads every schema version of a topic into the declared shape. A record with an unknown schema id stops the batch before
any sink (`unknown_schema_id` finds the id in the failure). If the reader has checked the ids before (module `ids`), the
record is a reject instead. Bytes that are not a record at all become rejects.
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

from leftfold.declare.batches import offsets_per_batch, offsets_per_task, shared_task
from leftfold.declare.event import Event
from leftfold.declare.first_log import AHEAD, DIGITS, HEADER
from leftfold.declare.framing import HEADER_BYTES, frame
from leftfold.declare.schema import avro_schema
from leftfold.kafka.registry import SchemaRegistry
from leftfold.offsets import SLOTS_PER_TOPIC, Offsets
from leftfold.settings import Kafka
from leftfold.spark.json_decode import json_event

# After each poll Spark asks the broker for the partition's first and last offset, on the connection on which the
# consumer has just begun its next fetch. At the end of a partition that fetch waits for records, and the request waits
# behind it: half a second for every partition and batch, unless the fetch may not wait so long. With the default of 500
# records per poll there are many such requests. With far more than 2,000, Spark would keep too much of a fetch in
# memory.
POLLS = {"kafka.max.poll.records": "2000", "kafka.fetch.max.wait.ms": "10"}
# For a view that ran out of memory: a poll holds its records decompressed, and 2,000 records of a megabyte are more
# than a small heap. The offsets of a batch that was begun cannot change, so it is cut into more tasks of fewer records.
# Later batches are smaller.
CAREFUL_POLLS = {**POLLS, "kafka.max.poll.records": "50"}
_CAREFUL_PART = 16
# Offsets per task of a scan: some seconds of work for one core, so that a lost task costs little, and progress can be
# shown.
OFFSETS_PER_TASK = 250_000
# Columns of a record's two hashes.
HASHES = ("hash0", "hash1")
_UNKNOWN_ID = "leftfold-unknown-schema-id:"


@dataclass(frozen=True)
class Source:
    """The topics that a view reads, and everything that is needed to decode their records."""

    topics: tuple[str, ...]  # as the cluster names them, in the order of the view's origins
    partitions: tuple[int, ...]
    kafka: Kafka
    event: type[Event]
    fields: frozenset[str]  # fields that the view reads
    format: Literal["avro", "json"]
    writer_schemas: Mapping[int, str]  # by id; all that the registry has for the topics
    rejected_ids: frozenset[int] = frozenset()  # ids the registry never gave out: their records are rejects
    # The treatment of a record whose schema id is none of these. "stop": it stops the batch. "look": the reader must
    # first collect the ids of a range and ask the registry for all of them at once. "reject": that was done, so the
    # record is a reject.
    unknown: Literal["stop", "look", "reject"] = "stop"
    # Every id that the registry had given out, for any subject. With it, nobody needs to collect the ids of a range as
    # long as the registry has no new ones: an unknown id that is in this set stops the batch, any other is a reject.
    given_out: frozenset[int] | None = None
    registry: SchemaRegistry | None = None  # where unknown ids are looked up
    most_offsets: int | None = None  # the profile's: of a partition in one batch
    record_bytes: float = 0  # the mean of the topic with the longest records; 0 if not known
    rate: float | None = None  # declared records a second of all topics, by which batches are larger; None if unknown
    archives: tuple[str | None, ...] = ()  # the table of each topic that has one; empty if none has
    first_log: frozenset[str] = frozenset()  # topics whose copied records carry their first log time
    per_task: int = OFFSETS_PER_TASK  # the most offsets of a partition that one task of a batch reads
    careful: bool = False  # a batch did not fit into memory, or its process died: hold less at a time


def read_stream(
    session: SparkSession, source: Source, *, raw: bool = False, starts: Offsets | None = None, every_s: int = 0
) -> DataFrame:
    """Read the source as a stream of decoded records. A new query begins at `starts`, or at the start of the log.

    `raw` keeps the value's bytes next to the event that was decoded from them. A batch begins at most each `every_s`.
    """
    # A view is a fold over the whole log. If a scan has folded a part of it, the stream begins later.
    begin = "earliest" if starts is None else json.dumps(starts)
    return records_of(kafka_stream(session, source, {"startingOffsets": begin}, every_s), source, raw=raw)


def kafka_stream(session: SparkSession, source: Source, own: Mapping[str, str], every_s: int = 0) -> DataFrame:
    """A stream of undecoded records, with the columns of Kafka's source. `own` are further options of the reader."""
    # A view's state has as many partitions as the cluster has cores, unless the profile wants another number.
    cores = int(str(session.conf.get("spark.sql.shuffle.partitions")))
    options = {**common_options(source, source.topics), **own, **batch_options(source, cores, every_s)}
    return session.readStream.format("kafka").options(**options).load()


def batch_options(source: Source, cores: int, every_s: int = 0) -> dict[str, str]:
    """The options of a stream that bound a batch and its tasks."""
    partitions = sum(source.partitions)
    per_task = offsets_per_task(source.record_bytes, source.most_offsets)
    if source.careful:
        per_task = max(per_task // _CAREFUL_PART, 1)
        return {"maxOffsetsPerTrigger": str(per_task * partitions), "maxRecordsPerPartition": str(per_task)}
    if source.most_offsets is not None:
        return {"maxOffsetsPerTrigger": str(per_task * partitions)}
    most = offsets_per_batch(per_task, partitions, rate=source.rate, cores=cores, every_s=every_s)
    # A batch of the least size has one task for each partition, however uneven they are: the average bounds them.
    more_tasks = most > per_task * partitions
    shared = {"maxRecordsPerPartition": str(shared_task(per_task, most, cores))} if more_tasks else {}
    return {"maxOffsetsPerTrigger": str(most), **shared}


def read_range(session: SparkSession, source: Source, starts: Offsets, ends: Offsets) -> DataFrame:
    """Read decoded records as a batch: from `starts`, up to and without `ends`."""
    return records_of(raw_range(session, source, starts, ends), source)


def raw_range(session: SparkSession, source: Source, starts: Offsets, ends: Offsets) -> DataFrame:
    """Read undecoded records as a batch, with the columns of Kafka's source, from `starts` up to and without `ends`."""
    options = {
        **common_options(source, source.topics),
        "startingOffsets": json.dumps({t: {p: starts[t].get(p, 0) for p in ends[t]} for t in ends}),
        "endingOffsets": json.dumps(ends),
        "maxRecordsPerPartition": str(source.per_task // _CAREFUL_PART if source.careful else source.per_task),
    }
    return session.read.format("kafka").options(**options).load()


def kafka_range(
    session: SparkSession, kafka: Kafka, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
) -> DataFrame:
    """Read undecoded records of one topic as a batch, with the columns of Kafka's source."""
    options = {
        **_connected(kafka, (topic,)),
        "startingOffsets": json.dumps({topic: starts}),
        "endingOffsets": json.dumps({topic: ends}),
    }
    return session.read.format("kafka").options(**options).load()


def common_options(source: Source, topics: tuple[str, ...]) -> dict[str, str]:
    headers = {"includeHeaders": "true"} if source.first_log.intersection(topics) else {}
    polls = CAREFUL_POLLS if source.careful else POLLS
    return {**_connected(source.kafka, topics), **polls, **headers}


def _connected(kafka: Kafka, topics: tuple[str, ...]) -> dict[str, str]:
    return {
        **kafka.for_spark(),
        "subscribe": ",".join(topics),
        "failOnDataLoss": "true",  # retention that overtakes a reader must stop it, not be skipped
        "kafka.isolation.level": "read_committed",  # records of an aborted transaction never happened
        **POLLS,
    }


def records_of(records: DataFrame, source: Source, *, raw: bool = False) -> DataFrame:
    """Decode records to columns slot, offset, key, deleted, log_time, by_broker, event, hashes, and value if `raw`.

    An event that could not be decoded is a struct of nulls.
    """
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
        *_hashes(),
        *(["value"] if raw else []),
    )


def _hashes() -> list[Column]:
    """hash0 and hash1 of an undecoded record: the same as kafka/record_hash.py, in Catalyst."""
    # A missing key or value adds nothing to a hash. The key's length shows which of the two was there.
    parts = (F.col("offset"), F.unix_micros("timestamp"), F.coalesce(F.length("key"), F.lit(-1)), "key", "value")
    return [F.xxhash64(*seed, *parts).alias(name) for name, seed in zip(HASHES, ((), (F.lit(1),)), strict=True)]


def _stamped(source: Source) -> tuple[Column, Column]:
    """The log time, and whether it counts as set by a broker: the same as declare/first_log.py, in Catalyst."""
    log_time, by_broker = F.col("timestamp"), F.col("timestampType") == 1
    if not source.first_log:
        return log_time, by_broker
    stamp = F.try_element_at(F.filter("headers", lambda header: header["key"] == HEADER), F.lit(-1))
    if source.first_log != set(source.topics):
        stamp = F.when(F.col("topic").isin(*source.first_log), stamp)
    text = stamp["value"].cast("string")
    first_us = F.when(text.rlike(f"^{DIGITS}\\z"), text.try_cast("long"))
    believed = F.coalesce(by_broker & (first_us <= F.unix_micros(log_time) + F.lit(AHEAD)), F.lit(False))
    return (
        F.when(believed, F.timestamp_micros(first_us)).otherwise(log_time),
        F.when(stamp.isNull(), by_broker).otherwise(believed),
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
    refused = _refused(source, header)
    if refused is None:
        return nothing if cases is None else cases.otherwise(nothing)
    stop = F.raise_error(F.concat(F.lit(_UNKNOWN_ID), F.conv(F.hex(F.expr("substring(value, 2, 4)")), 16, 10)))
    cases = F.when(refused, nothing) if cases is None else cases.when(refused, nothing)
    return cases.otherwise(stop)


def _refused(source: Source, header: Column) -> Column | None:
    """The condition under which a record with an unknown schema is a reject and does not stop the batch.

    None means that every such record is a reject.
    """
    framed = (F.length("value") > HEADER_BYTES) & (F.expr("substring(value, 1, 1)") == F.lit(bytes(1)))
    not_framed = ~F.coalesce(framed, F.lit(False))
    if source.unknown == "stop":
        return not_framed | header.isin(*map(frame, source.rejected_ids)) if source.rejected_ids else not_framed
    others = (source.given_out or frozenset()) - set(source.writer_schemas)
    if source.unknown == "reject" or not others:
        return None
    return not_framed | ~header.isin(*map(frame, others))


def unknown_schema_id(failure: str) -> int | None:
    """The schema id that stopped a batch; None if the failure has another cause."""
    match = re.search(re.escape(_UNKNOWN_ID) + r"(\d+)", failure)
    return int(match[1]) if match else None
