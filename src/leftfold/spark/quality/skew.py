"""Logged values of predictions beside the values that the log gives: joined, compared, counted, listed.

A value is computed again by the definition of the build that the prediction names. Once from the records that this
build had at the batch that the prediction names, and once from all records that the log had at that moment. A value
that differs is looked at once more: is there a known reason for which it cannot be compared?
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from leftfold.declare.acceptance import ACCEPTED
from leftfold.declare.stream import Stream
from leftfold.fold.definition import Definition, Key
from leftfold.fold.durations import SECOND
from leftfold.fold.known import AsOf, Unknown
from leftfold.fold.latest import Latest
from leftfold.fold.reach import CLOCK_SLACK, value_reach
from leftfold.fold.vector import Part
from leftfold.spark.catalyst import entity
from leftfold.spark.quality.predictions import first_of_each
from leftfold.spark.source import Source, common_options
from leftfold.spark.training.assemble import ViewPast, cached, of_view, without_plan
from leftfold.spark.training.served import with_batches
from leftfold.spark.views.tiles import OWN, accepted

# The builds of one view that are told apart. Nobody makes as many; a topic with falsified records may have more.
_MOST_BUILDS = 200
_SHARES = 1_000_000
_MINUTE = 60 * SECOND
_WRONG = ("differs", "only then", "only now")
_MODES: tuple[tuple[AsOf, str], ...] = (("served", "s"), ("log", "g"))  # with the letter of their columns
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


@dataclass(frozen=True)
class ViewOfVector:
    """One view of the vector: where a prediction names its build and batch, and which features it gives."""

    name: str
    build: str
    batch: str
    found: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class BuildPast:
    """The past of one build of a view. A build that is `barred`, with a reason, cannot be computed again."""

    build: str
    barred: str | None = None
    past: ViewPast | None = None
    last: int = -1  # its last batch with a receipt
    unknown: tuple[Unknown, ...] = ()  # batches of which only the last is known
    beyond: Column | None = None  # true if a prediction's windows begin before the history that is left
    redrives: DataFrame | None = None  # entity, event_us, redriven_us
    compacted: bool = False  # older versions of its rows may be gone


@dataclass(frozen=True)
class Compared:
    """A feature's logged and computed values: how many are compared, equal, and different in which way."""

    compared: int
    differs: int
    only_then: int
    only_now: int
    not_log: int


@dataclass(frozen=True)
class Result:
    """The counts of a comparison, and the first of the values that differ."""

    features: dict[str, Compared]
    reasons: dict[str, tuple[int, str]]  # predictions that are not compared, or not in all of their views; one of them
    rows: list[dict[str, Any]]


def readable(rows: DataFrame) -> DataFrame:
    """The rows of a replay, with predictions that are late or from the future as accepted ones.

    Values can be computed again whenever they were logged. A record that is no prediction stays rejected.
    """
    outcome = F.col("_outcome")
    return rows.withColumn("_outcome", F.when(outcome.isin("late", "future"), F.lit(ACCEPTED)).otherwise(outcome))


