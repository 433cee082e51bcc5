"""Writes Spark's classes, as a JVM has loaded and checked them, into a file that the JVMs of tests map into memory.

A JVM that starts Spark for one small query spends much of its CPU time on loading classes, which the file saves. The
file belongs to one Java and one installation of Spark: another JVM ignores it.

`python -m tests.class_archive FILE`
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold.settings import Spark
from leftfold.spark.session import build_session

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame, SparkSession


def _query(spark: SparkSession, directory: str) -> None:
    """Run what most views run: a stream, exploded, aggregated in RocksDB, and written by Python workers."""
    from pyspark.sql import functions as f

    rows = f"{directory}/rows"
    spark.range(1000).selectExpr("id", "id % 7 as k", "timestamp_seconds(id) as at", "array(1, 2) as n").write.parquet(
        rows
    )

    def write(batch: DataFrame, _: int) -> None:
        def count(parts: Any) -> Any:
            yield from parts

        batch.persist()
        batch.mapInArrow(count, batch.schema).collect()
        batch.groupBy("k").agg(f.sum("n"), f.max(f.struct("last", "n"))).toPandas()
        batch.unpersist()

    stream = spark.readStream.schema(spark.read.parquet(rows).schema).parquet(rows)
    tiles = (
        stream.withWatermark("at", "1 minute")
        .select("k", "at", f.explode("n").alias("n"))
        .where("k is not null and n > 0")
        .groupBy("k", f.window("at", "5 minutes"))
        .agg(f.count("n").alias("n"), f.max("at").alias("last"), f.max_by("n", "at"), f.collect_set("n"))
    )
    query = tiles.writeStream.outputMode("update").foreachBatch(write)
    query.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start().awaitTermination()


def main(file: Path) -> None:
    file.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        dump: dict[str, str | int | float | bool] = {
            "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={file.resolve()} -Xlog:cds=off"
        }
        spark = build_session(
            Spark(conf=dump), application="classes", log_file=Path(directory) / "spark.log", lake=True
        )
        _query(spark, directory)
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()  # ends the JVM, which then writes the file
        gateway.proc.wait()
    if not file.exists():
        raise SystemExit(f"Java did not write {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
