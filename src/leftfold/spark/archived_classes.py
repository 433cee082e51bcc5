"""Runs what most views run, and lets the JVM write the classes that it has loaded into an archive when it ends.

`python -m leftfold.spark.archived_classes`; `python -m leftfold.jars fetch` calls it.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from leftfold import class_archive, jars
from leftfold.errors import LocalError
from leftfold.settings import Spark
from leftfold.spark.session import build_session

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession

_END_S = 300.0


def _query(spark: SparkSession, directory: str) -> None:
    """Run a stream that is exploded, aggregated in RocksDB, and written by Python workers."""
    rows = f"{directory}/rows"
    spark.range(1000).selectExpr("id", "id % 7 as k", "timestamp_seconds(id) as at", "array(1, 2) as n").write.parquet(
        rows
    )

    def write(batch: DataFrame, _: int) -> None:
        def count(parts: Any) -> Any:
            yield from parts

        batch.persist()
        batch.mapInArrow(count, batch.schema).collect()
        batch.groupBy("k").agg(F.sum("n"), F.max(F.struct("last", "n"))).toPandas()
        batch.unpersist()

    stream = spark.readStream.schema(spark.read.parquet(rows).schema).parquet(rows)
    tiles = (
        stream.withWatermark("at", "1 minute")
        .select("k", "at", F.explode("n").alias("n"))
        .where("k is not null and n > 0")
        .groupBy("k", F.window("at", "5 minutes"))
        .agg(F.count("n").alias("n"), F.max("at").alias("last"), F.max_by("n", "at"), F.collect_set("n"))
    )
    query = tiles.writeStream.outputMode("update").foreachBatch(write)
    query.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start().awaitTermination()


def _write(file: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        spark = build_session(
            Spark(conf={"spark.driver.extraJavaOptions": shlex.join(class_archive.writing(file))}),
            application="classes",
            log_file=Path(directory) / "spark.log",
            lake=True,
        )
        _query(spark, directory)
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()  # ends the JVM, which then writes the file
        try:
            gateway.proc.wait(_END_S)
        except subprocess.TimeoutExpired:  # there is no archive then, and the caller says so
            gateway.proc.kill()


def main() -> None:
    home = class_archive.spark_jars()
    assert home is not None, "this module imports PySpark"
    try:
        made = class_archive.ensure(jars.cache_home(), home, _write)
    except LocalError as error:  # everything works without an archive
        sys.stderr.write(f"– classes of Spark are not archived: {error.what} ({error.why})\n")
        return
    sys.stderr.write(f"✓ classes of Spark: {made or 'none, because Java is missing'}\n")


if __name__ == "__main__":
    main()