class Predicted:
    """The predictions of one scorer, each once, with short names for their columns. Spark keeps them until `release`.

    `rows` are those of a replay of their topic, `keys` the names of the vector's keys.
    """

    def __init__(
        self,
        rows: DataFrame,
        scorer: str,
        keys: Sequence[str],
        views: Sequence[ViewOfVector],
        sample: int | None,
    ) -> None:
        self._kept: list[DataFrame] = []
        self.views, self.keys = views, tuple(keys)
        self.parts = [(number, part) for number, view in enumerate(views) for part in view.parts]
        columns = [
            F.col("prediction_id"),
            F.unix_micros("scored_at").alias("at"),
            F.col("outcome"),
            *(F.col(name).alias(f"k{i}") for i, name in enumerate(keys)),
            *(F.col(part.name).alias(f"t{j}") for j, (_, part) in enumerate(self.parts)),
        ]
        for number, view in enumerate(views):
            columns += [F.col(view.build).alias(f"b{number}"), F.col(view.batch).alias(f"n{number}")]
            columns.append(F.col(view.found).alias(f"o{number}"))
        # The outcome of a record is a long expression. It is computed before it is asked, or Spark would repeat it in a
        # condition so often that no heap holds the plan.
        read = cached(rows.select("_outcome", "_offset", "scorer", *columns))
        first = first_of_each(readable(read)).where(F.col("scorer") == F.lit(scorer))
        self.frame = self.keep(first.drop("_outcome", "_offset", "scorer"))
        read.unpersist()
        self.count, self.first, self.last = self._counted()
        if sample is not None and sample < self.count:
            share = sample * _SHARES // self.count
            text = F.concat_ws("/", *(F.col(f"k{i}").cast("string") for i in range(len(keys))))
            self.frame = self.keep(self.frame.where(F.crc32(text.cast("binary")) % F.lit(_SHARES) < F.lit(share)))
            self.count, self.first, self.last = self._counted()

    def _counted(self) -> tuple[int, int, int]:
        count, first, last = self.frame.agg(F.count(F.lit(1)), F.min("at"), F.max("at")).collect()[0]
        return int(count), int(first or 0), int(last or 0)

    def builds(self, number: int) -> dict[str, tuple[int, int]]:
        """Return the builds of a view that predictions name, each with the first and the last batch that they name."""
        build, batch = F.col(f"b{number}"), F.col(f"n{number}")
        named = self.frame.where(build.isNotNull()).groupBy(build.alias("build"))
        spans = named.agg(F.count(F.lit(1)).alias("count"), F.min(batch).alias("first"), F.max(batch).alias("last"))
        rows = spans.orderBy(F.desc("count"), "build").limit(_MOST_BUILDS).collect()
        return {row["build"]: (row["first"] or 0, row["last"] or 0) for row in rows}

    def entity(self, keys: tuple[Key, ...]) -> Column:
        return entity(keys, "", {key.name: F.col(f"k{self.keys.index(key.name)}") for key in keys})

    def keep(self, frame: DataFrame) -> DataFrame:
        """Let Spark keep a frame until `release`."""
        self._kept.append(cached(frame))
        return without_plan(self._kept[-1])

    def release(self) -> None:
        while self._kept:
            self._kept.pop().unpersist()


def redriven_rows(
    source: Source,
    topic: str,
    end: int,
    records: DataFrame,
    build: Definition,
    stream: Stream | None,
) -> DataFrame:
    """Columns entity, event_us, redriven_us: the corrected records that a build may hold, and since when (µs).

    `records` are those of a training set: corrected ones are not `original`. `end` is an offset of the re-drive topic.
    """
    options = {
        **common_options(source, (topic,)),
        "startingOffsets": "earliest",
        "endingOffsets": json.dumps({topic: {"0": end}}),
    }
    appended = records.sparkSession.read.format("kafka").options(**options).load()
    place = F.split(F.col("key").cast("string"), "/")
    times = (
        appended.select(
            place[0].cast("int").alias("slot"),
            place[1].cast("long").alias("offset"),
            F.unix_micros("timestamp").alias("redriven_us"),
        )
        .groupBy("slot", "offset")
        .agg(F.min("redriven_us").alias("redriven_us"))
    )
    rows = accepted(records.where(~F.col("original")), build, stream)
    placed = rows.join(F.broadcast(times), ["slot", "offset"])
    return placed.select(entity(build.keys, OWN).alias("entity"), "event_us", "redriven_us")


