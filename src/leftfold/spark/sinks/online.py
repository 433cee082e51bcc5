"""Write one batch of a view to the online store.

There is one action per batch. A large batch is grouped by entity and written by the executors, and only the ledger rows
(a few per partition) come back to the driver. A small one, bounded in rows and bytes, is written by the driver, which
saves a shuffle and the start of Python workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leftfold.fold.definition import Definition
from leftfold.store.buckets import bucket_sql
from leftfold.store.engine import BuildPlace, Calls, FramedRow
from leftfold.store.frames import framed_row, framed_sql
from leftfold.store.layout import DIGESTS, LedgerRow
from leftfold.store.opening import buckets_of
from leftfold.store.writer import write_rows

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
    at: BuildPlace
    ttl_s: int  # 0 keeps rows forever
    packs: Definition | None  # the definition, if rows have tiles

    @property
    def buckets(self) -> int:
        return buckets_of(self.url)

    def write(self, rows: Iterable[FramedRow], *, repairs: bool) -> tuple[int, Sequence[Calls]]:
        return write_rows(self.url, self.at, rows, self.ttl_s, packs=self.packs, repairs=repairs)


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


def write_online(output: Output, target: Target, *, repairs: bool = False) -> Written:
    """Write a batch, or with `repairs` all tiles that a read reaches, as a repair has computed them."""
    if output.rows is None:
        return _by_executors(output.packed, target, repairs=repairs)
    tiles, calls, ledger = _write(output.rows, target, repairs=repairs)
    return _written(tiles, ledger, output.digest, calls)


def counted_rows(ledger: DataFrame) -> tuple[LedgerRow, ...]:
    """The ledger rows of a batch that were counted separately. They are few."""
    return tuple(LedgerRow.parse(row["name"], row["value"]) for row in ledger.collect())


def _by_executors(packed: DataFrame, target: Target, *, repairs: bool) -> Written:
    """Write a batch by the executors. All tiles of an entity are next to each other, so they are one atomic write."""
    gathered = _gathered(packed.select("entity", "name", "value", "digest"), target.buckets)
    frames = f"concat({framed_sql('name')}, {framed_sql('value')})"
    results = (
        gathered.selectExpr(
            "entity",
            f"if(entity is null, null, {frames}) as frames",  # Spark frames tiles, so that Python handles only entities
            *(f"if(entity is null, {column}, null) as {column}" for column in ("name", "value")),
            "digest",
        )
        .mapInArrow(
            partial(_on_executor, target=target, repairs=repairs),
            "tiles long, digest long, writer string, calls long, bucket int, name string, entry string",
        )
        .collect()
    )
    ledger = [(r["name"], r["entry"]) for r in results if r["name"] is not None]
    calls = [Calls(r["writer"], r["calls"], r["bucket"]) for r in results if r["writer"] is not None]
    return _written(sum(r["tiles"] for r in results), ledger, sum(r["digest"] for r in results), calls)


def _gathered(rows: DataFrame, buckets: int) -> DataFrame:
    """Gather the rows of an entity, and those of a bucket of the store, if it has several: one task writes a bucket."""
    if buckets == 1:
        return rows.repartition("entity").sortWithinPartitions("entity")
    bucket = F.expr(bucket_sql("entity", buckets))
    return rows.repartition(bucket).sortWithinPartitions(bucket, "entity")


def _written(tiles: int, ledger: Iterable[tuple[str, str]], digest: int, calls: Iterable[Calls]) -> Written:
    rows = tuple(LedgerRow.parse(name, entry) for name, entry in ledger)
    return Written(tiles, rows, digest % DIGESTS, tuple(calls))


def _write(
    tiles: Iterable[PackedRow], target: Target, *, repairs: bool
) -> tuple[int, Sequence[Calls], list[tuple[str, str]]]:
    """Write rows and return the ledger rows. `tiles` are sorted by entity."""
    ledger: list[tuple[str, str]] = []

    def rows() -> Iterator[FramedRow]:
        for entity, group in groupby(tiles, key=itemgetter(0)):
            _, names, values = zip(*group, strict=True)
            if entity is None:
                ledger.extend(zip(names, values, strict=True))
            else:
                yield framed_row(entity, names, values)

    written, calls = target.write(rows(), repairs=repairs)
    return written, calls, ledger


def _on_executor(batches: Iterable[pa.RecordBatch], *, target: Target, repairs: bool) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    digest = 0
    ledger: list[tuple[str, str]] = []

    def tiles() -> Iterator[tuple[pa.Array, pa.Array]]:
        nonlocal digest
        for batch in batches:
            entities, frames, names, values, digests = batch.columns
            digest += int(digests.fill_null(0).to_numpy(zero_copy_only=False).sum())  # overflow is intended
            of_ledger = entities.null_count  # Spark sorts nulls first
            ledger.extend(zip(names[:of_ledger].to_pylist(), values[:of_ledger].to_pylist(), strict=True))
            yield entities[of_ledger:], frames[of_ledger:]

    written, calls = target.write(framed_rows(tiles()), repairs=repairs)
    whole = (digest + (1 << 63)) % DIGESTS - (1 << 63)  # as a signed number, as Spark's columns hold it
    lines = [
        (written, whole, None, 0, None, None, None),
        *((0, 0, one.writer, one.count, one.bucket, None, None) for one in calls),
        *((0, 0, None, 0, None, *entry) for entry in ledger),
    ]
    kinds = (pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.int32(), pa.string(), pa.string())
    names = ("tiles", "digest", "writer", "calls", "bucket", "name", "entry")
    columns = (pa.array(column, kind) for column, kind in zip(zip(*lines, strict=True), kinds, strict=True))
    yield pa.RecordBatch.from_pydict(dict(zip(names, columns, strict=True)))


def framed_rows(tiles: Iterable[tuple[pa.Array, pa.Array]]) -> Iterator[FramedRow]:
    """Yield the row of each entity, from arrays of entities and of framed tiles, sorted by entity.

    Tiles that are next to each other in an array are next to each other in memory, so they are sent as they are. A row
    may go on in the next array.
    """
    import pyarrow.compute as pc

    open_row: FramedRow | None = None
    for entities, frames in tiles:
        if not len(entities):
            continue
        assert not frames.null_count, "a tile has a name and a value"
        texts = memoryview(frames.buffers()[2])
        offsets = _offsets(frames)
        runs = pc.run_end_encode(entities)
        start = 0
        for entity, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            row = FramedRow(entity, end - start, texts[offsets[start] : offsets[end]])
            if open_row is not None and open_row.entity == row.entity:
                row = FramedRow(row.entity, open_row.tiles + row.tiles, b"".join((open_row.frames, row.frames)))
            elif open_row is not None:
                yield open_row
            open_row, start = row, end
    if open_row is not None:
        yield open_row


def _offsets(texts: pa.Array) -> list[int]:
    """The places in an array's buffer where its texts begin, and where the last one ends."""
    import pyarrow as pa

    buffer = memoryview(texts.buffers()[1]).cast("B")
    places = buffer.cast("i") if pa.types.is_string(texts.type) else buffer.cast("q")
    return places[texts.offset : texts.offset + len(texts) + 1].tolist()
