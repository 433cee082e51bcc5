"""Write one batch of a view to the online store.

There is one action per batch. A large batch is grouped by entity and written by the executors, and only the ledger rows
(a few per partition) come back to the driver. A small one, bounded in rows and bytes, is written by the driver, which
saves a shuffle and the start of Python workers.
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
from leftfold.store.writer import Calls, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

# The limit of the driver: 5,000 rows of at most 4 kB each. A longer row comes as null, and the executors then write the
# batch.
DRIVER_ROWS = 5_000
_DRIVER_BYTES = 4_096

PackedRow = tuple[str | None, str, str]  # entity (None for a ledger row), store field, value


class TooWideError(Exception):
    """A row is too long for the driver's path; nothing was written."""


@dataclass(frozen=True)
class Written:
    tiles: int  # tiles that took effect
    ledger: tuple[LedgerRow, ...]
    digest: int  # of all rows of the batch, whatever their order
    calls: tuple[Calls, ...]  # per writer: if the store counted fewer, it has lost rows of the batch


@dataclass(frozen=True)
class Target:
    """The place in the store where rows are written."""

    url: str
    row_prefix: str
    ttl_s: int  # 0 keeps rows forever
    calls: str  # the key under which writers are counted


@dataclass(frozen=True)
class Output:
    """The rows that a batch writes: on the driver if the batch is small, otherwise still in Spark."""

    packed: DataFrame
    rows: list[PackedRow] | None = None
    digest: int = 0  # of the rows on the driver
    persisted: bool = False

    def release(self) -> None:
        if self.persisted:
            self.packed.unpersist()


def collected(packed: DataFrame) -> Output:
    """Collect a batch to the driver. It has at most DRIVER_ROWS rows. Raises TooWideError if a row is too long."""
    wide = f"octet_length(value) + coalesce(octet_length(entity), 0) + octet_length(name) > {_DRIVER_BYTES}"
    cut = [f"if({wide}, null, {column}) as {column}" for column in ("entity", "name", "value")]
    packed_rows = packed.selectExpr(*cut, "digest").collect()
    if any(row[2] is None for row in packed_rows):
        raise TooWideError
    rows = sorted(((row[0], row[1], row[2]) for row in packed_rows), key=lambda row: (row[0] is not None, row[0]))
    return Output(packed, rows, sum(row[3] or 0 for row in packed_rows) % DIGESTS)


def cached(packed: DataFrame) -> Output:
    """Keep a batch in Spark, for several writers. It is computed once: a second computation would reload the state."""
    return Output(packed.persist(), persisted=True)


def write_online(output: Output, target: Target) -> Written:
    if output.rows is None:
        return _by_executors(output.packed, target)
    tiles, calls, ledger = _write(output.rows, target)
    return _written(tiles, ledger, output.digest, [calls])


def counted_rows(ledger: DataFrame) -> tuple[LedgerRow, ...]:
    """The ledger rows of a batch that were counted separately. They are few."""
    return tuple(LedgerRow.parse(row["name"], row["value"]) for row in ledger.collect())


def _by_executors(packed: DataFrame, target: Target) -> Written:
    """Write a batch by the executors. All tiles of an entity are next to each other, so they are one atomic write."""
    gathered = packed.select("entity", "name", "value", "digest").repartition("entity").sortWithinPartitions("entity")
    results = gathered.mapInArrow(
        partial(_on_executor, target=target),
        "tiles long, digest long, writer string, calls long, name string, entry string",
    ).collect()
    ledger = [(r["name"], r["entry"]) for r in results if r["name"] is not None]
    calls = [Calls(r["writer"], r["calls"]) for r in results if r["writer"] is not None]
    return _written(sum(r["tiles"] for r in results), ledger, sum(r["digest"] for r in results), calls)


def _written(tiles: int, ledger: Iterable[tuple[str, str]], digest: int, calls: Iterable[Calls]) -> Written:
    rows = tuple(LedgerRow.parse(name, entry) for name, entry in ledger)
    return Written(tiles, rows, digest % DIGESTS, tuple(calls))


def _write(tiles: Iterable[PackedRow], target: Target) -> tuple[int, Calls, list[tuple[str, str]]]:
    """Write rows and return the ledger rows. `tiles` are sorted by entity."""
    ledger: list[tuple[str, str]] = []

    def rows() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        for entity, group in groupby(tiles, key=itemgetter(0)):
            _, names, values = zip(*group, strict=True)
            if entity is None:
                ledger.extend(zip(names, values, strict=True))
            else:
                yield target.row_prefix + entity, names, values

    written, calls = write_rows(target.url, rows(), target.ttl_s, calls=target.calls)
    return written, calls, ledger


def _on_executor(batches: Iterable[pa.RecordBatch], *, target: Target) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    digest = 0

    def tiles() -> Iterator[PackedRow]:
        nonlocal digest
        for batch in batches:
            entities, names, values, digests = batch.columns
            digest += int(digests.fill_null(0).to_numpy(zero_copy_only=False).sum())  # overflow is intended
            yield from zip(entities.to_pylist(), names.to_pylist(), values.to_pylist(), strict=True)

    written, calls, ledger = _write(tiles(), target)
    entries = [(None, None), *ledger]
    whole = (digest + (1 << 63)) % DIGESTS - (1 << 63)  # as a signed number, as Spark's columns hold it
    yield pa.RecordBatch.from_pydict(
        {
            "tiles": pa.array([written, *(0 for _ in ledger)], pa.int64()),
            "digest": pa.array([whole, *(0 for _ in ledger)], pa.int64()),
            "writer": pa.array([calls.writer, *(None for _ in ledger)], pa.string()),
            "calls": pa.array([calls.count, *(0 for _ in ledger)], pa.int64()),
            "name": pa.array([name for name, _ in entries], pa.string()),
            "entry": pa.array([entry for _, entry in entries], pa.string()),
        }
    )
