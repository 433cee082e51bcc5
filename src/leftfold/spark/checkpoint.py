"""Checkpoints, wherever they are: a local directory or any file system that Spark can write to."""

from __future__ import annotations

from pyspark.sql import SparkSession

from leftfold import clock


def set_aside(session: SparkSession, checkpoint: str) -> str | None:
    """Rename a checkpoint so that the next start makes a new one; returns its new name, None if there was none."""
    context = session.sparkContext
    assert context._jvm is not None  # set for as long as the session lives
    path = context._jvm.org.apache.hadoop.fs.Path(checkpoint)
    files = path.getFileSystem(context._jsc.hadoopConfiguration())
    if not files.exists(path):
        return None
    aside = f"{checkpoint}.{clock.now_us()}"
    files.rename(path, context._jvm.org.apache.hadoop.fs.Path(aside))
    return aside
