"""Tiles that a scan of history stacks against those that a stream explodes every record to: the same rows."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import leftfold as lf
from leftfold.declare.acceptance import OUTCOMES
from leftfold.fold.definition import Definition
from leftfold.fold.sketches import estimate
from leftfold.spark.cutover import FrozenHistory
from leftfold.spark.source import HASHES
from leftfold.spark.views.batch_tiles import stacked
from leftfold.spark.views.tiles import TilesJob, hashed
from tests.engine.sales import Sale, over, sales

SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
S = 1_000_000
BASE = 1_772_323_200 * S
SPAN = 7_200 * S


BIG = {"last_big": lf.last(Sale.price, "1h", where=Sale.pieces > 3)}
ALL = {**over("2m"), **over("1h"), **over("24h"), **BIG}
Every: Any = type("Every", (lf.Features,), ALL, of=sales, by=Sale.shop)
FEW = {"n": lf.count("2m"), "big": lf.max(Sale.price, "1h")}
Plain: Any = type("Plain", (lf.Features,), FEW, of=sales, by=Sale.shop)


def made(spark: SparkSession) -> DataFrame:
    """Few shops and moments, so that tiles hold ties; each shop in several partitions, some records of an import."""
    chance = random.Random(SEED)
    rows = []
    for number in range(20_000):
        at = BASE + chance.randrange(SPAN // (5 * S)) * 5 * S
        price = None if chance.random() < 0.1 else chance.choice([-0.0, 0.0, 19.99, chance.uniform(-1e6, 1e6), 1e15])
        event = (
            None if chance.random() < 0.01 else f"s{int(chance.paretovariate(0.8)) % 50}",
            chance.choice([None, "a", "ä\n", '"', f"i{chance.randrange(40)}"]),
            price,
            chance.randrange(6),
            at,
        )
        delay = chance.choice([0, S, 300 * S, 1_799 * S, 1_900 * S, -90 * S])
        rows.append((chance.randrange(3), number - 500, at + delay, *event))
    frame = spark.createDataFrame(
        rows, "slot int, offset long, log long, shop string, item string, price double, pieces long, at long"
    )
    return frame.select(
        "slot",
        "offset",
        F.lit(None).cast("binary").alias("key"),
        F.lit(False).alias("deleted"),
        F.timestamp_micros("log").alias("log_time"),
        F.lit(True).alias("by_broker"),
        F.struct("shop", "item", "price", "pieces", F.timestamp_micros("at").alias("at")).alias("event"),
        *(F.xxhash64(F.lit(name), "slot", "offset").alias(name) for name in HASHES),
    )


def rows_of(packed: DataFrame, definition: Definition) -> dict[tuple[Any, ...], Any]:
    """By entity, field and tile; a sketch by its estimate, for its bytes depend on how it was filled."""
    sketches = [i for i, column in enumerate(definition.columns) if column.aggregate == "distinct"]
    found: dict[tuple[Any, ...], Any] = {}
    for entity, name, value, digest in packed.collect():
        if entity is None:
            found[name,] = value
            continue
        index, _batch, *partials = json.loads(value)
        for i in sketches:
            partials[i] = None if partials[i] is None else estimate(partials[i], definition.columns[i].size)
        assert (entity, name, index) not in found
        found[entity, name, index] = (partials, digest)
    return found


@pytest.mark.parametrize("features", [Every, Plain])
def test_stacked_tiles_are_those_of_the_stream(spark: SparkSession, features: Any) -> None:
    definition: Definition = features.__leftfold_definition__
    records = made(spark).persist()
    cuts = {step: (BASE + SPAN * 3 // 4) // step * step for step in definition.steps}
    oldest = {step: (BASE + SPAN // 10) // step * step for step in definition.steps}
    closed = FrozenHistory("id", {}, {}, {}, cuts, oldest).closed()
    job = TilesJob(definition, only=closed)
    expected = rows_of(job.packed(hashed(job.stream(records, 0)), 0), definition)
    found = rows_of(job.packed(stacked(records, definition, closed), 0), definition)
    records.unpersist()
    assert len(expected) > 100
    assert {place[0].partition(":")[2] for place in expected if len(place) == 1} == set(OUTCOMES)
    places = {**found, **expected}
    wrong = {
        place: (found.get(place), expected.get(place)) for place in places if found.get(place) != expected.get(place)
    }
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(expected)}: {list(wrong.items())[:3]}"
