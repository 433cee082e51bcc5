"""One batch of a view into the online store.

One action per batch, and only the ledger rows (a few per partition) come back to the driver. Large batches are
gathered per entity and written by the executors. A small one, bounded in rows and bytes, is written by the driver,
which saves a shuffle and the start of Python workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from leftfold.store.layout import LedgerRow
from leftfold.store.writer import write_rows

if TYPE_CHECKING:
    import pyarrow as pa

# What the driver takes: 5,000 rows of at most 4 kB each. Longer values are cut, and the batch goes the other way.
DRIVER_ROWS = 5_000
_DRIVER_BYTES = 4_096

Tiles = Iterable[tuple[str | None, str, str]]


class TooWideError(Exception):
    """A row is too long for the driver's path; nothing was written."""


@dataclass(frozen=True)
class Written:
    tiles: int
    ledger: tuple[LedgerRow, ...]


@dataclass(frozen=True)
class Target:
    """Where rows go."""

    url: str
    row_prefix: str
    ttl_s: int  # 0 keeps rows


def write_small(packed: DataFrame, target: Target) -> Written:
    """By the driver. `packed` has at most DRIVER_ROWS rows; raises TooWideError before anything is written."""
    cut = f"if(length(value) > {_DRIVER_BYTES}, null, value) as value"
    rows = [tuple(row) for row in packed.selectExpr("entity", "name", cut).collect()]
    if any(value is None for _, _, value in rows):
        raise TooWideError
    rows.sort(key=lambda row: (row[0] is not None, row[0]))
    return _written(*_write(rows, target))


def write_large(packed: DataFrame, target: Target) -> Written:
    """By the executors: all tiles of an entity side by side, so that they are one atomic write."""
    gathered = packed.repartition("entity").sortWithinPartitions("entity")
    results = gathered.mapInArrow(
        partial(_on_executor, target=target), "tiles long, name string, entry string"
    ).collect()
    ledger = [(r["name"], r["entry"]) for r in results if r["name"] is not None]
    return _written(sum(r["tiles"] for r in results), ledger)


def counted_rows(ledger: DataFrame) -> tuple[LedgerRow, ...]:
    """The few ledger rows of a batch that were counted on their own."""
    return tuple(LedgerRow.parse(row["name"], row["value"]) for row in ledger.collect())


def _written(tiles: int, ledger: Iterable[tuple[str, str]]) -> Written:
    return Written(tiles, tuple(LedgerRow.parse(name, entry) for name, entry in ledger))


def _write(tiles: Tiles, target: Target) -> tuple[int, list[tuple[str, str]]]:
    """Write rows, hand ledger rows back. `tiles` are in order of their entity."""
    ledger: list[tuple[str, str]] = []

    def rows() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        for entity, group in groupby(tiles, key=itemgetter(0)):
            _, names, values = zip(*group, strict=True)
            if entity is None:
                ledger.extend(zip(names, values, strict=True))
            else:
                yield target.row_prefix + entity, names, values

    return write_rows(target.url, rows(), target.ttl_s), ledger


def _on_executor(batches: Iterable[pa.RecordBatch], *, target: Target) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    tiles = (row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
    written, ledger = _write(tiles, target)
    names, values = zip(*ledger, strict=True) if ledger else ((), ())
    yield pa.RecordBatch.from_pydict(
        {
            "tiles": pa.array([written, *(0 for _ in names)], pa.int64()),
            "name": pa.array([None, *names], pa.string()),
            "entry": pa.array([None, *values], pa.string()),
        }
    )
