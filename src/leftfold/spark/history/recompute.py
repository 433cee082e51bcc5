"""Recompute a view's rows from the log, as a batch: the same Catalyst as the stream, without its state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leftfold.errors import RunError
from leftfold.fold.definition import Definition
from leftfold.kafka.failures import in_java
from leftfold.spark.query import Job
from leftfold.spark.views.free import NOT_UNIQUE
from leftfold.spark.views.tiles import hashed
from leftfold.store.layout import LIFETIME_FIELD


def recomputed(
    records: DataFrame, job: Job, number: int, *, newest_event: int = 0, only: str | None = None
) -> DataFrame:
    """Recompute a view from records, packed as if batch `number` had written all rows.

    With `newest_event` (µs), tiles that are so old that no read reaches them are left out. With `only`, a condition of
    SQL on `entity`, other entities are left out, and counts too. Spark applies it before it groups.
    """
    rows = hashed(job.stream(records, 0))
    definition = job.definition
    if isinstance(definition, Definition) and newest_event and definition.rings:
        reach = F.create_map(
            *(F.lit(n).cast("long") for step, ring in definition.rings.items() for n in (step, step * ring))
        )
        reachable = F.unix_micros("tile_end") > F.lit(newest_event) - F.element_at(reach, F.col("step"))
        rows = rows.where((F.col("step") <= 0) | reachable)
    packed = job.packed(rows, number)
    return packed if only is None else packed.where(f"entity is not null and {only}")


def lifetime_from(plain: DataFrame, corrected: DataFrame) -> DataFrame:
    """Take lifetime rows from `plain` and all other rows from `corrected`.

    `plain` is without re-driven records. So lifetime rows stay as the stream has them, which does not know re-driven
    records.
    """
    lifetime = f"name <=> '{LIFETIME_FIELD}'"
    return plain.where(lifetime).unionByName(corrected.where(f"not ({lifetime})"))


@contextmanager
def recomputing(view: str) -> Iterator[None]:
    """Turn a failure of Spark in the `with` block into an error that a user understands."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        unclear = NOT_UNIQUE in str(error)
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise in_java(str(error)) or RunError(
            "repair-failed",
            f"{view} could not be computed again from the log",
            why="its function keeps no state and names no latest=: which row of a key is the newest depends on the "
            "batches, which are gone"
            if unclear
            else said[:300],
            state="the store is as it was found; nothing was committed",
            fix=f"leftfold run --fresh {view} reads the log again from its start into a new build",
            retriable=not unclear,
        ) from error
