"""One batch of a view into the online store, from the executors.

One action per batch: rows are gathered per entity and packed in Catalyst, written by mapInArrow, and only the ledger
rows (at most four per partition) come back to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.store.layout import LedgerRow, row_ttl_s
from leftfold.store.writer import write_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Written:
    tiles: int
    ledger: tuple[LedgerRow, ...]


def write_batch(batch: DataFrame, definition: Definition, number: int, *, url: str, row_prefix: str) -> Written:
    writer = partial(_write, url=url, row_prefix=row_prefix, ttl_s=row_ttl_s(definition))
    results = pack(batch, definition, number).mapInArrow(writer, "tiles long, ledger string").collect()
    ledger = [LedgerRow.parse(*r["ledger"].split(" ")) for r in results if r["ledger"] is not None]
    return Written(sum(r["tiles"] for r in results), tuple(ledger))


def pack(batch: DataFrame, definition: Definition, number: int) -> DataFrame:
    """One row per entity: entity (null for a ledger row), its store fields and values."""
    index = F.expr("unix_micros(tile_end) div step - 1")
    ring = F.lit(1)
    for step, slots in definition.rings.items():
        ring = F.when(F.col("step") == step, F.lit(slots)).otherwise(ring)
    field = F.concat_ws(":", (F.col("step") / SECOND).cast("long").cast("string"), F.pmod(index, ring).cast("string"))
    partials = [
        _json(F.col(f"p{i}"), batch.schema[f"p{i}"].dataType.typeName()) for i in range(len(definition.columns))
    ]
    value = F.concat(F.lit("["), F.concat_ws(",", index.cast("string"), F.lit(str(number)), *partials), F.lit("]"))
    numbers = ("records", "newest_log", F.coalesce("newest_event", F.lit(0)), "newest_offset")
    name = F.concat_ws(":", (-F.col("step") - 1).cast("string"), "entity")
    ledger = F.concat_ws(" ", name, F.concat_ws(":", *numbers))
    is_ledger = F.col("step") < 0
    tile = F.when(~is_ledger, F.struct(field.alias("field"), value.alias("value")))
    return (
        batch.select(
            F.when(~is_ledger, F.col("entity")).alias("entity"),
            F.when(is_ledger, ledger).alias("ledger"),
            tile.alias("tile"),
        )
        .groupBy("entity", "ledger")
        .agg(F.collect_list("tile").alias("tiles"))
        .select("entity", "ledger", F.col("tiles.field").alias("fields"), F.col("tiles.value").alias("values"))
    )


def _json(value: Column, kind: str) -> Column:
    if kind == "string":
        quoted = F.to_json(F.struct(value.alias("v")))  # {"v":"…"}: Spark has no function that quotes a bare string
        text = F.when(value.isNotNull(), F.substring(quoted, F.lit(6), F.length(quoted) - F.lit(6)))
    else:
        text = value.cast("string")
    return F.coalesce(text, F.lit("null"))


def _write(batches: Iterable[pa.RecordBatch], *, url: str, row_prefix: str, ttl_s: int) -> Iterator[pa.RecordBatch]:
    """On an executor: write rows, hand ledger rows back."""
    import pyarrow as pa

    ledger: list[str] = []

    def rows() -> Iterator[tuple[str, list[str], list[str]]]:
        for batch in batches:
            entities, lines, fields, values = (column.to_pylist() for column in batch.columns)
            for entity, line, names, contents in zip(entities, lines, fields, values, strict=True):
                if line is not None:
                    ledger.append(line)
                else:
                    yield row_prefix + entity, names, contents

    tiles = write_rows(url, rows(), ttl_s)
    counts: list[Any] = [tiles, *(0 for _ in ledger)]
    yield pa.RecordBatch.from_pydict(
        {"tiles": pa.array(counts, pa.int64()), "ledger": pa.array([None, *ledger], pa.string())}
    )