def compared(predicted: Predicted, builds: Sequence[Sequence[BuildPast]], grown: frozenset[str], most: int) -> Result:
    """Compare every logged value with what its build holds at its batch, and with what the log holds at its moment.

    `builds` has the builds of each view. `grown` are the parts that the first predictions of the topic may not have.
    At most `most` differing values are returned.
    """
    table = predicted.keep(_classed(predicted, builds))
    counts, reasons = _counted(predicted, table)
    if not any(counts[f"{wrong}{j}"] for wrong in _WRONG for j in range(len(predicted.parts))):
        return Result(_comparisons(predicted, counts, {}), reasons, [])
    differing = predicted.keep(_explained(predicted, builds, table, grown))
    explained, more = _reasons_in(differing)
    for reason, (count, first) in more.items():
        before, known = reasons.get(reason, (0, first))
        reasons[reason] = (before + count, known)
    rows = differing.where("reason is null").orderBy("at", "prediction_id", "part").limit(most).collect()
    return Result(_comparisons(predicted, counts, explained), reasons, [_as_dict(predicted, row) for row in rows])


# Values ---------------------------------------------------------------------------------------------------------------


def _classed(predicted: Predicted, builds: Sequence[Sequence[BuildPast]]) -> DataFrame:
    """The predictions with a reason rN for each view, and for each part its values sJ (build) and gJ (log), and cJ.

    A class cJ is null if the value is not compared.
    """
    base = predicted.frame
    for number, known in enumerate(builds):
        base = base.withColumn(f"r{number}", _reason(number, known)).withColumn(
            f"e{number}", _entity(predicted, number, known)
        )
    wide = base = predicted.keep(base)
    for number, known in enumerate(builds):
        parts = [(j, part) for j, (view, part) in enumerate(predicted.parts) if view == number]
        for mode, letter in _MODES:
            by = ["entity", "at", *(["upto"] if mode == "served" else [])]
            pieces = []
            for one in known:
                if one.past is None:
                    continue
                rows = base.where(F.col(f"r{number}").isNull() & (F.col(f"b{number}") == F.lit(one.build)))
                asked = rows.select(
                    F.col(f"e{number}").alias("entity"), "at", F.col(f"n{number}").cast("long").alias("upto")
                )
                found = of_view(one.past, asked.select(*by).dropna().distinct(), mode)
                pieces.append(
                    found.select(*by, F.lit(one.build).alias("build"), *_values(base, one.past, parts, letter))
                )
            if not pieces:
                for j, _ in parts:
                    wide = wide.withColumn(f"{letter}{j}", F.lit(None).cast(base.schema[f"t{j}"].dataType))
                continue
            values = reduce(DataFrame.unionByName, pieces)
            prefix = f"{letter}_{number}_"
            renamed = values.select(
                *(F.col(name).alias(prefix + name) for name in (*by, "build")), *(f"{letter}{j}" for j, _ in parts)
            )
            own = {"entity": f"e{number}", "at": "at", "upto": f"n{number}", "build": f"b{number}"}
            on = [F.col(own[name]) == F.col(prefix + name) for name in (*by, "build")]
            on.append(F.col(f"r{number}").isNull())
            wide = wide.join(renamed.hint("merge"), on, "left").drop(*(prefix + name for name in (*by, "build")))
    classes = {}
    for j, (number, part) in enumerate(predicted.parts):
        lacking = [b.build for b in builds[number] if b.past and part.feature not in b.past.definition.visible]
        classes[f"c{j}"] = F.when(F.col(f"r{number}").isNull(), _class(base, j, F.col(f"b{number}").isin(lacking)))
    return wide.withColumns(classes)


def _reason(number: int, known: Sequence[BuildPast]) -> Column:
    """The reason for which a view's values cannot be compared; null if they can."""
    build, batch, found = F.col(f"b{number}"), F.col(f"n{number}"), F.col(f"o{number}")
    unread = F.when(F.col("outcome") == "fallback", F.lit("fallback")).otherwise(F.lit("no provenance"))
    reason = F.when(found.isNull() | build.isNull() | batch.isNull(), unread)
    for one in known:
        if one.barred is not None:
            own = F.lit(one.barred)
        else:
            within = [(batch >= F.lit(u.first)) & (batch < F.lit(u.last)) for u in one.unknown]
            own = F.when(batch > F.lit(one.last), F.lit("batch unknown"))
            own = own.when(reduce(or_, within, F.lit(False)), F.lit("batches rolled up"))
            if one.beyond is not None:
                own = own.when(one.beyond, F.lit("history gone"))
        reason = reason.when(build == F.lit(one.build), own)
    return reason.otherwise(F.lit("definition gone"))


