"""The outcome of a record: accepted, late, future or rejected. Stateless, so it is the same live and on replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.keys import longest_key
from leftfold.fold.definition import Key, Origin
from leftfold.fold.expressions import Expression
from leftfold.fold.values import Kind
from leftfold.offsets import SLOTS_PER_TOPIC
from leftfold.spark.catalyst import condition, entity
from leftfold.spark.source import HASHES


def judged(
    records: DataFrame,
    *,
    origins: tuple[Origin, ...],
    time: str,
    future: int,
    required: Iterable[str],
    kinds: Mapping[str, Kind],
    rules: Sequence[Expression],
    keys: Iterable[tuple[Key, ...]] = (),
) -> DataFrame:
    """Add log_us, event_us and outcome to the records. `kinds` are the fields that the view reads, `keys` its key."""
    timed = records.withColumn("log_us", F.unix_micros("log_time")).withColumn(
        "event_us", F.unix_micros(F.col(f"event.{time}"))
    )
    event_us, log_us = F.col("event_us"), F.col("log_us")
    known = _by_topic(origins, [F.lit(True) if o.log_time == "producer" else F.col("by_broker") for o in origins])
    lateness = _by_topic(origins, [F.lit(o.lateness) for o in origins])
    good = reduce(and_, (event_us.isNotNull(), known, *sound(required, kinds, rules, keys)))
    outcome = (
        F.when(~F.coalesce(good, F.lit(False)), F.lit("rejected"))
        .when(event_us < log_us - lateness, F.lit("late"))
        .when(event_us > log_us + F.lit(future), F.lit("future"))
        .otherwise(F.lit(ACCEPTED))
    )
    return timed.withColumn("outcome", outcome)


def sound(
    required: Iterable[str],
    kinds: Mapping[str, Kind],
    rules: Sequence[Expression],
    keys: Iterable[tuple[Key, ...]] = (),
) -> list[Column]:
    """The conditions that every accepted record meets, whatever its time."""
    good = [F.col(f"event.{name}").isNotNull() for name in required]
    for name, kind in sorted(kinds.items()):
        field = F.col(f"event.{name}")
        if kind == "string":  # text that is not UTF-8 could be neither stored nor read
            good.append(F.coalesce(F.is_valid_utf8(field), F.lit(True)))
        elif kind == "float":
            good.append(F.coalesce(~F.isnan(field) & (F.abs(field) != F.lit(float("inf"))), F.lit(True)))
    good += [F.coalesce(condition(rule, "event."), F.lit(True)) for rule in rules]
    good += [F.coalesce(~too_long(key, rules), F.lit(True)) for key in keys]
    good.append(F.coalesce(~own_key_too_long(rules), F.lit(True)))
    return good


def too_long(keys: tuple[Key, ...], rules: Sequence[Expression]) -> Column:
    """True if the text of a key is longer than a key may be."""
    return F.octet_length(entity(keys, "event.")) > F.lit(longest_key(rules, [k.name for k in keys]))


def own_key_too_long(rules: Sequence[Expression]) -> Column:
    """True if the record's own key in Kafka is longer than a key may be. Any producer may have made it."""
    return F.octet_length("key") > F.lit(longest_key(rules))


def deletion(keys: tuple[Key, ...], rules: Sequence[Expression]) -> Column:
    """True if a record of a compacted topic is a tombstone: it has no value, and its key is the text of a row's key."""
    text = F.col("key").cast("string")
    short = F.octet_length(text) <= F.lit(longest_key(rules, [k.name for k in keys]))
    return F.coalesce(F.col("deleted") & F.is_valid_utf8(text) & short, F.lit(False))


def _by_topic(origins: tuple[Origin, ...], values: list[Column]) -> Column:
    if len(origins) == 1 or all(
        o.lateness == origins[0].lateness and o.log_time == origins[0].log_time for o in origins
    ):
        return values[0]
    topic = F.floor(F.col("slot") / SLOTS_PER_TOPIC)
    return reduce(
        lambda case, v: case.when(topic == v[0], v[1]), list(enumerate(values))[1:], F.when(topic == 0, values[0])
    )


# Ledger rows: the outcomes of the records of each partition, counted by the aggregation that makes the view.


# SQL for a ledger row's field and value in the store. The row's entity is the outcome, its step is -(slot + 1).
NAME = (
    f"concat(element_at(array({{topics}}), cast((-step - 1) div {SLOTS_PER_TOPIC} as int) + 1), "
    f"'/', (-step - 1) % {SLOTS_PER_TOPIC}, ':', entity)"
)
COUNTS = (
    "concat_ws(':', records, newest_log, coalesce(newest_event, 0), newest_offset, content0, content1, newest_hash)"
)
# SQL for the digest of a packed row. The digests of all rows add up to the digest of the batch.
DIGEST = "if(entity is null, null, xxhash64(entity, name, value)) as digest"


_CONTENT = ("content0", "content1")
OF_HASHES = (*_CONTENT, "newest_hash")  # the columns of a tally that are made of hashes


def ledger_step() -> Column:
    return -(F.col("slot") + 1).cast("long")


def tally() -> list[Column]:
    """The aggregates of a ledger row: count, newest log time, event time and offset, and hashes of its records.

    The row of a tile has no hashes, so these columns stay empty there. Hashes are combined with XOR, which does not
    depend on the order of records and cannot overflow.
    """
    return [
        F.count(F.lit(1)).alias("records"),
        F.max("log_us").alias("newest_log"),
        F.max("event_us").alias("newest_event"),
        F.max("offset").alias("newest_offset"),
        *(F.bit_xor(of).alias(name) for name, of in zip(_CONTENT, HASHES, strict=True)),
        F.max_by(HASHES[0], "offset").alias("newest_hash"),
    ]


def tally_of_tallies() -> list[Column]:
    """The aggregates that merge partial tallies, each over some of the records, into one tally."""
    return [
        F.sum("records").alias("records"),
        *(F.max(name).alias(name) for name in ("newest_log", "newest_event", "newest_offset")),
        *(F.bit_xor(name).alias(name) for name in _CONTENT),
        F.max_by("newest_hash", "newest_offset").alias("newest_hash"),
    ]


def hashes_in_ledger(rows: DataFrame, names: Sequence[str] = HASHES) -> DataFrame:
    """Set the hashes to null in all rows but ledger rows, so that state and shuffle stay small.

    `rows` are records exploded to step `s`, which is negative in ledger rows.
    """
    return rows.withColumns({name: F.when(F.col("s") < 0, F.col(name)) for name in names})
