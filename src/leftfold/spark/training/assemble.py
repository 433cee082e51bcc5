"""A training set as one DataFrame: the labels, and next to each label the features of a vector at its moment.

It joins the results of `as_of` and `latest_as_of` for each view (a point-in-time join). It also counts, compares and
hashes the training set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.declare.prediction import build_column
from leftfold.errors import RunError
from leftfold.fold.definition import Definition
from leftfold.fold.known import ALL_BATCHES, AppliedBatch, AsOf, Unknown
from leftfold.fold.latest import Latest
from leftfold.fold.vector import VectorDefinition
from leftfold.kafka.failures import in_java
from leftfold.offsets import SLOTS_PER_TOPIC
from leftfold.places import directory_taken
from leftfold.spark.files import absolute, exists, write_text
from leftfold.spark.training.as_of import KEYS, features_as_of, known_by_event, known_by_log
from leftfold.spark.training.labels import Labels, logged_mark
from leftfold.spark.training.latest_as_of import rows_as_of
from leftfold.spark.training.served import known_by_store, with_batches, with_upto

Counts = dict[tuple[str, str, str], int]


@dataclass(frozen=True)
class ViewPast:
    """The available history of a view."""

    name: str
    definition: Definition | Latest
    rows: DataFrame  # accepted events, or every version of every row
    unredriven: DataFrame  # `rows` that the stream has seen, without re-driven ones
    batches: Sequence[AppliedBatch] = ()  # of the build that the labels' readers used
    recorded: bool = False  # the rows contain their batch
    begins: Mapping[int, int] = field(default_factory=dict)  # by slot: where the build of `batches` began to read


@dataclass(frozen=True)
class Assembled:
    """Labels joined with the features of all views."""

    labels: Labels
    vector: VectorDefinition
    wide: DataFrame
    features: dict[AsOf, dict[str, Column]]  # by feature name: its column in `wide`

    def frame(self, as_of: AsOf, moment: str | None = None) -> DataFrame:
        """The columns of the labels and the features, with their own names; last `moment`, in µs, if it is named."""
        inputs = {i.name: self.labels.given(i) for i in self.vector.inputs}
        kept_ = [inputs.get(name, F.col(f"l{i}")).alias(name) for i, name in enumerate(self.labels.names)]
        features = self.features[as_of]
        made = [features[name].alias(name) for name in self.vector.order if name in features]
        return self.wide.select(*kept_, *made, *([] if moment is None else [F.col("at").alias(moment)]))


def assembled(
    labels: Labels,
    vector: VectorDefinition,
    views: Mapping[str, ViewPast],
    modes: Sequence[AsOf],
    read: Mapping[str, Column],
    logged: Mapping[str, LoggedPart] | None = None,
) -> Assembled:
    """Join the labels with the features of each view, for each of `modes`.

    `read` maps a view to the column with the batch that a label's reader got, if the labels have such a column.
    `logged` are the parts that labels hold as they were served, by name.
    """
    wide = labels.frame
    features: dict[AsOf, dict[str, Column]] = {}
    for number, name in enumerate(vector.views):
        entity = labels.entity(name, views[name].definition.keys)
        wide = wide.withColumn(f"v{number}_entity", entity).withColumn(f"v{number}_at", F.col("at"))
        if name in read:
            wide = wide.withColumn(f"v{number}_upto", read[name])
    labelled = wide  # asked rows must not depend on the joins with other views
    for as_of in modes:
        for number, name in enumerate(vector.views):
            by = ["entity", "at", *(["upto"] if as_of == "served" and name in read else [])]
            asked = labelled.select(*(F.col(f"v{number}_{key}").alias(key) for key in by)).dropna().distinct()
            view_frame = of_view(views[name], asked, as_of)
            prefix = f"{as_of}{number}_"
            renamed = view_frame.toDF(*(prefix + column for column in view_frame.columns))
            on = [F.col(f"v{number}_{key}") == F.col(prefix + key) for key in by]
            wide = wide.join(renamed.hint("merge"), on, "left")
        features[as_of] = {}
        for part in vector.parts:
            place = views[part.view].definition.visible.index(part.feature)
            value = F.col(f"{as_of}{vector.views.index(part.view)}_f{place}")
            value = value if part.default is None else F.coalesce(value, F.lit(part.default))
            if as_of == "served" and logged and part.name in logged:
                value = F.when(logged[part.name].valid, logged[part.name].value).otherwise(value)
            features[as_of][part.name] = value
    return Assembled(labels, vector, wide, features)


@dataclass(frozen=True)
class LoggedPart:
    """A part of a vector that labels hold, and the condition under which it is of the definition of now."""

    value: Column
    valid: Column


def logged_parts(labels: Labels, vector: VectorDefinition, fingerprints: Mapping[str, str]) -> dict[str, LoggedPart]:
    """The parts of a vector that were logged with the labels, by name.

    A value is valid if the build that it was read from has the fingerprint of the view as it is declared now.
    """
    found = {}
    for part in vector.parts:
        place, build = labels.logged.get(logged_mark(part)), build_column(part.view)
        if place is not None and build in labels.names:
            fingerprint = F.substring_index(F.col(f"l{labels.names.index(build)}"), "-", 1)
            valid = F.coalesce(fingerprint == F.lit(fingerprints[part.view]), F.lit(False))
            found[part.name] = LoggedPart(F.col(place), valid)
    return found


def count_logged(labels: Labels, logged: Mapping[str, LoggedPart]) -> dict[str, int]:
    """The number of labels whose value of a part was logged, by the part's name."""
    if not logged:
        return {}
    counts = [F.count(F.when(part.valid, F.lit(1))).alias(f"n{i}") for i, part in enumerate(logged.values())]
    (row,) = labels.frame.agg(*counts).collect()
    return {name: int(row[f"n{i}"]) for i, name in enumerate(logged)}