def _entity(predicted: Predicted, number: int, known: Sequence[BuildPast]) -> Column:
    """The entity of a view that a prediction was made for. All builds may have the same keys, so this is one column."""
    by_keys: dict[tuple[Key, ...], list[str]] = {}
    for one in known:
        if one.past is not None:
            by_keys.setdefault(one.past.definition.keys, []).append(one.build)
    text = F.lit(None).cast("string")
    for keys, builds in by_keys.items():
        text = F.when(F.col(f"b{number}").isin(builds), predicted.entity(keys)).otherwise(text)
    return text


def _values(base: DataFrame, past: ViewPast, parts: Sequence[tuple[int, Part]], letter: str) -> list[Column]:
    columns = []
    for j, part in parts:
        kind = base.schema[f"t{j}"].dataType
        if part.feature in past.definition.visible:
            value = F.col(f"f{past.definition.visible.index(part.feature)}")
            value = value if part.default is None else F.coalesce(value, F.lit(part.default))
        else:
            value = F.lit(None)
        columns.append(value.cast(kind).alias(f"{letter}{j}"))
    return columns


def _same(base: DataFrame, j: int, letter: str) -> Column:
    """True if the logged value and a computed one are the same to the last bit, or are both missing."""
    then, now = F.col(f"t{j}"), F.col(f"{letter}{j}")
    if isinstance(base.schema[f"t{j}"].dataType, ArrayType):  # a list that is missing is logged as an empty one
        then, now = _list(then), _list(now)
    return then.eqNullSafe(now)


def _list(value: Column) -> Column:
    return F.when(F.size(value) > 0, value)


def _class(base: DataFrame, j: int, lacking: Column) -> Column:
    then, now = F.col(f"t{j}"), F.col(f"s{j}")
    if isinstance(base.schema[f"t{j}"].dataType, ArrayType):
        then, now = _list(then), _list(now)
    return (
        F.when(lacking & then.isNull(), F.lit(None).cast("string"))  # neither the build nor the prediction has it
        .when(_same(base, j, "s"), "equal")
        .when(then.isNull(), "only now")
        .when(now.isNull(), "only then")
        .otherwise("differs")
    )


# Counts ---------------------------------------------------------------------------------------------------------------


def _counted(predicted: Predicted, table: DataFrame) -> tuple[dict[str, int], dict[str, tuple[int, str]]]:
    """Count the classes of each part, and the predictions for each reason, in one pass over the table."""
    asked = {}
    for j in range(len(predicted.parts)):
        is_ = F.col(f"c{j}")
        for name in ("equal", *_WRONG):
            asked[f"{name}{j}"] = F.count(F.when(is_ == name, 1))
        asked[f"log{j}"] = F.count(F.when(is_.isNotNull() & ~_same(table, j, "g"), 1))
    (row,) = table.agg(*(count.alias(name) for name, count in asked.items())).collect()
    reasons = F.array_distinct(F.array_compact(F.array(*(F.col(f"r{n}") for n in range(len(predicted.views))))))
    by_reason = table.select("prediction_id", F.explode(reasons).alias("reason")).groupBy("reason")
    found = by_reason.agg(F.count(F.lit(1)).alias("count"), F.min("prediction_id").alias("first")).collect()
    return {name: int(row[name]) for name in asked}, {r["reason"]: (int(r["count"]), r["first"]) for r in found}


