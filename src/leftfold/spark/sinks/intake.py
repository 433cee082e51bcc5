"""The intake of a topic: it keeps every record that no view accepts, with its position and the reason.

It is stateless and uses the same rules as views, but over all fields of the event. Views only count such records, the
intake stores them. A record is written at least once, with its position as key, so after compaction there is one copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.declare import reasons
from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.event import EventField, fields_of
from leftfold.declare.features import FUTURE_TOLERANCE, nameless
from leftfold.declare.framing import HEADER_BYTES, frame
from leftfold.declare.topic import Topic
from leftfold.fold.definition import Key, Origin
from leftfold.settings import Kafka
from leftfold.spark.accept import deletion, judged, own_key_too_long, sound, too_long
from leftfold.spark.catalyst import condition
from leftfold.spark.source import Source, read_stream, records_of

# Larger than any record that a broker accepts by default, also before compression: one large reject must not stop the
# intake. The intake's topics allow records of this size.
_LARGEST_REQUEST = 64 * 1_024 * 1_024
_PRODUCER = {
    "kafka.acks": "all",  # like the producer of events: a written record is on min.insync.replicas brokers
    "kafka.enable.idempotence": "true",
    "kafka.linger.ms": "50",  # few large requests, as a task waits for them only at its end
    "kafka.batch.size": str(256 * 1_024),
    "kafka.compression.type": "zstd",  # no producer packs tighter: a record that fitted into the topic fits here
    "kafka.max.request.size": str(_LARGEST_REQUEST),
    "kafka.buffer.memory": str(2 * _LARGEST_REQUEST),
}
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class IntakeTopics:
    """The topics that an intake writes to, by their names in the cluster."""

    rejects: str
    late: str | None  # a compacted topic has none


Keyed = tuple[tuple[Key, ...], ...]  # the keys of records: the topic's own, and those of its views


def intake_stream(
    session: SparkSession,
    source: Source,
    topic: Topic[Any],
    names: IntakeTopics,
    keyed: Keyed = (),
    *,
    every_s: int = 0,
) -> DataFrame:
    """Columns topic, key, value, headers: one row for every record of the topic that is not accepted, as a stream."""
    whole = _whole(source, topic)
    return refused(read_stream(session, whole, raw=True, every_s=every_s), whole, topic, names, keyed)


def refused_of(
    records: DataFrame, source: Source, topic: Topic[Any], names: IntakeTopics, keyed: Keyed = ()
) -> DataFrame:
    """Columns topic, key, value, headers: one row for every record of a batch that is not accepted.

    `records` have the columns of Kafka's source.
    """
    whole = _whole(source, topic)
    return refused(records_of(records, whole, raw=True), whole, topic, names, keyed)


def _whole(source: Source, topic: Topic[Any]) -> Source:
    return replace(source, fields=frozenset(fields_of(topic.event)))


def refused(records: DataFrame, source: Source, topic: Topic[Any], names: IntakeTopics, keyed: Keyed = ()) -> DataFrame:
    keyed = keyed or (topic.keys,)
    # Not a filter: Spark would push it below the projection, and decode each record again for every field it names.
    bad = F.explode(F.when(F.col("outcome") != ACCEPTED, F.array(F.lit(True))))
    seen = with_outcome(records, topic, keyed).select("*", bad)
    rejects = F.lit(names.rejects)
    target = F.when(F.col("outcome") == "late", F.lit(names.late)).otherwise(rejects) if names.late else rejects
    headers = [
        _header("outcome", F.col("outcome")),
        _header("reason", _reason(source, topic, keyed)),
        _header("log_time", F.unix_micros("log_time").cast("string")),
        _header("stamped", F.when(F.col("by_broker"), "broker").otherwise("producer")),
        _header("topic", F.lit(topic.name)),
    ]
    with_key = F.array(*headers, _header("key", F.col("key")))
    return seen.select(
        target.alias("topic"),
        F.concat_ws("/", "slot", "offset").cast("binary").alias("key"),
        "value",
        F.when(F.col("key").isNotNull(), with_key).otherwise(F.array(*headers)).cast(_HEADERS).alias("headers"),
    )


def write_intake(batch: DataFrame, kafka: Kafka) -> None:
    """Write a batch in one action, by the executors. A batch that runs again writes the same records and keys."""
    batch.write.format("kafka").options(**kafka.for_spark(), **_PRODUCER).save()


def with_outcome(records: DataFrame, topic: Topic[Any], keyed: Keyed = ()) -> DataFrame:
    """Add the outcome to records of which all fields are decoded."""
    keyed = keyed or (topic.keys,)
    fields = fields_of(topic.event).values()
    required = [f.name for f in fields if not f.optional]
    kinds = {f.name: f.kind for f in fields if not f.repeated}
    rules = [nameless(rule) for rule in topic.rules]
    if topic.compacted:  # the rules of a table: the newest record is valid, whatever its time
        good = deletion(topic.keys, rules) | reduce(and_, sound(required, kinds, rules, keyed))
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
        keys=keyed,
    )


def _reason(source: Source, topic: Topic[Any], keyed: Keyed) -> Column:
    """The text of the first reason that applies to a record."""
    cases = F.when(own_key_too_long(topic.rules), F.lit(reasons.KEY_TOO_LONG))
    cases = cases.when(F.col("value").isNull(), F.lit(reasons.NO_VALUE))
    for applies, reason in (*_undecoded(source), *_flaws(topic, keyed)):
        cases = cases.when(applies, reason)
    if not topic.compacted:
        cases = cases.when(F.col("outcome") == "late", _numbered(reasons.LATE, _seconds("log_us", "event_us")))
        cases = cases.when(F.col("outcome") == "future", _numbered(reasons.FUTURE, _seconds("event_us", "log_us")))
    return cases.otherwise(F.lit("not accepted"))


def _undecoded(source: Source) -> Iterator[tuple[Column, Column]]:
    """Conditions and reasons for bytes that could not be decoded to an event.

    A decoded event has all its required fields, so an event whose required fields are all null was not decoded.
    """
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
    yield ~header.isin(*map(frame, source.writer_schemas)), _numbered(reasons.UNREGISTERED, schema_id)
    yield nothing, _numbered(reasons.UNREADABLE_AVRO, schema_id)


def _flaws(topic: Topic[Any], keyed: Keyed) -> Iterator[tuple[Column, Column]]:
    """Conditions and reasons for a decoded event that is not valid: the conditions of `accept`, one by one."""
    if topic.log_time != "producer" and not topic.compacted:
        yield ~F.col("by_broker"), F.lit(reasons.NOT_BY_BROKER)
    fields = fields_of(topic.event).values()
    for field in fields:
        if not field.optional:
            yield F.col(f"event.{field.name}").isNull(), F.lit(reasons.MISSING.format(field=field.name))
    for field in sorted(fields, key=lambda f: f.name):
        yield from _unsound(field)
    for keys in keyed:
        yield too_long(keys, topic.rules), F.lit(reasons.KEY_TOO_LONG)
    for rule in topic.rules:
        yield ~condition(nameless(rule), "event."), F.lit(reasons.BROKEN.format(rule=reasons.rule_text(rule)))


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
    """The difference of two times in seconds.

    It is computed in decimals: an event time can be any 64-bit number, and a difference that overflows would fail the
    job.
    """
    return F.expr(f"(cast({later} as decimal(20, 0)) - cast({earlier} as decimal(20, 0))) div 1000000")
