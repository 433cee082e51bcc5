"""A free view: a user's function of DataFrames, run as one stream and kept as the newest row of each key."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.code import code_fingerprint
from leftfold.declare.event import fields_of
from leftfold.declare.features import FUTURE_TOLERANCE, nameless
from leftfold.declare.free import View
from leftfold.errors import DeclarationError
from leftfold.fold.definition import Key, fingerprint
from leftfold.fold.latest import Latest, TakenColumn
from leftfold.fold.values import KEY_KINDS, Kind
from leftfold.offsets import Offsets
from leftfold.spark.accept import COUNTS, DIGEST, NAME, judged, ledger_step, tally
from leftfold.spark.catalyst import entity, json_text, plain
from leftfold.spark.source import Source, read_range
from leftfold.spark.views.inspect import GIVEN, check_view, plan_text
from leftfold.store.layout import ROW_FIELD

_KINDS: dict[str, Kind] = {
    "string": "string",
    "bigint": "int",
    "int": "int",
    "smallint": "int",
    "tinyint": "int",
    "double": "float",
    "float": "float",
    "boolean": "bool",
    "timestamp": "datetime",
}
NOT_UNIQUE = "leftfold-rows-not-unique:"


@dataclass(frozen=True)
class FreeJob:
    """The Spark job of a `View`."""

    view: View
    definition: Latest
    sweeps = True
    cumulative = False
    rows_per_record = None

    def stream(self, records: DataFrame, delay: int) -> DataFrame:
        return _called(self.view, _accepted(self.view, records, delay))

    def packed(self, batch: DataFrame, number: int) -> DataFrame:
        view, definition = self.view, self.definition
        kinds = {c.name: c.kind for c in definition.columns}
        columns = [plain(F.col(f"`{c.name}`"), c.kind).alias(f"c{i}") for i, c in enumerate(definition.columns)]
        position = plain(F.col(f"`{view.latest}`"), kinds[view.latest]) if view.latest else F.lit(number)
        keys = [F.col(f"`{k.name}`").alias(f"key_{k.name}") for k in definition.keys]
        rows = batch.select(*keys, *columns, position.cast("long").alias("position"))
        newest = rows.groupBy(entity(definition.keys, "key_").alias("entity")).agg(
            # Among rows with the same position the largest wins, so that a batch that runs again gives the same row.
            F.max(F.struct("position", *(f"c{i}" for i in range(len(columns))))).alias("row"),
            F.max("position").alias("position"),
            F.count(F.lit(1)).alias("rows"),
        )
        values = ", ".join(json_text(f"row.c{i}", c.kind) for i, c in enumerate(definition.columns))
        value = f"concat('[', position, ',{number},', concat_ws(',', {values}), ']')"
        if view.latest is None:
            many = f"concat('{NOT_UNIQUE}', entity)"
            value = f"if(rows > 1, raise_error({many}), {value})"
        needed = " or ".join((*view.by, *((view.latest,) if view.latest else ())))
        lacking = f"raise_error('{view.name} gave a row that lacks {needed}')"  # it is never dropped silently
        value = f"if(entity is null or position is null, {lacking}, {value})"
        return newest.selectExpr("entity", f"'{ROW_FIELD}' as name", f"{value} as value").selectExpr("*", DIGEST)

    def counted(self, session: SparkSession, source: Source, starts: Offsets, ends: Offsets) -> DataFrame:
        """The ledger rows of a batch, from a second read of its records: the plan of a free view cannot carry them."""
        rows = _judged(self.view, read_range(session, source, starts, ends)).withColumn("step", ledger_step())
        counts = rows.groupBy(F.col("outcome").alias("entity"), "step").agg(*tally())
        topics = ", ".join(f"'{o.topic}'" for o in self.definition.origins)
        name = NAME.format(topics=topics)
        return counts.selectExpr("cast(null as string) as entity", f"{name} as name", f"{COUNTS} as value")


def _judged(view: View, records: DataFrame) -> DataFrame:
    event, time = view.reading.topics[0].event, view.reading.topics[0].time
    assert time is not None, "reading() refuses a topic that is compacted; any other has a time"
    fields = fields_of(event)
    return judged(
        records,
        origins=view.reading.origins,
        time=time.name,
        future=FUTURE_TOLERANCE,
        required=[f.name for f in fields.values() if not f.optional],
        kinds={f.name: f.kind for f in fields.values() if not f.repeated},
        rules=[nameless(rule) for f in fields.values() for rule in f.rules],
        keys=[view.reading.topics[0].keys],
    )


def _accepted(view: View, records: DataFrame, delay: int) -> DataFrame:
    """The input of the function: accepted events. Their time is marked as the column by which state is evicted."""
    delay_ms = delay // 1_000
    seen = _judged(view, records.withWatermark("log_time", f"{delay_ms} milliseconds"))
    time = view.reading.topics[0].time
    assert time is not None
    marked = {"spark.watermarkDelayMs": delay_ms}
    fields = [
        F.col(f"event.{name}").alias(name, metadata=marked) if name == time.name else F.col(f"event.{name}").alias(name)
        for name in fields_of(view.reading.event)
    ]
    return seen.where(F.col("outcome") == ACCEPTED).select(*fields).alias(GIVEN)


def analyse(view: View, records: DataFrame, delay: int) -> FreeJob:
    """Return the job of a free view, or raise an error that names what it may not do. `records` is its stream."""
    accepted = _accepted(view, records, delay)
    output = _called(view, accepted)
    check_view(view, output)
    types = dict(output.dtypes)
    _check_columns(view, types)
    keys = tuple(Key(k, _KINDS[types[k]]) for k in view.by)
    columns = tuple(TakenColumn(n, n, _KINDS[t]) for n, t in types.items() if n not in view.by)
    # The fingerprint is of Spark's plan of the function: a renamed variable or a comment changes nothing.
    text = plan_text(_called(view, output.sparkSession.createDataFrame([], accepted.schema).alias(GIVEN)))
    udf = code_fingerprint(view.function, view.source) if "PythonUDF" in text else None
    code = fingerprint([text, output.dtypes, view.latest, udf])
    return FreeJob(view, Latest(view.name, view.reading.origins, keys, columns, code=code, ttl=view.ttl))


def _called(view: View, events: DataFrame) -> DataFrame:
    try:
        output = view(events)
    except Exception as error:  # it is the user's code: it can raise anything
        said = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise DeclarationError(
            "view-function",
            f"{view.name} could not be built: {said}",
            why="its function raised an error of its own",
            fix=f"call {view.name}(df) with a DataFrame of your own to see it whole",
            source=view.source,
        ) from error
    if not isinstance(output, DataFrame):
        raise DeclarationError(
            "view-function",
            f"{view.name} returns {type(output).__name__}, not a DataFrame",
            why="a view is a DataFrame made of a DataFrame",
            fix="return what the function made of the DataFrame that it was given",
            source=view.source,
        )
    return output


def _check_columns(view: View, types: dict[str, str]) -> None:
    def refuse(what: str, why: str, fix: str) -> DeclarationError:
        return DeclarationError("view-columns", f"{view.name} {what}", why=why, fix=fix, source=view.source)

    for name in (*view.by, *((view.latest,) if view.latest else ())):
        if name not in types:
            raise refuse(
                f"returns no column {name!r}",
                f"its columns are {', '.join(types)}",
                "return it, or name another in by= or latest=",
            )
    for name, kind in types.items():
        if kind not in _KINDS:
            raise refuse(
                f"returns {name}, which is {kind}",
                f"a row holds {', '.join(_KINDS)}",
                "cast it, take its parts, or leave it out",
            )
    for name in view.by:
        if _KINDS[types[name]] not in KEY_KINDS:
            raise refuse(
                f"is keyed by {name}, which is {types[name]}",
                "a row is looked up by the text of its key",
                "key it by a string or an integer",
            )
    if view.latest and _KINDS[types[view.latest]] not in ("int", "datetime"):
        raise refuse(
            f"has latest={view.latest!r}, which is {types[view.latest]}",
            "the newest row is the one with the largest number or the latest time",
            "name a column of numbers or of timestamps",
        )
