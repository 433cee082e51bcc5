"""The load of one topic. Each of its numbers comes from the declaration, a sample, or the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leftfold.declare.event import Event, fields_of
from leftfold.declare.framing import HEADER_BYTES
from leftfold.declare.topic import Topic
from leftfold.declare.topic_options import RECORDS_PER_PARTITION
from leftfold.fold.durations import SECOND
from leftfold.kafka.observed import ObservedTopic
from leftfold.kafka.sample import Sample

# Bytes of a field in a record if nothing is known of its values: a text of 16 bytes and its length, an Avro long in the
# millions, a time.
_FIELD_BYTES = {"string": 17, "int": 4, "float": 8, "bool": 1, "datetime": 8, "bytes": 17}
# Bytes that Kafka adds to a record inside a batch: lengths, and deltas of offset and time.
_RECORD_OVERHEAD = 10


@dataclass(frozen=True)
class Load:
    """The load of a topic, with times in seconds.

    The rate is that of the busiest hour. An average over a day would be exceeded every evening.
    """

    rate: float
    record_bytes: float  # as the log keeps a record: key and value, compressed
    keys: int | None = None  # active entities; None if not known
    readers: int = 1  # views and consumer groups; each reads the whole topic
    retention_s: float | None = 7 * 86_400  # None: compacted
    lateness_s: float = 600
    replication: int = 3
    downtime_s: float = 3_600  # the longest planned-for outage of a reader
    catch_up_s: float = 3_600  # the time that the reader may then take to catch up
    consumer_rate: float = RECORDS_PER_PARTITION  # records a second that one consumer handles
    partitions: int | None = None  # as declared, or as observed; None: to be chosen
    brokers: int | None = None  # existing brokers; None: to be chosen
    rate_from: str = "given"
    freshness_s: float | None = None  # the time in which a view must show a record; None if nobody says
    # A run decides by these how much a batch holds: the rate that the topics declare, and the profile's most_offsets.
    declared_rate: float | None = None
    most_offsets: int | None = None


@dataclass(frozen=True)
class Given:
    """A user's statements about a topic. Numbers that are left out come from the declaration or a sample."""

    rate: float | None = None
    record_bytes: float | None = None
    keys: int | None = None
    downtime_s: float = 3_600
    catch_up_s: float = 3_600
    consumer_rate: float = RECORDS_PER_PARTITION
    brokers: int | None = None


def load_of(
    topic: Topic[Any],
    *,
    readers: int,
    sample: Sample | None = None,
    observed: ObservedTopic | None = None,
    given: Given | None = None,
) -> Load | None:
    """The load of a topic; None if its rate is not known, because a guess would be multiplied into everything."""
    asked = given or Given()
    measured = None if sample is None else float(sum(sample.by_partition.values()))
    rates = ((asked.rate, "given"), (topic.rate, "declared"), (measured, "sampled"))
    known = next(((rate, where) for rate, where in rates if rate), None)
    if known is None:
        return None
    rate, where = known
    return Load(
        rate=rate,
        rate_from=where,
        record_bytes=asked.record_bytes or _observed_bytes(sample, observed) or estimated_bytes(topic.event, topic),
        keys=asked.keys,
        readers=readers,
        retention_s=None if topic.retention is None else topic.retention / SECOND,
        lateness_s=topic.lateness / SECOND,
        replication=topic.replication,
        downtime_s=asked.downtime_s,
        catch_up_s=asked.catch_up_s,
        consumer_rate=asked.consumer_rate,
        partitions=topic.partitions if observed is None else observed.partitions,
        brokers=asked.brokers,
        declared_rate=topic.rate,
    )


def _observed_bytes(sample: Sample | None, observed: ObservedTopic | None) -> float | None:
    """The mean bytes of a record in the log, else in a sample; None if neither is known.

    Bytes in the log are compressed. Bytes in a sample are not, so they are an upper bound.
    """
    if observed is not None and observed.size and observed.records:
        return observed.size / observed.records
    return None if sample is None or not sample.records else sample.mean_bytes


def estimated_bytes(event: type[Event], topic: Topic[Any]) -> float:
    """The estimated bytes of a record that nobody has seen, uncompressed. Only JSON records contain field names."""
    fields = fields_of(event).values()
    value = sum(_FIELD_BYTES[f.kind] * (3 if f.repeated else 1) + (1 if f.optional else 0) for f in fields)
    names = sum(len(f.name) + 4 for f in fields) if topic.format == "json" else HEADER_BYTES
    key = sum(_FIELD_BYTES[k.kind] for k in topic.key)
    return float(value + names + key + _RECORD_OVERHEAD)