def of_view(past: ViewPast, asked: DataFrame, as_of: AsOf) -> DataFrame:
    """Columns entity, at, upto, and the visible features of a view as f0, f1, …: one row for each row of `asked`.

    The rows of `asked` (entity, at) are distinct. For "served" they may have `upto`, the batch that a reader got.
    """
    definition, rows = past.definition, past.rows
    if as_of == "served":
        if "upto" not in asked.columns:
            asked = with_upto(asked, past.batches)
        rows = rows if past.recorded else with_batches(past.unredriven, past.batches, past.begins)
    if isinstance(definition, Latest):
        if as_of != "served":
            asked = asked.withColumn("upto", F.lit(ALL_BATCHES))
        return rows_as_of(asked.select(*KEYS), rows, definition, as_of)
    if as_of == "event":
        known = known_by_event(asked)
    elif as_of == "log":
        known = known_by_log(asked, definition)
    else:
        known = known_by_store(asked, rows, past.batches, definition.lateness)
    return features_as_of(known, rows, definition, as_of)


# Questions about a training set --------------------------------------------------------------------------------------


def moments(labels: Labels) -> tuple[int, int | None, int | None]:
    """The number of labels, and the first and the last of their moments (µs)."""
    summary = labels.frame.agg(F.count(F.lit(1)), F.min("at"), F.max("at")).collect()[0]
    return int(summary[0]), summary[1], summary[2]


def batch_span(labels: Labels, read: Column) -> tuple[int, int] | None:
    """The first and the last batch that labels name; None if no label names one."""
    first, last = labels.frame.agg(F.min(read), F.max(read)).collect()[0]
    return None if first is None else (int(first), int(last))


def among(labels: Labels, unknown: Iterable[Unknown], read: Column | None) -> int:
    """The number of labels that need a batch that is not known, by the batch they name, otherwise by their moment."""
    asked = F.lit(None).cast("long") if read is None else read
    within = F.lit(False)
    for span in unknown:
        named = (asked >= F.lit(span.first)) & (asked < F.lit(span.last))
        at = (F.col("at") >= F.lit(span.since)) & (F.col("at") < F.lit(span.until))
        within = within | F.when(asked.isNotNull(), named).otherwise(at)
    return int(labels.frame.where(within).count())


def cached(frame: DataFrame, what: str = "a training set needs") -> DataFrame:
    """Persist a frame, so that it is read only once. What does not fit into memory goes to disk."""
    stored = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        stored.count()
    except (PySparkException, Py4JError) as error:
        stored.unpersist()
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise in_java(str(error)) or RunError(
            "history-unreadable",
            f"the records that {what} could not be read",
            why=said[:300],
            fix="see the log of Spark for more; once its cause is corrected, run the same again",
            retriable=True,
        ) from error
    return stored


def without_plan(stored: DataFrame) -> DataFrame:
    """The rows of a cached frame, without the plan that made them.

    Spark plans the whole history of a frame again wherever the frame is used. A frame that is used twice at each of ten
    steps would be planned a thousand times: such a plan has filled a heap of 1 GB. Rows that Spark has dropped from its
    cache, or lost with an executor, are still computed again.
    """
    session: Any = stored.sparkSession
    rows = stored.select("*")._jdf.queryExecution().toRdd()  # a new frame: its plan begins at the cache
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, stored._jdf.schema(), False), session)


