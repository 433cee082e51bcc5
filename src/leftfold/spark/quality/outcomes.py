"""The join of predictions with the events that came of them, in Catalyst, without Python per record.

Time is cut into blocks as long as the outcome's reach. The reach of a prediction at t is the rest of its own block from
t on, and the next block up to t + within. So each label is merged from two running aggregates, one backwards and one
forwards, and a prediction takes part in two blocks only. The work grows with the number of predictions and events, not
with that of their pairs, and a key with most of the events is spread over its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.event import fields_of
from leftfold.declare.outcome import CLOSED, DefinedLabel, OutcomeDefinition
from leftfold.declare.prediction import logged_parts
from leftfold.fold import columns
from leftfold.spark.catalyst import plain
from leftfold.spark.quality.predictions import first_of_each
from leftfold.spark.training.assemble import cached
from leftfold.spark.training.labels import as_logged
from leftfold.spark.training.offline import final_value
from leftfold.spark.views.batch_tiles import merged
from leftfold.spark.views.tiles import OWN, aggregate

# The columns that `labelled` adds for counts: how many events are credited, and when the prediction was made (µs).
CREDITED, AT = "_credited", "_at"
REPEATS = "_repeats"  # the column of predictions that tells how many later records repeat one
_SERIES = ("scorer", "role", "version")  # predictions that compete for an event have the same
_COUNT = columns.Column("count", None, "int")


def events_of(rows: DataFrame, definition: OutcomeDefinition) -> DataFrame:
    """The accepted events of a replay, as the join takes them: k0…, slot, offset, event_us and the event's fields.

    An event without one of the fields that `on` names belongs to no prediction, and is left out.
    """
    assert definition.topic.time is not None, "a topic without a time is refused"
    fields = fields_of(definition.topic.event)
    read = {name: plain(F.col(name), fields[name].kind).alias(OWN + name) for name in sorted(definition.fields)}
    keys = [F.col(theirs).alias(f"k{i}") for i, (_, theirs) in enumerate(definition.on)]
    return (
        rows.where(F.col("_outcome") == ACCEPTED)
        .select(
            *keys,
            F.col("_partition").alias("slot"),
            F.col("_offset").alias("offset"),
            F.unix_micros(definition.topic.time.name).alias("event_us"),
            F.unix_micros("_log_time").alias("log_us"),
            *read.values(),
        )
        .dropna(subset=_keys(definition))
    )


def labelled(predictions: DataFrame, events: DataFrame, definition: OutcomeDefinition, closed: Column) -> DataFrame:
    """All columns of the predictions, then the labels, `closed`, and the columns `_credited` and `_at`.

    `predictions` are those of `first_of_each`, `events` those of `events_of`. `closed` is a condition on `_at`: where
    it does not hold, labels are null.
    """
    partials = (
        of_each(predictions, events, definition)
        if definition.credit == "each"
        else _merged_credit(predictions, events, definition)
    )
    wide = predictions.withColumn(AT, F.unix_micros("scored_at")).join(
        partials.withColumnRenamed("prediction_id", "_of"), F.col("prediction_id") == F.col("_of"), "left"
    )
    values = [
        F.when(closed, value_of(label, _partials(definition, label))).alias(label.name) for label in definition.labels
    ]
    credited = F.coalesce(F.col("n"), F.lit(0).cast("long"))
    return wide.select(*predictions.columns, *values, closed.alias(CLOSED), credited.alias(CREDITED), AT)


def value_of(label: DefinedLabel, partials: Sequence[Column]) -> Column:
    """The value of a label from its merged partials. A sum of nothing is 0."""
    first = final_value(label.columns[0], partials[0])
    match label.aggregate:
        case "happened":
            return first > 0
        case "delay":
            return (partials[0] - F.col(AT)).cast("double") / F.lit(1_000_000.0)
        case "sum":
            return F.when(partials[0].isNull(), F.lit(0).cast("long" if label.kind == "int" else "double")).otherwise(
                first
            )
        case "mean":
            count = final_value(label.columns[1], partials[1])
            return F.when(count > 0, first.cast("double") / count.cast("double"))
        case _:
            return first


@dataclass(frozen=True)
class OutcomeRows:
    """Predictions and events that Spark keeps, and the range of predictions that is asked for.

    Predictions before and after the range are there, too: they compete for events.
    """

    predictions: DataFrame
    events: DataFrame
    definition: OutcomeDefinition
    closed: int  # labels of predictions up to this moment (µs) are final
    start: int | None  # µs, of predictions
    end: int | None
    since: int | None = None  # events of earlier predictions (µs) may be gone

    @classmethod
    def of(
        cls,
        predictions: DataFrame,
        events: DataFrame,
        definition: OutcomeDefinition,
        *,
        closed: int,
        start: int | None,
        end: int | None,
    ) -> OutcomeRows:
        """Read the records of two replays, and let Spark keep what is needed of them."""
        what = f"the outcome {definition.name} needs"
        made = cached(first_of_each(predictions, repeats=REPEATS), what)
        try:
            return cls(made, cached(events_of(events, definition), what), definition, closed, start, end)
        except BaseException:
            made.unpersist()
            raise

    def release(self) -> None:
        self.predictions.unpersist()
        self.events.unpersist()

    def without_before(self, since: int | None) -> OutcomeRows:
        return replace(self, since=since)

    def labelled(self) -> DataFrame:
        """The rows of the range, closed or not, with the columns for counts."""
        closed = F.col(AT) <= F.lit(self.closed)
        if self.since is not None:
            closed &= F.col(AT) >= F.lit(self.since)
        rows = labelled(self.predictions, self.events, self.definition, closed)
        if self.start is not None:
            rows = rows.where(F.col(AT) >= F.lit(self.start))
        return rows if self.end is None else rows.where(F.col(AT) < F.lit(self.end))

    def frame(self, *, include_open: bool) -> DataFrame:
        """The rows as a user gets them: fields of the prediction, labels, closed."""
        rows = self.labelled()
        return self._shown(rows if include_open else rows.where(CLOSED))

    def closed_rows(self, after: int, until: int) -> DataFrame:
        """The closed rows of predictions after one moment and up to another (µs)."""
        rows = self.labelled().where(F.col(CLOSED))
        return self._shown(rows.where((F.col(AT) > F.lit(after)) & (F.col(AT) <= F.lit(until))))

    def _shown(self, rows: DataFrame) -> DataFrame:
        labels = [label.name for label in self.definition.labels]
        shown = rows.select(*fields_of(self.definition.predictions.event), *labels, CLOSED)
        return as_logged(shown, logged_parts(self.definition.predictions))


# Every prediction in reach gets the event --------------------------------------------------------------------------


def of_each(predictions: DataFrame, events: DataFrame, definition: OutcomeDefinition) -> DataFrame:
    """Columns prediction_id, n (events) and p0…: the merged partials of all events within reach of each prediction."""
    within, keys = F.lit(definition.within), _keys(definition)
    made = _asking(predictions, definition)
    own, after = _block(F.col("at"), definition), _block(F.col("at"), definition) + within
    ends = made.select(
        *keys,
        F.explode(
            F.array(
                F.struct(own.alias("block"), F.col("at").alias("moment"), F.lit(False).alias("end"), "prediction_id"),
                F.struct(
                    after.alias("block"),
                    (F.col("at") + within).alias("moment"),
                    F.lit(True).alias("end"),
                    "prediction_id",
                ),
            )
        ).alias("edge"),
    ).select(*keys, "edge.*")
    placed = events.withColumn("block", _block(F.col("event_us"), definition)).withColumn("moment", F.col("event_us"))
    rows = placed.unionByName(ends, allowMissingColumns=True)
    # An event at t is in reach of a prediction at t, one at t + within is not. So where both meet, the event comes
    # first in the backward order, and last in the forward order.
    block = Window.partitionBy(*keys, "block").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    back = block.orderBy(F.col("moment").desc(), F.col("event_us").isNull())
    forth = block.orderBy(F.col("moment"), F.col("event_us").isNotNull())
    running = {
        f"{name}_{direction}": partial.over(window)
        for name, partial in _running(definition).items()
        for direction, window in (("back", back), ("forth", forth))
    }
    halves = rows.withColumns(running).where(F.col("event_us").isNull())
    chosen = {
        name: F.when(F.col("end"), F.col(f"{name}_forth")).otherwise(F.col(f"{name}_back"))
        for name in _running(definition)
    }
    merges = [_plain(column, merged(column, F.col(f"p{i}"))).alias(f"p{i}") for i, column in _numbered(definition)]
    return (
        halves.select("prediction_id", *(column.alias(name) for name, column in chosen.items()))
        .groupBy("prediction_id")
        .agg(F.sum("n").alias("n"), *merges)
    )


# One prediction of a series gets the event --------------------------------------------------------------------------


def credited_events(predictions: DataFrame, events: DataFrame, definition: OutcomeDefinition) -> DataFrame:
    """The events that are credited to one prediction of a series, with its prediction_id and its moment `at`."""
    first = definition.credit == "first"
    within, keys = F.lit(definition.within), _keys(definition)
    made = _asking(predictions, definition).withColumn("series", F.struct(*_SERIES)).drop(*_SERIES)
    # The last before an event is searched forwards from its moment; the first in reach backwards from the moment
    # `within` before it. Either way the prediction is in the block of that moment, or in the one before it.
    step = -definition.within if first else definition.within
    own = _block(F.col("at"), definition)
    asking = made.withColumn("block", F.explode(F.array(own, own + F.lit(step))))
    moment = F.col("event_us") - within if first else F.col("event_us")
    found = events.withColumn("moment", moment).withColumn("block", _block(F.col("moment"), definition))
    series = asking.select(*keys, "block", "series").distinct()
    searching = found.join(series.hint("merge"), [*keys, "block"])
    rows = searching.unionByName(
        asking.withColumnRenamed("at", "moment").withColumn("candidate", F.struct("moment", "prediction_id")),
        allowMissingColumns=True,
    )
    order = (
        [F.col("moment").desc(), F.col("event_us").isNull(), F.col("prediction_id").desc()]
        if first
        else [F.col("moment"), F.col("event_us").isNotNull(), F.col("prediction_id")]
    )
    window = Window.partitionBy(*keys, "series", "block").orderBy(*order)
    before = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    nearest = F.last("candidate", ignorenulls=True).over(before)
    reached = rows.withColumn("nearest", nearest).where(F.col("event_us").isNotNull())
    at = F.col("nearest.moment")
    inside = (at <= F.col("event_us")) & (F.col("event_us") < at + within)
    return reached.where(inside).select(
        "slot",
        "offset",
        "event_us",
        *_own(events),
        F.col("nearest.prediction_id").alias("prediction_id"),
        at.alias("at"),
    )


def _merged_credit(predictions: DataFrame, events: DataFrame, definition: OutcomeDefinition) -> DataFrame:
    found = credited_events(predictions, events, definition)
    partials = [aggregate(column).alias(f"p{i}") for i, column in _numbered(definition)]
    return found.groupBy("prediction_id").agg(F.count(F.lit(1)).alias("n"), *partials)


# Counts --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutcomeCounts:
    """Counts over the predictions of a range, and over the events that could come of them."""

    predictions: int
    closed: int
    open: int  # an event may still come
    lost: int  # events that may have come are no longer in the log
    matched: int  # closed predictions to which at least one event is credited
    events_credited: int
    events_without_prediction: int
    repeated: int  # records of predictions that repeat another one


def counted(asked_for: OutcomeRows) -> OutcomeCounts:
    """Count. Only events count of which every prediction is known, from the first prediction of the range on."""
    rows, definition, closed = asked_for.labelled(), asked_for.definition, asked_for.closed
    predictions, events = asked_for.predictions, asked_for.events
    is_closed = F.col(CLOSED)
    asked = {
        "predictions": F.count(F.lit(1)),
        "closed": F.count(F.when(is_closed, F.lit(1))),
        "open": F.count(F.when(~is_closed & (F.col(AT) > F.lit(closed)), F.lit(1))),
        "matched": F.count(F.when(is_closed & (F.col(CREDITED) > 0), F.lit(1))),
        "repeated": F.coalesce(F.sum(REPEATS), F.lit(0)),
        "first": F.min(AT),
    }
    (row,) = rows.agg(*(column.alias(name) for name, column in asked.items())).collect()
    ended = rows.where(is_closed).select("prediction_id")
    alone = replace(definition, credit="last")
    together = {name: F.lit("") for name in _SERIES}
    if definition.credit == "each":
        reaching = predictions.join(ended, "prediction_id", "left_semi").withColumns(together)
        credited = credited_events(reaching, events, alone)
    else:
        credited = credited_events(predictions, events, definition).join(ended, "prediction_id", "left_semi")
    first = asked_for.start or row["first"] or 0
    beyond = closed + definition.within if asked_for.end is None else min(closed + definition.within, asked_for.end)
    known = events.where((F.col("event_us") >= F.lit(first)) & (F.col("event_us") < F.lit(beyond)))
    met = credited_events(predictions.withColumns(together), known, alone)
    position = F.count_distinct("slot", "offset")
    return OutcomeCounts(
        predictions=row["predictions"],
        closed=row["closed"],
        open=row["open"],
        lost=row["predictions"] - row["closed"] - row["open"],
        matched=row["matched"],
        events_credited=int(credited.agg(position).collect()[0][0]),
        events_without_prediction=int(known.count()) - int(met.agg(position).collect()[0][0]),
        repeated=int(row["repeated"]),
    )


def first_logged(rows: DataFrame, places: Sequence[int]) -> dict[int, int]:
    """The log time (µs) of the first row in each of these partitions that has rows."""
    place, logged = ("slot", F.col("log_us")) if "slot" in rows.columns else ("_partition", F.unix_micros("_log_time"))
    firsts = rows.where(F.col(place).isin(list(places))).groupBy(place).agg(F.min(logged)).collect()
    return {int(row[0]): int(row[1]) for row in firsts}


# Parts ----------------------------------------------------------------------------------------------------------------


def _asking(predictions: DataFrame, definition: OutcomeDefinition) -> DataFrame:
    """The predictions as the join takes them. One without a field that `on` names has no events."""
    keys = [F.col(mine).alias(f"k{i}") for i, (mine, _) in enumerate(definition.on)]
    made = predictions.select(*keys, "prediction_id", F.unix_micros("scored_at").alias("at"), *_SERIES)
    return made.dropna(subset=_keys(definition))


def _keys(definition: OutcomeDefinition) -> list[str]:
    return [f"k{i}" for i in range(len(definition.on))]


def _block(moment: Column, definition: OutcomeDefinition) -> Column:
    """The start of the block that a moment lies in."""
    return moment - F.pmod(moment, F.lit(definition.within))


def _own(events: DataFrame) -> list[str]:
    return [name for name in events.columns if name.startswith(OWN)]


def _all_columns(definition: OutcomeDefinition) -> list[columns.Column]:
    """The different columns of all labels."""
    return list(dict.fromkeys(column for label in definition.labels for column in label.columns))


def _numbered(definition: OutcomeDefinition) -> list[tuple[int, columns.Column]]:
    return list(enumerate(_all_columns(definition)))


def _plain(column: columns.Column, partial: Column) -> Column:
    """A merged partial without the position that a "last" keeps."""
    return partial["value"] if column.aggregate == "last" else partial


def _partials(definition: OutcomeDefinition, label: DefinedLabel) -> list[Column]:
    every = _all_columns(definition)
    return [F.col(f"p{every.index(column)}") for column in label.columns]


def _running(definition: OutcomeDefinition) -> dict[str, Column]:
    """The partials of a window, in which rows of predictions stand among the events."""
    is_event = F.col("event_us").isNotNull()
    return {
        "n": aggregate(_COUNT, within=is_event),
        **{f"p{i}": aggregate(column, within=is_event, placed=True) for i, column in _numbered(definition)},
    }