def _comparisons(
    predicted: Predicted, counts: Mapping[str, int], explained: Mapping[tuple[int, str], tuple[int, int]]
) -> dict[str, Compared]:
    """The counts of each part, without the values that have a reason to differ (`explained`, by part and class)."""
    found = {}
    for j, (_, part) in enumerate(predicted.parts):
        wrong = {name: counts[f"{name}{j}"] - explained.get((j, name), (0, 0))[0] for name in _WRONG}
        not_log = counts[f"log{j}"] - sum(explained.get((j, name), (0, 0))[1] for name in _WRONG)
        compared_ = counts[f"equal{j}"] + sum(wrong.values())
        found[part.name] = Compared(compared_, wrong["differs"], wrong["only then"], wrong["only now"], not_log)
    return found


# Values that differ ---------------------------------------------------------------------------------------------------


def _explained(
    predicted: Predicted, builds: Sequence[Sequence[BuildPast]], table: DataFrame, grown: frozenset[str]
) -> DataFrame:
    """One row for each value that differs, with the reason for which it cannot be compared, if there is one."""
    values = [
        F.struct(
            F.lit(j).alias("part"),
            F.lit(number).alias("view"),
            F.col(f"c{j}").alias("class"),
            (~_same(table, j, "g")).alias("not_log"),
            _text(F.col(f"t{j}")).alias("then"),
            _text(F.col(f"s{j}")).alias("now"),
            F.col(f"b{number}").alias("build"),
            F.col(f"n{number}").alias("batch"),
            F.col(f"e{number}").alias("entity"),
        )
        for j, (number, _) in enumerate(predicted.parts)
    ]
    wrong = reduce(or_, (F.col(f"c{j}").isin(*_WRONG) for j in range(len(predicted.parts))))
    own = ("prediction_id", "at", *(f"k{i}" for i in range(len(predicted.keys))))
    rows = table.where(wrong).select(*own, F.explode(F.array(*values)).alias("value"))
    rows = predicted.keep(rows.where(F.col("value.class").isin(*_WRONG)).select(*own, "value.*"))
    doubts = [
        doubt
        for number, known in enumerate(builds)
        for one in known
        if one.past is not None
        for doubt in _doubts(
            rows.where((F.col("view") == number) & (F.col("build") == F.lit(one.build)))
            .select("prediction_id", "view", "entity", "at", F.col("batch").cast("long").alias("upto"))
            .distinct(),
            one,
        )
    ]
    if doubts:
        by = ["prediction_id", "view"]
        said = reduce(DataFrame.unionByName, doubts).groupBy(*by).agg(F.min("doubt").alias("doubt"))
        rows = rows.join(said, by, "left")
    else:
        rows = rows.withColumn("doubt", F.lit(None).cast("string"))
    new = [j for j, (_, part) in enumerate(predicted.parts) if part.name in grown]
    older = F.col("part").isin(new) & (F.col("class") == "only now")
    return rows.withColumn("reason", F.coalesce("doubt", F.when(older, F.lit("older vector")))).drop("doubt")


