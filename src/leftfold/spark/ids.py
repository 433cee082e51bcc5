"""Unknown schema ids of a range of offsets: collected all at once, before the records of the range are decoded.

Bytes that are not a valid record may look framed, under an id that no registry gave out. There may be thousands of
them, each with another id.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leftfold.declare.framing import HEADER_BYTES, frame
from leftfold.spark.source import Source

# The most ids of one range that go to the driver: some megabytes. If there are more, the registry is asked for all its
# ids, and the range is searched for those.
_MOST_IDS = 100_000
# The most ids that a source lists as never given out: enough to show a user, too few to burden a plan.
_NAMED = 1_000


def looked_at(records: DataFrame, source: Source) -> tuple[Source, bool]:
    """Return the source with all schemas that the records need, and whether any record had an id that was unknown here.

    `records` have the columns of Kafka's source. Only schemas that the registry knows are added. Call this after the
    end of the range was decided: a producer registers a schema before it writes with it, so no record of the range
    can have a schema that the registry does not know now.
    """
    assert source.registry is not None, "a source that is looked at has a registry"
    if source.format != "avro":
        return source, False
    met = _ids(records, ~_header().isin(*map(frame, source.writer_schemas)))
    if len(met) > _MOST_IDS:
        new = source.registry.given_out() - set(source.writer_schemas)
        met = _ids(records, _header().isin(*map(frame, new))) if new else set()
    schemas = source.registry.schemas(met) if met else {}
    room = max(_NAMED - len(source.rejected_ids), 0)
    never = source.rejected_ids.union(sorted(met - set(schemas) - source.rejected_ids)[:room])
    return replace(source, writer_schemas={**source.writer_schemas, **schemas}, rejected_ids=never), bool(met)


def _ids(records: DataFrame, wanted: Column) -> set[int]:
    """The distinct schema ids of framed records where `wanted` is true, at most _MOST_IDS + 1."""
    framed = (F.length("value") > HEADER_BYTES) & (F.expr("substring(value, 1, 1)") == F.lit(bytes(1)))
    met = records.where(framed & wanted).select(_header().alias("header")).distinct().limit(_MOST_IDS + 1)
    return {int.from_bytes(row[0][1:]) for row in met.collect()}


def _header() -> Column:
    return F.expr(f"substring(value, 1, {HEADER_BYTES})")
