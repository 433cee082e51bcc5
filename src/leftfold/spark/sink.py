"""One batch of a view into the online store, from the executors.

One action per batch: rows are gathered per entity and packed in Catalyst, written by mapInArrow, and only the ledger
rows (at most four per partition) come back to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from leftfold.fold.columns import Column
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
    results = pack(batch, definition, number).mapInArrow(writer, "tiles long, name string, entry string").collect()
    ledger = [LedgerRow.parse(r["name"], r["entry"]) for r in results if r["name"] is not None]
    return Written(sum(r["tiles"] for r in results), tuple(ledger))


def pack(batch: DataFrame, definition: Definition, number: int) -> DataFrame:
    """entity (null for a ledger row), store field, value; all tiles of an entity side by side.

    Written as SQL text: built from column objects, each batch would pay a hundred calls into the JVM.
    """
    index = "(unix_micros(tile_end) div step - 1)"
    slots = " ".join(f"when {step} then {ring}" for step, ring in definition.rings.items())
    partials = ", ".join(_json(f"p{i}", column) for i, column in enumerate(definition.columns))
    field = f"concat_ws(':', step div {SECOND}, pmod({index}, case step {slots} end))"
    value = f"concat('[', concat_ws(',', {index}, '{number}', {partials}), ']')"
    counts = "concat_ws(':', records, newest_log, coalesce(newest_event, 0), newest_offset)"
    return (
        batch.selectExpr(
            "if(step < 0, null, entity) as entity",
            f"if(step < 0, concat(-step - 1, ':', entity), {field}) as name",
            f"if(step < 0, {counts}, {value}) as value",
        )
        .repartition("entity")
        .sortWithinPartitions("entity")
    )


def _json(name: str, column: Column) -> str:
    if column.aggregate == "last" and column.kind == "string":
        quoted = f"to_json(named_struct('v', {name}))"  # {"v":"…"}: Spark has no function that quotes a bare string
        return f"if({name} is null, 'null', substring({quoted}, 6, length({quoted}) - 6))"
    return f"coalesce(cast({name} as string), 'null')"


def _write(batches: Iterable[pa.RecordBatch], *, url: str, row_prefix: str, ttl_s: int) -> Iterator[pa.RecordBatch]:
    """On an executor: write rows, hand ledger rows back."""
    import pyarrow as pa

    ledger: list[tuple[str, str]] = []

    def tiles() -> Iterator[tuple[str | None, str, str]]:
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def rows() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        for entity, group in groupby(tiles(), key=itemgetter(0)):
            _, names, values = zip(*group, strict=True)
            if entity is None:
                ledger.extend(zip(names, values, strict=True))
            else:
                yield row_prefix + entity, names, values

    written = write_rows(url, rows(), ttl_s)
    names, values = zip(*ledger, strict=True) if ledger else ((), ())
    yield pa.RecordBatch.from_pydict(
        {
            "tiles": pa.array([written, *(0 for _ in names)], pa.int64()),
            "name": pa.array([None, *names], pa.string()),
            "entry": pa.array([None, *values], pa.string()),
        }
    )
