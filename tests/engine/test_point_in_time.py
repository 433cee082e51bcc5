"""Every aggregate over three windows at the moments of labels, by every rule of time, against two others' results.

`make engine` runs a small version; `make point-in-time` 2,000,000 events and 100,000 labels. One is the oracle of
`made_history`, one is DuckDB, which knows nothing of tiles either; sketches it does not have. The records are made up,
with log times and batches, as `spark.source` would give them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import leftfold as lf
from leftfold.fold.known import AppliedBatch, AsOf
from leftfold.settings import Spark
from leftfold.spark.session import build_session
from leftfold.spark.source import HASHES
from leftfold.spark.training import as_of
from leftfold.spark.training.as_of import features_as_of, known_by_event, known_by_log
from leftfold.spark.training.served import known_by_store, with_batches, with_upto
from leftfold.spark.views.tiles import accepted
from tests.engine import made_history
from tests.engine.made_history import HOUR, LATENESS, MODES, WINDOWS, Asked, History
from tests.engine.sales import Sale, over, sales

FULL = os.environ.get("LEFTFOLD_POINT_IN_TIME") == "full"
EVENTS, KEYS, LABELS = (2_000_000, 20_000, 100_000) if FULL else (30_000, 300, 1_500)
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))


Shop: Any = type("Shop", (lf.Features,), {**over("1h"), **over("6h"), **over("24h")}, of=sales, by=Sale.shop)
DEFINITION = Shop.__leftfold_definition__


@dataclass(frozen=True)
class Made:
    history: History
    asked: Asked
    events_file: str
    labels_file: str
    records: DataFrame


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """In full, one with room for all events at once; `make point-in-time` runs nothing else."""
    if not FULL:
        yield request.getfixturevalue("leftfold_spark")
        return
    roomy = Spark(conf={"spark.driver.memory": "5g"})
    session = build_session(roomy, application="point in time", log_file=tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Made]:
    print(f"seed {SEED}, {EVENTS:,} events, {KEYS:,} keys, {LABELS:,} labels")
    directory = tmp_path_factory.mktemp("point-in-time")
    history = made_history.made_history(EVENTS, KEYS, SEED)
    asked = made_history.made_labels(history, LABELS, KEYS, SEED)
    applied = {number: moment for number, moment, _ in history.batches}
    columns = {
        **{name: getattr(history, name) for name in ("slot", "offset", "log", "time", "pieces", "item", "key")},
        "cents": history.price_cents,
        "applied": pa.array([applied.get(b) for b in history.batch.tolist()], pa.int64()),
    }
    files = [str(directory / name) for name in ("events.parquet", "labels.parquet")]
    pq.write_table(pa.table(columns), files[0])
    pq.write_table(pa.table({"label": range(LABELS), "key": asked.key, "moment": asked.at}), files[1])
    records = records_of(spark.read.parquet(files[0])).persist()
    yield Made(history, asked, files[0], files[1], records)
    records.unpersist()


def records_of(events: DataFrame) -> DataFrame:
    """slot, offset, key, deleted, log_time, by_broker, event."""
    item = F.when(F.col("item") >= 0, F.concat(F.lit("i"), F.col("item").cast("string")))
    event = F.struct(
        F.concat(F.lit("s"), F.col("key").cast("string")).alias("shop"),
        item.alias("item"),
        (F.col("cents") / F.lit(100.0)).alias("price"),
        "pieces",
        F.timestamp_micros("time").alias("at"),
    )
    return events.select(
        F.col("slot").cast("int").alias("slot"),
        "offset",
        F.lit(None).cast("binary").alias("key"),
        F.lit(False).alias("deleted"),
        F.timestamp_micros("log").alias("log_time"),
        F.lit(True).alias("by_broker"),
        event.alias("event"),
        *(F.lit(0).cast("long").alias(name) for name in HASHES),
    )


def found(made: Made, spark: SparkSession, mode: AsOf) -> dict[tuple[str, int], dict[str, Any]]:
    labels = spark.read.parquet(made.labels_file)
    asked = labels.select(
        F.concat(F.lit("s"), F.col("key").cast("string")).alias("entity"), F.col("moment").alias("at")
    )
    asked = asked.distinct()
    rows = accepted(made.records, DEFINITION)
    if mode == "event":
        known = known_by_event(asked)
    elif mode == "log":
        known = known_by_log(asked, DEFINITION)
    else:
        batches = [AppliedBatch(*batch) for batch in made.history.batches]
        rows = with_batches(rows, batches)
        known = known_by_store(with_upto(asked, batches), rows, batches, DEFINITION.lateness)
    table = features_as_of(known, rows, DEFINITION, mode)
    values = {name: f"f{i}" for i, name in enumerate(DEFINITION.visible)}
    moments = [name for name in values if name.startswith("max")]
    plain = table.withColumns({values[name]: F.unix_micros(values[name]) for name in moments})
    return {(row.entity, row["at"]): {n: row[column] for n, column in values.items()} for row in plain.collect()}


@pytest.fixture(scope="module")
def ours(made: Made, spark: SparkSession) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    """With entities of both kinds: of events alone, and of tiles."""
    with pytest.MonkeyPatch.context() as patch:
        if not FULL:
            patch.setattr(as_of, "MANY_EVENTS", 80)
        sizes = Counter(made.history.key.tolist()).values()
        assert min(sizes) <= as_of.MANY_EVENTS < max(sizes)
        modes: tuple[AsOf, ...] = ("event", "log", "served")
        return {mode: found(made, spark, mode) for mode in modes}


@pytest.mark.timeout(7_200 if FULL else 900)
def test_equals_the_oracle(made: Made, ours: dict[str, dict[tuple[str, int], dict[str, Any]]]) -> None:
    compared, wrong = 0, []
    values_by_mode: dict[int, list[Any]] = {}
    for label, mode, expected in made_history.expected(made.history, made.asked):
        values = ours[mode][f"s{made.asked.key[label]}", int(made.asked.at[label])]
        for name, value in expected.items():
            compared += 1
            if not _same(values[name], value):
                wrong.append(f"{mode} label {label} {name}: {value!r}, found {values[name]!r}")
        values_by_mode.setdefault(label, []).append(expected)
    differ = [sum(a != b for a, b in ((v[i], v[j]) for v in values_by_mode.values())) for i, j in ((0, 1), (1, 2))]
    print(
        f"{compared:,} values compared with the oracle, {len(wrong)} differ; labels that differ between rules: {differ}"
    )
    assert wrong[:5] == []
    assert compared == LABELS * len(MODES) * 24
    assert min(differ) > LABELS // 100  # else nothing was shown


def _same(value: Any, truth: Any) -> bool:
    return bool(value == truth) and type(value) is type(truth)


@pytest.mark.timeout(7_200 if FULL else 900)
def test_equals_duckdb(made: Made, ours: dict[str, dict[tuple[str, int], dict[str, Any]]]) -> None:
    connection = duckdb.connect()
    connection.execute("SET memory_limit = '6GB'; SET threads = 2")
    compared, wrong = 0, []
    for mode in MODES:
        names, rows = by_duckdb(connection, made, mode)
        for label, *values in rows:
            mine = ours[mode][f"s{made.asked.key[label]}", int(made.asked.at[label])]
            for name, value in zip(names, values, strict=True):
                compared += 1
                if not _same(mine[name], value if value is not None or "last_n" not in name else []):
                    wrong.append(f"{mode} label {label} {name}: {value!r}, found {mine[name]!r}")
    print(f"{compared:,} values compared with DuckDB, {len(wrong)} differ")
    assert wrong[:5] == []
    assert compared == LABELS * len(MODES) * 21


def by_duckdb(connection: Any, made: Made, mode: str) -> tuple[list[str], Iterator[Any]]:
    """A join by key and hour, then a filter: the fastest that it does without knowing tiles."""
    seen = {"event": "true", "log": "e.log < l.moment", "served": "e.applied <= l.moment"}[mode]
    selected, names = [], []
    for window, (length, step) in WINDOWS.items():
        inside = f"FILTER (e.time >= (l.moment - {length}) // {step} * {step})"
        item = f"FILTER (e.time >= (l.moment - {length}) // {step} * {step} AND e.item >= 0)"
        # Of one key, so of one partition; both fit into 64 bits.
        place = f'(e.time - {made_history.BASE}) * {1 << 22} + e."offset"'
        texts = {
            "count": f"count(*) FILTER (e.time >= (l.moment - {length}) // {step} * {step} AND e.pieces > 1)",
            "sum": f"CAST(sum(e.cents) {inside} AS DOUBLE) / 100",
            "mean": f"CAST(sum(e.pieces) {inside} AS DOUBLE) / count(*) {inside}",
            "min": f"CAST(min(e.cents) {inside} AS DOUBLE) / 100",
            "max": f"max(e.time) {inside}",
            "last": f"'i' || arg_max(e.item, {place}) {item}",
            "last_n": f"list_transform(arg_max(e.item, {place}, 5) {item}, lambda x: 'i' || x)",
        }
        selected += list(texts.values())
        names += [f"{name}_{window}" for name in texts]
    shown = [f"coalesce(j.c{i}, 0)" if n.startswith("count") else f"j.c{i}" for i, n in enumerate(names)]
    query = f"""
        WITH e AS (
            SELECT * FROM '{made.events_file}'
            WHERE log - time <= {LATENESS} AND time - log <= {made_history.FUTURE}
        ), hours AS (
            SELECT label, key, moment,
                   unnest(generate_series((moment - {25 * HOUR}) // {HOUR}, moment // {HOUR})) AS hour
            FROM '{made.labels_file}'
        ), joined AS (
            SELECT l.label, {", ".join(selected)}
            FROM hours l JOIN e ON e.key = l.key AND e.time // {HOUR} = l.hour
            WHERE e.time < l.moment AND {seen}
            GROUP BY l.label
        )
        SELECT a.label, {", ".join(shown)}
        FROM '{made.labels_file}' a
        LEFT JOIN joined j({", ".join(["label", *(f"c{i}" for i in range(len(names)))])}) ON j.label = a.label
    """
    return names, iter(connection.execute(query).fetchall())
