"""What becomes of a record: accepted, late, future or rejected. Stateless, so the same live and on replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.fold.definition import Origin
from leftfold.fold.expressions import Expression
from leftfold.fold.values import Kind
from leftfold.spark.catalyst import condition
from leftfold.spark.source import SLOTS_PER_TOPIC
from leftfold.store.layout import ACCEPTED


def judged(
    records: DataFrame,
    *,
    origins: tuple[Origin, ...],
    time: str,
    future: int,
    required: Iterable[str],
    kinds: Mapping[str, Kind],
    rules: Iterable[Expression],
) -> DataFrame:
    """The records with log_us, event_us and outcome. `kinds` are the fields that the view reads."""
    timed = records.withColumn("log_us", F.unix_micros("log_time")).withColumn(
        "event_us", F.unix_micros(F.col(f"event.{time}"))
    )
    event_us, log_us = F.col("event_us"), F.col("log_us")
    known = _by_topic(origins, [F.lit(True) if o.log_time == "producer" else F.col("by_broker") for o in origins])
    lateness = _by_topic(origins, [F.lit(o.lateness) for o in origins])
    good = reduce(and_, (event_us.isNotNull(), known, *sound(required, kinds, rules)))
    outcome = (
        F.when(~F.coalesce(good, F.lit(False)), F.lit("rejected"))
        .when(event_us < log_us - lateness, F.lit("late"))
        .when(event_us > log_us + F.lit(future), F.lit("future"))
        .otherwise(F.lit(ACCEPTED))
    )
    return timed.withColumn("outcome", outcome)


def sound(required: Iterable[str], kinds: Mapping[str, Kind], rules: Iterable[Expression]) -> list[Column]:
    """What every accepted record holds to, whatever its time."""
    good = [F.col(f"event.{name}").isNotNull() for name in required]
    for name, kind in sorted(kinds.items()):
        field = F.col(f"event.{name}")
        if kind == "string":  # text that is no UTF-8 could be neither stored nor read
            good.append(F.coalesce(F.is_valid_utf8(field), F.lit(True)))
        elif kind == "float":
            good.append(F.coalesce(~F.isnan(field) & (F.abs(field) != F.lit(float("inf"))), F.lit(True)))
    good += [F.coalesce(condition(rule, "event."), F.lit(True)) for rule in rules]
    return good


def _by_topic(origins: tuple[Origin, ...], values: list[Column]) -> Column:
    if len(origins) == 1 or all(
        o.lateness == origins[0].lateness and o.log_time == origins[0].log_time for o in origins
    ):
        return values[0]
    topic = F.floor(F.col("slot") / SLOTS_PER_TOPIC)
    return reduce(
        lambda case, v: case.when(topic == v[0], v[1]), list(enumerate(values))[1:], F.when(topic == 0, values[0])
    )
