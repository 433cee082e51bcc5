"""A definition as one stateful operator: no Python per record, no second meaning.

Every record becomes one row per step (its tiles) and one ledger row (what happened to it, per partition); all are
folded by the same aggregation, so the ledger's counts are exactly-once because they are state.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.fold import columns, expressions
from leftfold.fold.definition import Definition
from leftfold.fold.expressions import Both, Compare, Expression, FieldRef, Length
from leftfold.fold.values import Kind
from leftfold.store.layout import ACCEPTED

_NEVER = "9999-12-31"
# Fields of the event are columns under this prefix, so that a field may have any name: "offset", "step", "entity".
_OWN = "own_"
_INT64 = float(2**63)


def tiles(records: DataFrame, definition: Definition, *, delay: int) -> DataFrame:
    """entity, step (µs), tile_end, p0…pn, records, newest_log, newest_event, newest_offset.

    A ledger row has its outcome as entity and -(partition + 1) as step; it is never evicted. `delay` is how far the
    watermark stays behind the newest log time.
    """
    delay_ms = delay // 1_000
    event_us = F.unix_micros(F.col(f"event.{definition.time}"))
    log_us = F.unix_micros(F.col("log_time"))
    kinds = _kinds(definition)
    fields = [_plain(name, kinds[name]).alias(_OWN + name) for name in sorted(definition.fields() - {definition.time})]
    seen = (
        records.withWatermark("log_time", f"{delay_ms} milliseconds")
        .withColumn("log_us", log_us)
        .withColumn("event_us", event_us)
        .select(
            "partition",
            "offset",
            "log_us",
            "log_time",
            "event_us",
            F.col("event_us").alias(_OWN + definition.time),
            *fields,
            _outcome(definition).alias("outcome"),
        )
    )
    # Steps are exploded as constants, and the ledger row is the one with step 0: nothing is allocated per record.
    every, ledger_only = (F.array(*(F.lit(s).cast("long") for s in steps)) for steps in ((*definition.steps, 0), (0,)))
    rows = seen.withColumn("s", F.explode(F.when(F.col("outcome") == ACCEPTED, every).otherwise(ledger_only)))
    is_ledger = F.col("s") == 0
    start = F.col("event_us") - F.pmod("event_us", F.when(is_ledger, F.lit(1)).otherwise(F.col("s")))
    end = F.when(is_ledger, F.lit(_NEVER).cast("timestamp")).otherwise(F.timestamp_micros(start + F.col("s")))
    keyed = rows.select(
        "*",
        F.when(is_ledger, F.col("outcome")).otherwise(_entity(definition)).alias("entity"),
        F.when(is_ledger, -(F.col("partition") + 1).cast("long")).otherwise(F.col("s")).alias("step"),
        # The tile's end is what state is evicted by; computing it lost the watermark's mark, so it is put back.
        end.alias("tile_end", metadata={"spark.watermarkDelayMs": delay_ms}),
    )
    partials = [_aggregate(c).alias(f"p{i}") for i, c in enumerate(definition.columns)]
    if any(c.aggregate == "last" for c in definition.columns):
        # Spark sorts all rows for an aggregation that holds values of varying width, unless one of its functions
        # keeps objects: then it hashes. This one keeps an empty list.
        partials.append(F.collect_list(F.when(F.lit(False), F.lit(0))).alias("hashed"))
    return keyed.groupBy("entity", "step", "tile_end").agg(
        *partials,
        F.count(F.lit(1)).alias("records"),
        F.max("log_us").alias("newest_log"),
        F.max("event_us").alias("newest_event"),
        F.max("offset").alias("newest_offset"),
    )


def _plain(name: str, kind: Kind) -> Column:
    """A field as the algebra sees it: times in microseconds, everything else as it is."""
    field = F.col(f"event.{name}")
    return F.unix_micros(field) if kind == "datetime" else field


def _entity(definition: Definition) -> Column:
    """The same text as fold.values.entity_text."""
    texts = [F.col(_OWN + k.name).cast("string") for k in definition.keys]
    if len(texts) == 1:
        return texts[0]
    return F.concat(*(part for t in texts for part in (F.octet_length(t).cast("string"), F.lit(":"), t)))


def _outcome(definition: Definition) -> Column:
    """What becomes of a record: accepted, late, future or rejected. Stateless, so the same live and on replay."""
    event_us, log_us = F.col("event_us"), F.col("log_us")
    good = [event_us.isNotNull(), F.col("broker_time")]
    for key in definition.keys:
        good.append(F.col(f"event.{key.name}").isNotNull())
    for name, kind in sorted(_kinds(definition).items()):
        field = F.col(f"event.{name}")
        if kind == "string":  # text that is no UTF-8 could be neither stored nor read
            good.append(F.coalesce(F.is_valid_utf8(field), F.lit(True)))
        elif kind == "float":
            good.append(F.coalesce(~F.isnan(field) & (F.abs(field) != F.lit(float("inf"))), F.lit(True)))
    for rule in definition.rules:
        good.append(F.coalesce(_condition(rule, prefix="event."), F.lit(True)))
    return (
        F.when(~F.coalesce(reduce(and_, good), F.lit(False)), F.lit("rejected"))
        .when(event_us < log_us - F.lit(definition.lateness), F.lit("late"))
        .when(event_us > log_us + F.lit(definition.future), F.lit("future"))
        .otherwise(F.lit(ACCEPTED))
    )


def _kinds(definition: Definition) -> dict[str, Kind]:
    """The kind of every field the view reads, from wherever it is read."""
    conditions = [c.where for c in definition.columns if c.where is not None] + list(definition.rules)
    return {
        **{k.name: k.kind for k in definition.keys},
        **{c.field: c.kind for c in definition.columns if c.field},
        **{ref.name: ref.kind for condition in conditions for ref in expressions.references(condition)},
    }


def _aggregate(column: columns.Column) -> Column:
    where = None if column.where is None else _condition(column.where)
    if column.field is None:
        return F.count(F.lit(1)) if where is None else F.count(F.when(where, F.lit(1)))
    value = F.col(_OWN + column.field)
    if column.aggregate == "last":
        present = value.isNotNull() if where is None else value.isNotNull() & where
        position = F.struct(F.col("event_us"), F.col("partition"), F.col("offset"))
        return F.max_by(value, F.when(present, position))
    units = value.cast("decimal(19,0)") if column.kind == "int" else _float_units(value, column.scale)
    return F.sum(units if where is None else F.when(where, units))


def _float_units(value: Column, scale: int) -> Column:
    """The same IEEE operations as fold.columns.units, so that both give the same integer."""
    scaled = value * F.lit(float(10**scale)) + F.lit(0.5)
    fits = F.abs(scaled) < F.lit(_INT64)
    whole = F.floor(F.when(fits, scaled)).cast("decimal(19,0)")
    overflow = F.lit(str(columns.OVERFLOW)).cast("decimal(38,0)")
    return F.when(fits, whole.cast("decimal(38,0)")).when(value.isNotNull(), overflow)


def _condition(expression: Expression, prefix: str = _OWN) -> Column:
    match expression:
        case Compare(op, left, None):
            column = F.col(prefix + left.name)
            return column.isNull() if op == "=" else column.isNotNull()
        case Compare(op, left, right):
            other = F.col(prefix + right.name) if isinstance(right, FieldRef) else F.lit(right)
            compared: Column = expressions.COMPARE[op](F.col(prefix + left.name), other)
            return compared
        case Length(op, field, bound):
            measured: Column = expressions.COMPARE[op](F.char_length(F.col(prefix + field.name)), F.lit(bound))
            return measured
        case Both(op, left_side, right_side):
            sides = (_condition(left_side, prefix), _condition(right_side, prefix))
            return reduce(and_ if op == "and" else or_, sides)
    raise TypeError(f"not an expression: {expressions.to_json(expression)!r}")
