"""Write one batch of a view to its changelog: rows are grouped by writer, and each writer has its own transaction.

A batch that spans more time than a ring has several tiles of one slot, which share a key. Compaction and readers keep
the last record of a key, so rows are written in the order of their indexes.

The driver gets back only a count per task, or the information that another run has written a newer batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leftfold.kafka.changelog import ChangelogTopic, StaleWriterError, write, writer_of

if TYPE_CHECKING:
    import pyarrow as pa


def write_changelog(packed: DataFrame, changelog: ChangelogTopic, number: int, *, repair: bool = False) -> int:
    """Write rows by the executors. Return the number of records written, without those that were there already."""
    own = "cast(pmod(crc32(cast(entity as binary)), {}) as int) as writer"
    rows = packed.where("entity is not null").selectExpr(own.format(changelog.writers), "entity", "name", "value")
    index = F.expr("cast(substring_index(substring(value, 2), ',', 1) as long)")  # of "[index,batch,…"
    gathered = rows.repartition(changelog.writers, "writer").sortWithinPartitions("writer", index)
    task = partial(_on_executor, changelog=changelog, number=number, repair=repair)
    results = gathered.mapInArrow(task, "sent long, found long").collect()
    newer = [result["found"] for result in results if result["found"] is not None]
    if newer:
        raise StaleWriterError(max(newer), number)
    return sum(result["sent"] for result in results)


def write_changelog_rows(
    rows: Sequence[tuple[str | None, str, str]], changelog: ChangelogTopic, number: int, *, repair: bool = False
) -> int:
    """Write rows (entity, field, value) by the driver, where they are already. Return the number of records written.

    All writers run at the same time, because each of them mostly waits.
    """
    shares: dict[int, list[tuple[str, str, str]]] = {}
    for entity, field, value in sorted(rows, key=_index):
        if entity is not None:
            shares.setdefault(writer_of(entity, changelog.writers), []).append((entity, field, value))
    with ThreadPoolExecutor(changelog.writers) as pool:
        sent = [pool.submit(write, changelog, w, number, share, repair=repair) for w, share in shares.items()]
    return sum(future.result() for future in sent)


def _index(row: tuple[str | None, str, str]) -> int:
    """The index of a row, whose value is "[index,batch,…"; 0 for a row of the ledger, which is not written."""
    entity, _, value = row
    return 0 if entity is None else int(value[1 : value.index(",")])


def _on_executor(
    batches: Iterable[pa.RecordBatch], *, changelog: ChangelogTopic, number: int, repair: bool
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    rows = (row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
    sent, newer = 0, None
    try:
        for writer, group in groupby(rows, key=itemgetter(0)):
            sent += write(changelog, writer, number, (row[1:] for row in group), repair=repair)
    except StaleWriterError as error:  # returned, not raised: a retry of the task would fail in the same way
        newer = error.found
        for _ in rows:  # Spark does not reuse a worker that leaves input unread
            pass
    yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64()), "found": pa.array([newer], pa.int64())})
