"""Start one view's query: its own session, its own checkpoint, one callback per batch."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leftfold.fold.definition import Definition
from leftfold.spark.compile import tiles
from leftfold.spark.source import Source, read_stream

OnBatch = Callable[[DataFrame, int], None]


def start_query(
    session: SparkSession,
    definition: Definition,
    source: Source,
    *,
    checkpoint: str,
    on_batch: OnBatch,
    until_caught_up: bool,
) -> StreamingQuery:
    """`until_caught_up` ends the query at the offsets that were the newest when it started."""
    own = session.newSession()  # settings of one view never reach another
    own.conf.set("spark.sql.shuffle.partitions", str(session.conf.get("spark.sql.shuffle.partitions")))
    writer = (
        tiles(read_stream(own, source), definition)
        .writeStream.queryName(definition.view)
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(on_batch)
    )
    return (writer.trigger(availableNow=True) if until_caught_up else writer.trigger(processingTime="0 seconds")).start()
