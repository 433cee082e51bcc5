"""A training set as one DataFrame: the labels, beside each the features of a vector at its moment.

Lays side by side what `as_of` and `latest_as_of` give of each view; counts, compares and hashes it where asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leftfold.errors import RunError
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.fold.vector import VectorDefinition
from leftfold.spark.as_of import ALL_BATCHES, KEYS, AsOf, features_as_of, known_by_event, known_by_log
from leftfold.spark.files import read_text, write_text
from leftfold.spark.labels import Labels
from leftfold.spark.latest_as_of import rows_as_of
from leftfold.spark.served import AppliedBatch, known_by_store, with_batches, with_upto
from leftfold.spark.source import SLOTS_PER_TOPIC

Counts = dict[tuple[str, str, str], int]

# Beside the files of a training set; Spark and pandas pass over a name with an underscore when they read a directory.
MANIFEST = "_training_set.json"


@dataclass(frozen=True)
class ViewPast:
    """A view as far as its history is at hand."""

    name: str
    definition: Definition | Latest
    rows: DataFrame  # accepted events, or every version of every row
    unredriven: DataFrame  # those of them that the stream has seen
    batches: Sequence[AppliedBatch] = ()  # of the build whose readers are asked about
    recorded: bool = False  # the rows name their batch themselves


@dataclass(frozen=True)
class Assembled:
    """Labels and views side by side."""

    labels: Labels
    vector: VectorDefinition
    wide: DataFrame
    features: dict[AsOf, dict[str, Column]]  # by its name what each is in `wide`

    def frame(self, as_of: AsOf) -> DataFrame:
        """The columns of the labels, and the features, under their names."""
        given = {i.name: self.labels.given(i) for i in self.vector.inputs}
        kept_ = [given.get(name, F.col(f"l{i}")).alias(name) for i, name in enumerate(self.labels.names)]
        made = self.features[as_of]
        return self.wide.select(*kept_, *(made[name].alias(name) for name in self.vector.order if name in made))


def assembled(
    labels: Labels,
    vector: VectorDefinition,
    views: Mapping[str, ViewPast],
    modes: Sequence[AsOf],
    read: Mapping[str, Column],
) -> Assembled:
    """`read` has, of a view, the column with the batch that a label's reader got, if the labels have it."""
    wide = labels.frame
    features: dict[AsOf, dict[str, Column]] = {}
    for number, name in enumerate(vector.views):
        entity = labels.entity(name, views[name].definition.keys)
        wide = wide.withColumn(f"v{number}_entity", entity).withColumn(f"v{number}_at", F.col("at"))
        if name in read:
            wide = wide.withColumn(f"v{number}_upto", read[name])
    labelled = wide  # what is asked does not hang on what was found for others
    for as_of in modes:
        for number, name in enumerate(vector.views):
            by = ["entity", "at", *(["upto"] if as_of == "served" and name in read else [])]
            asked = labelled.select(*(F.col(f"v{number}_{key}").alias(key) for key in by)).dropna().distinct()
            found = _of_view(views[name], asked, as_of)
            prefix = f"{as_of}{number}_"
            renamed = found.toDF(*(prefix + column for column in found.columns))
            on = [F.col(f"v{number}_{key}") == F.col(prefix + key) for key in by]
            wide = wide.join(renamed.hint("merge"), on, "left")
        features[as_of] = {}
        for part in vector.parts:
            place = views[part.view].definition.visible.index(part.feature)
            value = F.col(f"{as_of}{vector.views.index(part.view)}_f{place}")
            features[as_of][part.name] = value if part.default is None else F.coalesce(value, F.lit(part.default))
    return Assembled(labels, vector, wide, features)


def _of_view(past: ViewPast, asked: DataFrame, as_of: AsOf) -> DataFrame:
    definition, rows = past.definition, past.rows
    if as_of == "served":
        if "upto" not in asked.columns:
            asked = with_upto(asked, past.batches)
        rows = rows if past.recorded else with_batches(past.unredriven, past.batches)
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


# What is asked of it -------------------------------------------------------------------------------------------------


def moments(labels: Labels) -> tuple[int, int | None, int | None]:
    """How many labels there are, and the first and the last of their moments."""
    found = labels.frame.agg(F.count(F.lit(1)), F.min("at"), F.max("at")).collect()[0]
    return int(found[0]), found[1], found[2]


