"""What is asked of one topic, and where each number of it comes from: the declaration, a sample, or the person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leftfold.fold.durations import SECOND
from leftfold.kafka.observed import ObservedTopic
from leftfold.kafka.sample import Sample
from leftfold.spec.event import Event, fields_of
from leftfold.spec.framing import HEADER_BYTES
from leftfold.spec.topic import Topic
from leftfold.spec.topic_options import RECORDS_PER_PARTITION

# Bytes of a field in a record, of whose values nothing is known: a text of 16, an Avro long of a millionth or a time.
_FIELD_BYTES = {"string": 17, "int": 4, "float": 8, "bool": 1, "datetime": 8, "bytes": 17}
# What Kafka adds to a record inside a batch: lengths, deltas of offset and time.
_RECORD_OVERHEAD = 10


@dataclass(frozen=True)
class Needs:
    """What decides whether a log is the right tool at all."""

    replay: bool = True  # old records are read again: a new reader, a repair, a training set
    answers: bool = False  # the sender waits for the result of each record
    transactions: bool = False  # one record changes several keys, all or none
    freshness_s: float | None = None  # how soon a record must be seen in a feature
    largest_bytes: float = 0  # of one record


@dataclass(frozen=True)
class Load:
    """Times in seconds. The rate is that of the busiest hour: an average over a day would be overrun every evening."""

    rate: float
    record_bytes: float  # as the log keeps one: key and value, compressed
    keys: int | None = None  # entities that are active; None if nobody knows
    readers: int = 1  # views and groups that each read all of it
    retention_s: float | None = 7 * 86_400  # None: compacted
    lateness_s: float = 600
    replication: int = 3
    downtime_s: float = 3_600  # the longest outage of a reader that is planned for ...
    catch_up_s: float = 3_600  # ... and how long it may then take to be up to date again
    consumer_rate: float = RECORDS_PER_PARTITION  # records a second that one consumer handles
    partitions: int | None = None  # as declared, or as they are; None: to be chosen
    brokers: int | None = None  # that there are; None: to be chosen
    rate_from: str = "given"
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True)
class Given:
    """What a person says of a topic; whatever they leave out is taken from the declaration or a sample."""

    rate: float | None = None
    record_bytes: float | None = None
    keys: int | None = None
    downtime_s: float = 3_600
    catch_up_s: float = 3_600
    consumer_rate: float = RECORDS_PER_PARTITION
    brokers: int | None = None
    needs: Needs = field(default_factory=Needs)


def load_of(
    topic: Topic[Any],
    *,
    readers: int,
    sample: Sample | None = None,
    observed: ObservedTopic | None = None,
    given: Given | None = None,
) -> Load | None:
    """None if nothing tells the rate: a guess would be multiplied into everything."""
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
        needs=asked.needs,
    )


def _observed_bytes(sample: Sample | None, observed: ObservedTopic | None) -> float | None:
    """What the log holds of a record is compressed; a sample's bytes are not, and are an upper bound."""
    if observed is not None and observed.size and observed.records:
        return observed.size / observed.records
    return None if sample is None or not sample.records else sample.mean_bytes


def estimated_bytes(event: type[Event], topic: Topic[Any]) -> float:
    """Of a record that nobody has seen, uncompressed. Names of fields travel only in JSON."""
    fields = fields_of(event).values()
    value = sum(_FIELD_BYTES[f.kind] * (3 if f.repeated else 1) + (1 if f.optional else 0) for f in fields)
    names = sum(len(f.name) + 4 for f in fields) if topic.format == "json" else HEADER_BYTES
    key = sum(_FIELD_BYTES[k.kind] for k in topic.key)
    return float(value + names + key + _RECORD_OVERHEAD)
