"""Hazards measured in a sample of a topic's newest records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.declare.features import FUTURE_TOLERANCE
from leftfold.declare.reasons import NOT_BY_BROKER
from leftfold.declare.topic import Topic
from leftfold.errors import SourceLine
from leftfold.fold.durations import SECOND, text
from leftfold.hazards.hazard import Facts, Hazard, Level, Rule
from leftfold.kafka.sample import Sample
from leftfold.observe.settings import is_compacted, least
from leftfold.units import counted, listed, percent, rough

CODES: tuple[str, ...] = (
    "clock-skew",
    "future-records",
    "hot-key",
    "late-records",
    "log-time-ahead",
    "partition-skew",
    "producer-stamped",
    "producers-not-idempotent",
    "records-without-key",
    "rejected-records",
    "split-keys",
)

# One reader reads a partition, in order. A partition with twice the mean takes twice as long, and a batch is as slow as
# its slowest partition.
_SKEWED = 2.0
# Fewer occurrences may be chance: a count of 100 is accurate to a fifth.
_OCCURRENCES = 100
# Clocks that NTP keeps agree far better than this.
_CLOCKS_AGREE = SECOND
# A user who declares a lateness expects that a few records miss it.
_EXPECTED_LATE = 0.001
# If one record in a hundred does not count, every value shows it.
_DANGEROUS = 0.01
# A margin: producers are queried some minutes after the cluster was observed, and expire by a broker's clock.
_SURELY_REMEMBERED = 600 * SECOND
_LONGEST_KEY = 60  # characters of a key that are shown


def hot_key(facts: Facts) -> Iterator[Hazard]:
    for sample, source in _samples(facts):
        if (worst := _hottest(facts, sample)) is None:
            continue
        key, times, times_mean = worst
        rest = [percent(n / sample.records) for _, n in sample.top_keys[1:4]]
        next_ones = f", the next {', '.join(rest)}" if rest else ""
        skew = _measured_skew(facts, sample)
        window = text(sample.seconds * SECOND)
        measured = f"; over {window} the busiest partition got {skew[1]:.1f} times the mean" if skew else ""
        yield Hazard(
            "hot-key",
            "warning",
            f"topic {sample.topic}",
            f"key {_shown(key)} has {percent(times / sample.records)} of the {counted(sample.records, 'newest record')}"
            f"{next_ones}{measured}",
            f"A key's records go to one partition, which got about {times_mean:.1f} times the mean of these. One "
            "reader reads it, and neither more readers nor more partitions make that faster.",
            "find out whether it is a real key (a default, a test, a bot?); else key by something finer, or size "
            "readers for that partition",
            source,
        )


def partition_skew(facts: Facts) -> Iterator[Hazard]:
    for sample, source in _samples(facts):
        skew = _measured_skew(facts, sample)
        if skew is None or skew[1] < _SKEWED or _hottest(facts, sample) is not None:
            continue
        yield Hazard(
            "partition-skew",
            "warning",
            f"topic {sample.topic}",
            f"over {text(sample.seconds * SECOND)} partition {skew[0]} got {skew[1]:.1f} times the mean, and no single "
            f"key explains it ({counted(sample.keys, 'key')} in {counted(sample.records, 'newest record')})",
            "One reader reads a partition, so all wait for this one. Too few keys, or a producer that chooses "
            "partitions itself, do that.",
            "look at the producers' partitioner; key by something with more values",
            source,
        )


def _hottest(facts: Facts, sample: Sample) -> tuple[str, int, float] | None:
    """The most frequent key, its count, and about how many times the mean load its partition gets; None if it is fine.

    Also None if some keys lie in several partitions, because this key may be one of them.
    """
    topic = facts.observed.topics.get(sample.topic)
    if topic is None or topic.partitions < 2 or not sample.top_keys or sample.split_keys:
        return None
    key, times = sample.top_keys[0]
    share = times / sample.records
    times_mean = share * topic.partitions + (1 - share)  # if the other keys are spread evenly
    return (key, times, times_mean) if times >= _OCCURRENCES and times_mean >= _SKEWED else None


def _measured_skew(facts: Facts, sample: Sample) -> tuple[int, float] | None:
    """The busiest partition, and how many times the mean load it gets; None if there are too few records to judge."""
    topic = facts.observed.topics.get(sample.topic)
    if topic is None or topic.partitions < 2 or sample.rate * sample.seconds < _OCCURRENCES * topic.partitions:
        return None
    busiest = max(sample.by_partition, key=lambda p: sample.by_partition[p])
    return busiest, sample.by_partition[busiest] * topic.partitions / sample.rate


def split_keys(facts: Facts) -> Iterator[Hazard]:
    for sample, source in _samples(facts):
        if sample.split_keys:
            topic = facts.observed.topics.get(sample.topic)
            compacted = topic is not None and is_compacted(topic)
            yield Hazard(
                "split-keys",
                "danger",
                f"topic {sample.topic}",
                f"{sample.split_keys:,} of {counted(sample.keys, 'key')} lie in more than one partition "
                f"({counted(sample.records, 'newest record')})",
                "Between partitions there is no order, so nobody knows which record of such a key is the newest"
                + (", and compaction keeps one in each." if compacted else ".")
                + " Producers partition in different ways (librdkafka's default is not Java's), or partitions were "
                "added.",
                'set partitioner="murmur2_random" in librdkafka\'s producers; after adding partitions, use a new topic',
                source,
            )


def records_without_key(facts: Facts) -> Iterator[Hazard]:
    declared = _declared(facts)
    for sample, source in _samples(facts):
        if sample.without_key and (topic := declared.get(sample.topic)) is not None:
            yield Hazard(
                "records-without-key",
                "warning",
                f"topic {sample.topic}",
                f"{_of(sample.without_key, sample)} have no key; it is declared to be keyed by "
                f"{', '.join(k.name for k in topic.key)}",
                "A record without a key goes to any partition, so records of one entity have no order among them.",
                "send with the key; leftfold's producer does",
                source,
            )


def late_records(facts: Facts) -> Iterator[Hazard]:
    declared = _declared(facts)
    for sample, source in _samples(facts):
        topic = declared.get(sample.topic)
        if topic is None or sample.lags is None or sample.late < _EXPECTED_LATE * sample.records:
            continue
        if sample.late:
            half, longest = (rough(max(0, lag)) for lag in sample.lags[1:])
            yield Hazard(
                "late-records",
                _level(sample.late, sample),
                f"topic {sample.topic}",
                f"{_of(sample.late, sample)} were logged later than lateness={text(topic.lateness)} allows; half "
                f"come within {half}, the last after {longest}",
                "Late records are kept aside and count in no value.",
                "declare a longer lateness=, or find the producer that holds records back",
                source,
            )


def future_records(facts: Facts) -> Iterator[Hazard]:
    for sample, source in _samples(facts):
        if sample.future and sample.lags is not None:
            yield Hazard(
                "future-records",
                _level(sample.future, sample),
                f"topic {sample.topic}",
                f"{_of(sample.future, sample)} have an event time more than {text(FUTURE_TOLERANCE)} after their log "
                f"time, up to {rough(-sample.lags[0])}",
                "An event cannot be logged before it happens: a clock is wrong, or a unit or time zone. Such records "
                "are rejected and count in no value.",
                "correct that producer's clock or its time field; leftfold rejects shows such records",
                source,
            )


def clock_skew(facts: Facts) -> Iterator[Hazard]:
    """Judge only skew within the tolerance. Beyond it, future_records reports the records."""
    for sample, source in _samples(facts):
        if sample.lags is not None and not sample.future and -sample.lags[0] > _CLOCKS_AGREE:
            yield Hazard(
                "clock-skew",
                "warning",
                f"topic {sample.topic}",
                f"event times lie up to {rough(-sample.lags[0])} after log times",
                f"A producer's clock is ahead of the clock that stamps the log. From {text(FUTURE_TOLERANCE)} on its "
                "records are rejected.",
                "let all machines keep time by NTP",
                source,
            )


def log_time_ahead(facts: Facts) -> Iterator[Hazard]:
    for sample, source in _samples(facts):
        if sample.ahead > _CLOCKS_AGREE:
            who = "a producer's" if sample.by_producer else "a broker's"
            yield Hazard(
                "log-time-ahead",
                "warning",
                f"topic {sample.topic}",
                f"its newest log time lies {rough(sample.ahead)} after the moment at which it was read here",
                f"Either {who} clock is ahead or this machine's is behind. Log time decides what is late, and when "
                "records are deleted.",
                "let all machines keep time by NTP",
                source,
            )


def rejected_records(facts: Facts) -> Iterator[Hazard]:
    for sample, source in _samples(facts):
        reasons = [(reason, n) for reason, n in sample.reasons if reason != NOT_BY_BROKER]
        rejected = sum(n for _, n in reasons)
        if rejected:
            yield Hazard(
                "rejected-records",
                _level(rejected, sample),
                f"topic {sample.topic}",
                f"{_of(rejected, sample)} would be rejected: {listed([f'{r} ({n:,})' for r, n in reasons])}",
                "They are no events as they are declared and registered now. Rejected records are kept aside and count "
                "in no value.",
                "correct the declaration or the producer",
                source,
            )


def producer_stamped(facts: Facts) -> Iterator[Hazard]:
    declared = _declared(facts)
    for sample, source in _samples(facts):
        topic = declared.get(sample.topic)
        if topic is not None and topic.log_time != "producer" and not topic.compacted and sample.by_producer:
            yield Hazard(
                "producer-stamped",
                "danger",
                f"topic {sample.topic}",
                f"{_of(sample.by_producer, sample)} carry their producer's time; "
                f"log_time={topic.log_time!r} is declared",
                "When such a record reached the log is not known, so it is rejected. A change of "
                "message.timestamp.type holds for new records only.",
                "set message.timestamp.type=LogAppendTime, or declare log_time='producer'",
                source,
            )


def producers_not_idempotent(facts: Facts) -> Iterator[Hazard]:
    """Find partitions whose newest record is from a producer that is not idempotent.

    A leader remembers the log time of each idempotent producer's last batch for producer.id.expiration.ms. A record
    within that time that is newer than all of these log times is not from an idempotent producer.
    """
    cluster = facts.observed.cluster
    remembered = least(cluster, "producer.id.expiration.ms")
    if remembered is None:
        return
    since = cluster.seen_at - 1_000 * remembered + _SURELY_REMEMBERED
    for sample, source in _samples(facts):
        judged = {p: us for p, us in sample.newest.items() if us > since and p in sample.idempotent}
        plain = [p for p, us in judged.items() if us - sample.idempotent[p] > _CLOCKS_AGREE]
        if plain:
            yield Hazard(
                "producers-not-idempotent",
                "warning",
                f"topic {sample.topic}",
                f"in {len(plain):,} of {counted(len(judged), 'partition')} the newest record is of a producer that is "
                "not idempotent",
                "When it tries again, records are written twice, and out of order if several requests are under way. "
                "And its acks may be below all, which loses records with a leader: brokers do not tell.",
                "set enable.idempotence=true, which takes acks=all, in its producers (librdkafka's default is false, "
                "and Kafka Connect turns it off)",
                source,
            )


def _samples(facts: Facts) -> Iterator[tuple[Sample, SourceLine | None]]:
    declared = _declared(facts)
    for name, sample in facts.observed.samples.items():
        if sample.records:
            topic = declared.get(name)
            yield sample, None if topic is None else topic.source


def _declared(facts: Facts) -> dict[str, Topic[Any]]:
    return {facts.name(topic): topic for topic in facts.catalog.topics.values()}


def _of(number: int, sample: Sample) -> str:
    share = percent(number / sample.records)
    return f"{number:,} of the {counted(sample.records, 'newest record')} ({share})"


def _level(number: int, sample: Sample) -> Level:
    return "danger" if number >= _DANGEROUS * sample.records else "warning"


def _shown(key: str) -> str:
    return repr(key if len(key) <= _LONGEST_KEY else key[: _LONGEST_KEY - 1] + "…")


RULES: tuple[Rule, ...] = (
    *(hot_key, partition_skew, split_keys, records_without_key),
    *(late_records, future_records, clock_skew, log_time_ahead, rejected_records, producer_stamped),
    producers_not_idempotent,
)