def kept(frame: DataFrame) -> DataFrame:
    """Read once, whatever is made of it later; on disk what the memory does not hold."""
    stored = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        stored.count()
    except (PySparkException, Py4JError) as error:
        stored.unpersist()
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise RunError(
            "history-unreadable",
            "the records that a training set needs could not be read",
            why=said[:300],
            fix="see the log of Spark for more; once its cause is corrected, run the same again",
            retriable=True,
        ) from error
    return stored


def marked(records: DataFrame, *, original: bool) -> DataFrame:
    """Whether they are as the log has them, or re-driven: those no batch of the stream has brought into a store."""
    return records.withColumn("original", F.lit(original))


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """Records of several topics of one view, each partition of each under a slot of its own."""
    placed = [part.withColumn("slot", F.col("slot") + F.lit(i * SLOTS_PER_TOPIC)) for i, part in enumerate(parts)]
    return reduce(DataFrame.unionByName, placed)


def originals(records: DataFrame) -> DataFrame:
    return records.where("original")


def oldest_logged(records: DataFrame, slots: Sequence[int]) -> int | None:
    """The moment (µs) from which on all of these partitions have what was logged."""
    firsts = records.where(F.col("slot").isin(list(slots))).groupBy("slot").agg(F.min("log_time").alias("first"))
    (row,) = firsts.agg(F.max(F.unix_micros("first"))).collect()
    return None if row[0] is None else int(row[0])


def outside(windowed: Iterable[Definition], known_since: Callable[[Definition], Any]) -> Column:
    """Whether a label's windows reach back beyond the history.

    `known_since` says of a view since when (µs) its topics have all that was logged; "always"; None: of nothing.
    """
    reached: list[Column] = []
    for definition in windowed:
        since = known_since(definition)
        if since == "always":
            continue
        if since is None or definition.lifetime:
            return F.lit(True)
        # What happened after this was logged after `since`, whoever's clock was ahead.
        first = F.lit(since + definition.future)
        for feature in definition.windowed:
            start = F.col("at") - F.lit(feature.window)
            reached.append(start - F.pmod(start, F.lit(feature.step)) < first)
    return reduce(or_, reached, F.lit(False))


def report_on(made: Assembled, as_of: AsOf, beyond: Column, unknown: Iterable[tuple[int, int]]) -> Counts:
    """`beyond` holds for a label outside of the history; `unknown` are times (µs) of which batches are not known."""
    within = [(F.col("at") >= F.lit(start)) & (F.col("at") < F.lit(end)) for start, end in unknown]
    features = made.features
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
    found = made.wide.agg(*(F.count(F.when(holds, F.lit(1))).alias(f"n{i}") for i, holds in enumerate(asked.values())))
    (row,) = found.collect()
    return {key: int(row[f"n{i}"]) for i, key in enumerate(asked)}


def digest_of(frame: DataFrame) -> str:
    """Of rows and values, whatever their order: equal sets have equal digests."""
    hashes = F.xxhash64(*(F.col(f"`{name}`") for name in frame.columns)).cast("decimal(38,0)")
    rows, total = frame.agg(F.count(F.lit(1)), F.sum(hashes)).collect()[0]
    return f"{rows}-{int(total or 0) % (1 << 64):016x}"


# In files ------------------------------------------------------------------------------------------------------------


def written(frame: DataFrame, directory: str, described: Callable[[DataFrame], dict[str, Any]]) -> dict[str, Any]:
    """Parquet files, and then what `described` says of them beside them: without that they are no training set."""
    session = frame.sparkSession
    frame.write.mode("errorifexists").parquet(directory)
    manifest = described(session.read.parquet(directory))
    write_text(session, f"{directory}/{MANIFEST}", json.dumps(manifest, indent=1))
    return manifest


def read_manifest(session: SparkSession, directory: str) -> dict[str, Any] | None:
    """None if there is none, or if whoever wrote it died before its end."""
    text = read_text(session, f"{directory}/{MANIFEST}")
    try:
        found: dict[str, Any] | None = None if text is None else json.loads(text)
    except json.JSONDecodeError:
        return None
    return found
