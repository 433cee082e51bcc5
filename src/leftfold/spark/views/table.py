"""A table as a stream without state: the newest record of each key in a batch is written over older ones.

The offsets of a key only grow, so the newest record of a batch is newer than any record before it. So the stream does
not need to remember anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leftfold.declare.acceptance import ACCEPTED
from leftfold.fold.latest import Latest
from leftfold.spark.accept import COUNTS, DIGEST, NAME, deletion, ledger_step, sound, tally
from leftfold.spark.catalyst import entity, json_text, plain
from leftfold.spark.source import HASHES
from leftfold.store.layout import ROW_FIELD


@dataclass(frozen=True)
class TableJob:
    """The Spark job of a `Table`."""

    definition: Latest
    sweeps = False
    cumulative = False
    rows_per_record = 1

    def stream(self, records: DataFrame, delay: int) -> DataFrame:
        """Columns slot, offset, log_us, event_us (0: no event time), outcome, entity, deleted, hashes, c0…cn."""
        definition = self.definition
        keys = definition.keys
        good = reduce(and_, sound([k.name for k in keys], definition.judged(), definition.rules, [keys]))
        deleted = deletion(keys, definition.rules)
        columns = [
            plain(F.col(f"event.{c.field}"), c.kind, repeated=c.repeated).alias(f"c{i}")
            for i, c in enumerate(definition.columns)
        ]
        return records.select(
            "slot",
            "offset",
            F.unix_micros("log_time").alias("log_us"),
            deleted.alias("deleted"),
            F.when(F.coalesce(deleted | good, F.lit(False)), F.lit(ACCEPTED))
            .otherwise(F.lit("rejected"))
            .alias("outcome"),
            F.when(deleted, F.col("key").cast("string")).otherwise(entity(keys, "event.")).alias("entity"),
            F.lit(0).alias("event_us"),
            *HASHES,
            *columns,
        )

    def packed(self, batch: DataFrame, number: int) -> DataFrame:
        definition = self.definition
        both = F.array(F.lit(0).cast("long"), ledger_step())
        rows = batch.withColumn(
            "step", F.explode(F.when(F.col("outcome") == ACCEPTED, both).otherwise(F.array(ledger_step())))
        ).withColumn("entity", F.when(F.col("step") < 0, F.col("outcome")).otherwise(F.col("entity")))
        columns = [f"c{i}" for i in range(len(definition.columns))]
        newest = rows.groupBy("entity", "step").agg(
            F.max_by(F.struct("deleted", *columns), "offset").alias("row"),
            *tally(),
        )
        values = ", ".join(
            json_text(f"row.c{i}", c.kind, repeated=c.repeated) for i, c in enumerate(definition.columns)
        )
        name = NAME.format(topics=f"'{definition.origins[0].topic}'")
        packed = newest.selectExpr(
            "if(step < 0, null, entity) as entity",
            f"if(step < 0, {name}, '{ROW_FIELD}') as name",
            f"if(step < 0, {COUNTS}, concat('[', newest_offset, ',{number}', "
            f"if(row.deleted, '', concat(',', concat_ws(',', {values}))), ']')) as value",
        )
        return packed.selectExpr("*", DIGEST)
