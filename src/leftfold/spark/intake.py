"""The intake of a topic: every record that no view accepts, written once, with its position and the reason.

Stateless, and the same judgement that views make, over all fields of the event. Views only count; this keeps.
Written at least once, under the record's position as key: after compaction there is one of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.fold.definition import Origin
from leftfold.settings import Kafka
from leftfold.spark.accept import judged, sound
from leftfold.spark.catalyst import condition
from leftfold.spark.source import Source, read_stream, records_of
from leftfold.spec import reasons
from leftfold.spec.event import EventField, fields_of
from leftfold.spec.features import FUTURE_TOLERANCE, nameless
from leftfold.spec.framing import HEADER_BYTES, frame
from leftfold.spec.topic import Topic
from leftfold.store.layout import ACCEPTED

# Larger than any record that a broker takes by default, also before compression: one large reject must not stop the
# intake. The topics themselves have room for it.
_LARGEST_REQUEST = 64 * 1_024 * 1_024
_PRODUCER = {
    "kafka.acks": "all",  # as the producer of events: what is written is on min.insync.replicas brokers
    "kafka.enable.idempotence": "true",
    "kafka.compression.type": "zstd",  # packs as tightly as any producer could: what fitted into the topic fits here
    "kafka.max.request.size": str(_LARGEST_REQUEST),
    "kafka.buffer.memory": str(2 * _LARGEST_REQUEST),
}
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class IntakeTopics:
    """As the cluster names them."""

    rejects: str
    late: str | None  # a compacted topic has none


def intake_stream(session: SparkSession, source: Source, topic: Topic[Any], names: IntakeTopics) -> DataFrame:
    """topic, key, value, headers: one row for every record of the topic that is not accepted."""
    whole = _whole(source, topic)
    return refused(read_stream(session, whole, raw=True), whole, topic, names)


def refused_of(records: DataFrame, source: Source, topic: Topic[Any], names: IntakeTopics) -> DataFrame:
    """The same of one batch of records as Kafka has them."""
    whole = _whole(source, topic)
    return refused(records_of(records, whole, raw=True), whole, topic, names)


def _whole(source: Source, topic: Topic[Any]) -> Source:
    return replace(source, fields=frozenset(fields_of(topic.event)))


def refused(records: DataFrame, source: Source, topic: Topic[Any], names: IntakeTopics) -> DataFrame:
    # Not a filter: Spark would push it below the projection, and decode each record once more for every field it names.
    bad = F.explode(F.when(F.col("outcome") != ACCEPTED, F.array(F.lit(True))))
    seen = with_outcome(records, topic).select("*", bad)
    rejects = F.lit(names.rejects)
    target = F.when(F.col("outcome") == "late", F.lit(names.late)).otherwise(rejects) if names.late else rejects
    headers = [
        _header("outcome", F.col("outcome")),
        _header("reason", _reason(source, topic)),
        _header("log_time", F.unix_micros("log_time").cast("string")),
        _header("stamped", F.when(F.col("by_broker"), "broker").otherwise("producer")),
        _header("topic", F.lit(topic.name)),
    ]
    keyed = F.array(*headers, _header("key", F.col("key")))
    return seen.select(
        target.alias("topic"),
        F.concat_ws("/", "slot", "offset").cast("binary").alias("key"),
        "value",
        F.when(F.col("key").isNotNull(), keyed).otherwise(F.array(*headers)).cast(_HEADERS).alias("headers"),
    )


def write_intake(batch: DataFrame, kafka: Kafka) -> None:
    """One action, by the executors. A batch that runs again writes the same records under the same keys."""
    batch.write.format("kafka").options(**kafka.for_spark(), **_PRODUCER).save()


def with_outcome(records: DataFrame, topic: Topic[Any]) -> DataFrame:
    """The records, of which all fields are decoded, with what becomes of each."""
    fields = fields_of(topic.event).values()
    required = [f.name for f in fields if not f.optional]
    kinds = {f.name: f.kind for f in fields if not f.repeated}
    rules = [nameless(rule) for f in fields for rule in f.rules]
    if topic.compacted:  # as a table sees it: the newest record stands, whenever it happened
        deletion = F.col("deleted") & F.col("key").isNotNull() & F.is_valid_utf8(F.col("key").cast("string"))
        good = deletion | reduce(and_, sound(required, kinds, rules))
        outcome = F.when(F.coalesce(good, F.lit(False)), F.lit(ACCEPTED)).otherwise(F.lit("rejected"))
        return records.withColumn("outcome", outcome)
    assert topic.time is not None, "only a compacted topic may have none"
    return judged(
        records,
        origins=(Origin(topic.name, topic.lateness, topic.log_time),),
        time=topic.time.name,
        future=FUTURE_TOLERANCE,
        required=required,
        kinds=kinds,
        rules=rules,
    )


def _reason(source: Source, topic: Topic[Any]) -> Column:
    """The first that applies."""
    cases = F.when(F.col("value").isNull(), F.lit(reasons.NO_VALUE))
    for applies, reason in (*_undecoded(source), *_flaws(topic)):
        cases = cases.when(applies, reason)
    if not topic.compacted:
        cases = cases.when(F.col("outcome") == "late", _numbered(reasons.LATE, _seconds("log_us", "event_us")))
        cases = cases.when(F.col("outcome") == "future", _numbered(reasons.FUTURE, _seconds("event_us", "log_us")))
    return cases.otherwise(F.lit("not accepted"))


def _undecoded(source: Source) -> Iterator[tuple[Column, Column]]:
    """Why no event could be made of the bytes. An event that was made has all its required fields."""
    fields = [f for f in fields_of(source.event).values() if not f.optional]
    nothing = reduce(and_, (F.col(f"event.{f.name}").isNull() for f in fields))
    if source.format == "json":
        text = F.col("value").cast("string")
        an_object = F.is_valid_utf8(text) & F.json_object_keys(text).isNotNull()
        for field in fields:
            if field.required:
                absent = F.get_json_object(text, f"$.{field.name}").isNull()
                yield nothing & an_object & absent, F.lit(reasons.MISSING.format(field=field.name))
        yield nothing, F.lit(reasons.UNREADABLE_JSON)
        return
    schema_id = F.conv(F.hex(F.expr("substring(value, 2, 4)")), 16, 10)
    framed = (F.length("value") > HEADER_BYTES) & (F.expr("substring(value, 1, 1)") == F.lit(bytes(1)))
    yield ~framed, F.lit(reasons.NOT_FRAMED)
    header = F.expr(f"substring(value, 1, {HEADER_BYTES})")
    for rejected in sorted(source.rejected_ids):
        yield header == F.lit(frame(rejected)), _numbered(reasons.UNREGISTERED, schema_id)
    yield nothing, _numbered(reasons.UNREADABLE_AVRO, schema_id)


def _flaws(topic: Topic[Any]) -> Iterator[tuple[Column, Column]]:
    """What an event breaks. The conditions of `accept`, one by one."""
    if topic.log_time != "producer" and not topic.compacted:
        yield ~F.col("by_broker"), F.lit(reasons.NOT_BY_BROKER)
    fields = fields_of(topic.event).values()
    for field in fields:
        if not field.optional:
            yield F.col(f"event.{field.name}").isNull(), F.lit(reasons.MISSING.format(field=field.name))
    for field in sorted(fields, key=lambda f: f.name):
        yield from _unsound(field)
    for field in fields:
        for rule in field.rules:
            reason = reasons.BROKEN.format(rule=reasons.rule_text(rule))
            yield ~condition(nameless(rule), "event."), F.lit(reason)


def _unsound(field: EventField) -> Iterator[tuple[Column, Column]]:
    value = F.col(f"event.{field.name}")
    if field.repeated:
        return
    if field.kind == "string":
        yield ~F.is_valid_utf8(value), F.lit(reasons.NOT_UTF8.format(field=field.name))
    elif field.kind == "float":
        unlimited = F.isnan(value) | (F.abs(value) == F.lit(float("inf")))
        yield unlimited, F.lit(reasons.NOT_FINITE.format(field=field.name))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _numbered(parts: tuple[str, str], number: Column) -> Column:
    return F.concat(F.lit(parts[0]), number.cast("string"), F.lit(parts[1]))


def _seconds(later: str, earlier: str) -> Column:
    """In decimals: an event time is anything that fits 64 bits, and a difference that does not would end the job."""
    return F.expr(f"(cast({later} as decimal(20, 0)) - cast({earlier} as decimal(20, 0))) div 1000000")