def marked(records: DataFrame, *, original: bool) -> DataFrame:
    """Mark records as the log's own (`original`) or re-driven. No batch of the stream wrote re-driven ones."""
    return records.withColumn("original", F.lit(original))


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """Union the records of several topics of one view. Each partition of each topic gets its own slot."""
    placed = [part.withColumn("slot", F.col("slot") + F.lit(i * SLOTS_PER_TOPIC)) for i, part in enumerate(parts)]
    return reduce(DataFrame.unionByName, placed)


def originals(records: DataFrame) -> DataFrame:
    return records.where("original")


def oldest_logged(records: DataFrame, slots: Sequence[int]) -> int | None:
    """The moment (µs) from which on all of these partitions have their records; None if there are none."""
    firsts = records.where(F.col("slot").isin(list(slots))).groupBy("slot").agg(F.min("log_time").alias("first"))
    (row,) = firsts.agg(F.max(F.unix_micros("first"))).collect()
    return None if row[0] is None else int(row[0])


def outside(windowed: Iterable[Definition], known_since: Callable[[Definition], Any]) -> Column:
    """True if a label's windows start before the available history.

    `known_since` returns the moment (µs) since which all records of a view's topics are available. It may also return
    "always", or None if no records are available.
    """
    reached: list[Column] = []
    for definition in windowed:
        since = known_since(definition)
        if since == "always":
            continue
        if since is None or definition.lifetime:
            return F.lit(True)
        # An event after this moment was logged after `since`, even if its producer's clock was ahead.
        first = F.lit(since + definition.future)
        for feature in definition.windowed:
            start = F.col("at") - F.lit(feature.window)
            reached.append(start - F.pmod(start, F.lit(feature.step)) < first)
    return reduce(or_, reached, F.lit(False))


def report_on(table: Assembled, as_of: AsOf, beyond: Column, unknown: Iterable[tuple[int, int]]) -> Counts:
    """Count labels, missing values, and features that differ between modes.

    `beyond` is true for a label outside of the history. `unknown` are spans of time (µs) whose batches are not known.
    """
    within = [(F.col("at") >= F.lit(start)) & (F.col("at") < F.lit(end)) for start, end in unknown]
    features = table.features
    pairs = [(a, b) for i, a in enumerate(features) for b in list(features)[i + 1 :]]
    asked: dict[tuple[str, str, str], Column] = {
        ("labels", "", ""): F.lit(True),
        ("outside", "", ""): beyond,
        ("unknown", "", ""): reduce(or_, within, F.lit(False)),
        ("without time", "", ""): F.col("at").isNull(),
        **{("missing", "", name): value.isNull() for name, value in features[as_of].items()},
        **{
            (a, b, name): ~features[a][name].eqNullSafe(features[b][name]) for a, b in pairs for name in features[as_of]
        },
    }
    tally = table.wide.agg(*(F.count(F.when(holds, F.lit(1))).alias(f"n{i}") for i, holds in enumerate(asked.values())))
    (row,) = tally.collect()
    return {key: int(row[f"n{i}"]) for i, key in enumerate(asked)}


def digest_of(frame: DataFrame) -> str:
    """A digest of rows and values that does not depend on their order: equal sets have equal digests."""
    hashes = F.xxhash64(*(F.col(f"`{name}`") for name in frame.columns)).cast("decimal(38,0)")
    rows, total = frame.agg(F.count(F.lit(1)), F.sum(hashes)).collect()[0]
    return f"{rows}-{int(total or 0) % (1 << 64):016x}"


# Files ------------------------------------------------------------------------------------------------------------


def check_free(session: SparkSession, directory: str, *, what: str) -> None:
    """Raise if the directory exists already."""
    if exists(session, directory):
        raise directory_taken(directory, what=what)


def written(
    frame: DataFrame, directory: str, described: Callable[[DataFrame], dict[str, Any]], manifest_name: str
) -> dict[str, Any]:
    """Write Parquet files, and then the manifest that `described` makes of them. Return the manifest.

    Files without a manifest are not a training set.
    """
    session = frame.sparkSession
    directory = absolute(session, directory)
    frame.write.mode("errorifexists").parquet(directory)
    manifest = described(session.read.parquet(directory))
    write_text(session, f"{directory}/{manifest_name}", json.dumps(manifest, indent=1))
    return manifest