def _doubts(asked: DataFrame, one: BuildPast) -> list[DataFrame]:
    """The predictions of `asked` (prediction_id, view, entity, at, upto) for which a value may differ, with the reason.

    - re-driven: corrected records reach into the windows. Tiles are corrected after their batch, and keep its number.
    - ahead: an event of the batch happened after the read's moment. A reader whose clock was behind saw its tile.
    - lake behind: the lake of a function may not have its newest rows yet.
    - compacted: the log may no longer have the version of the row that was read.
    """
    assert one.past is not None
    definition, found = one.past.definition, []
    who = asked.select("prediction_id", "view", "entity", "at", "upto")

    def doubt(rows: DataFrame, why: str) -> DataFrame:
        return rows.select("prediction_id", "view", F.lit(why).alias("doubt"))

    if one.redrives is not None:
        reach = value_reach(definition)
        within = F.col("redriven_us") <= F.col("at") + F.lit(CLOCK_SLACK)
        if reach is not None:
            within &= F.col("event_us") >= F.col("at") - F.lit(reach)
        found.append(doubt(who.join(one.redrives, "entity").where(within), "re-driven"))
    if isinstance(definition, Definition):
        reach = definition.future + CLOCK_SLACK
        rows = with_batches(one.past.unredriven, one.past.batches, one.past.begins)
        events = rows.select(
            entity(definition.keys, OWN).alias("entity"),
            "event_us",
            "batch",
            F.expr(f"event_us div {_MINUTE}").alias("minute"),
        )
        minutes = F.expr(f"sequence(`at` div {_MINUTE}, (`at` + {reach}) div {_MINUTE})")
        near = who.withColumn("minute", F.explode(minutes)).join(events, ["entity", "minute"])
        # A read is made after the newest event that was marked. So only a batch that was being written has newer ones,
        # unless producers stamp the log: then a clock that is ahead counts only up to a limit.
        stamped = any(origin.log_time == "producer" for origin in definition.origins)
        of_batch = F.col("batch") <= F.col("upto") if stamped else F.col("batch") == F.col("upto")
        found.append(doubt(near.where((F.col("event_us") >= F.col("at")) & of_batch), "ahead"))
    if one.past.recorded:
        newest_row = one.past.rows.agg(F.max("log_us").alias("recorded_us"))
        reached = F.col("recorded_us") > F.col("at") + F.lit(CLOCK_SLACK)
        behind = who.crossJoin(F.broadcast(newest_row)).where(~F.coalesce(reached, F.lit(False)))
        found.append(doubt(behind, "lake behind"))
    if isinstance(definition, Latest) and one.compacted:
        versions = one.past.rows.groupBy("entity").agg(F.count(F.lit(1)).alias("all"))
        dated = with_batches(one.past.rows, one.past.batches, one.past.begins)
        newest = dated.groupBy("entity").agg(F.count(F.lit(1)).alias("dated"), F.max("batch").alias("newest"))
        seen = who.join(versions, "entity", "left").join(newest, "entity", "left")
        sure = (F.col("all") == F.col("dated")) & (F.col("newest") <= F.col("upto"))
        found.append(doubt(seen.where(~F.coalesce(sure, F.lit(False))), "compacted"))
    return found


def _reasons_in(differing: DataFrame) -> tuple[dict[tuple[int, str], tuple[int, int]], dict[str, tuple[int, str]]]:
    """Count the values with a reason by part and class, and of these those ≠ log; and the predictions by reason."""
    excused = differing.where("reason is not null")
    values = excused.groupBy("part", "class").agg(
        F.count(F.lit(1)).alias("count"), F.count(F.when(F.col("not_log"), 1)).alias("not_log")
    )
    predictions = excused.groupBy("reason").agg(
        F.count_distinct("prediction_id").alias("count"), F.min("prediction_id").alias("first")
    )
    return (
        {(row["part"], row["class"]): (int(row["count"]), int(row["not_log"])) for row in values.collect()},
        {row["reason"]: (int(row["count"]), row["first"]) for row in predictions.collect()},
    )


def _text(value: Column) -> Column:
    """The JSON of a value, so that values of all kinds fit into one column."""
    return F.to_json(F.struct(value.alias("v")), _JSON)


def _as_dict(predicted: Predicted, row: Any) -> dict[str, Any]:
    number, part = predicted.parts[row["part"]]
    return {
        "prediction_id": row["prediction_id"],
        "at": row["at"],
        "feature": part.name,
        "view": predicted.views[number].name,
        "kind": row["class"],
        "then": json.loads(row["then"])["v"],
        "now": json.loads(row["now"])["v"],
        "key": {name: row[f"k{i}"] for i, name in enumerate(predicted.keys)},
        "build": row["build"],
        "batch": row["batch"],
    }
