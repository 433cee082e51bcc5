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

from leftfold.store.layout import DIGESTS, LedgerRow
from leftfold.store.writer import write_rows

if TYPE_CHECKING:
    import pyarrow as pa

# What the driver takes: 5,000 rows of at most 4 kB each. Longer values are cut, and the batch goes the other way.
DRIVER_ROWS = 5_000
_DRIVER_BYTES = 4_096

PackedRow = tuple[str | None, str, str]  # entity (None for a ledger row), store field, value


class TooWideError(Exception):
    """A row is too long for the driver's path; nothing was written."""


@dataclass(frozen=True)
class Written:
    tiles: int  # that took effect
    ledger: tuple[LedgerRow, ...]
    digest: int  # of all rows of the batch, whatever their order


@dataclass(frozen=True)
class Target:
    """Where rows go."""

    url: str
    row_prefix: str
    ttl_s: int  # 0 keeps rows


@dataclass(frozen=True)
class Output:
    """What a batch writes: on the driver if it is small, else still in Spark."""

    packed: DataFrame
    rows: list[PackedRow] | None = None
    digest: int = 0  # of the rows on the driver
    persisted: bool = False

    def release(self) -> None:
        if self.persisted:
            self.packed.unpersist()


def collected(packed: DataFrame) -> Output:
    """To the driver. `packed` has at most DRIVER_ROWS rows; raises TooWideError if one is too long for it."""
    cut = f"if(length(value) > {_DRIVER_BYTES}, null, value) as value"
    found = packed.selectExpr("entity", "name", cut, "digest").collect()
    if any(row[2] is None for row in found):
        raise TooWideError
    rows = sorted(((row[0], row[1], row[2]) for row in found), key=lambda row: (row[0] is not None, row[0]))
    return Output(packed, rows, sum(row[3] or 0 for row in found) % DIGESTS)


def kept(packed: DataFrame) -> Output:
    """In Spark, for several writers: computed once, because a second computation would reload the state."""
    return Output(packed.persist(), persisted=True)


def write_online(output: Output, target: Target) -> Written:
    if output.rows is None:
        return _by_executors(output.packed, target)
    tiles, ledger = _write(output.rows, target)
    return _written(tiles, ledger, output.digest)


def counted_rows(ledger: DataFrame) -> tuple[LedgerRow, ...]:
    """The few ledger rows of a batch that were counted on their own."""
    return tuple(LedgerRow.parse(row["name"], row["value"]) for row in ledger.collect())


def _by_executors(packed: DataFrame, target: Target) -> Written:
    """All tiles of an entity side by side, so that they are one atomic write."""
    gathered = packed.select("entity", "name", "value", "digest").repartition("entity").sortWithinPartitions("entity")
    results = gathered.mapInArrow(
        partial(_on_executor, target=target), "tiles long, digest long, name string, entry string"
    ).collect()
    ledger = [(r["name"], r["entry"]) for r in results if r["name"] is not None]
    return _written(sum(r["tiles"] for r in results), ledger, sum(r["digest"] for r in results))


def _written(tiles: int, ledger: Iterable[tuple[str, str]], digest: int) -> Written:
    return Written(tiles, tuple(LedgerRow.parse(name, entry) for name, entry in ledger), digest % DIGESTS)


def _write(tiles: Iterable[PackedRow], target: Target) -> tuple[int, list[tuple[str, str]]]:
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

    digest = 0

    def tiles() -> Iterator[PackedRow]:
        nonlocal digest
        for batch in batches:
            entities, names, values, digests = batch.columns
            digest += int(digests.fill_null(0).to_numpy(zero_copy_only=False).sum())  # wraps around, as it should
            yield from zip(entities.to_pylist(), names.to_pylist(), values.to_pylist(), strict=True)

    written, ledger = _write(tiles(), target)
    entries = [(None, None), *ledger]
    whole = (digest + (1 << 63)) % DIGESTS - (1 << 63)  # as a signed number, which is what a column of Spark holds
    yield pa.RecordBatch.from_pydict(
        {
            "tiles": pa.array([written, *(0 for _ in ledger)], pa.int64()),
            "digest": pa.array([whole, *(0 for _ in ledger)], pa.int64()),
            "name": pa.array([name for name, _ in entries], pa.string()),
            "entry": pa.array([entry for _, entry in entries], pa.string()),
        }
    )
