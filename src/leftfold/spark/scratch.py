"""Sizes and removal of what lies under a location, on any file system that Spark can reach."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def sizes(session: SparkSession, location: str, suffix: str) -> dict[str, int]:
    """Of every file below whose name ends so, in bytes."""
    files, path = _place(session, location)
    found: dict[str, int] = {}
    if files.exists(path):
        listed = files.listFiles(path, True)
        while listed.hasNext():
            status = listed.next()
            if (name := str(status.getPath())).endswith(suffix):
                found[name] = int(status.getLen())
    return found


def remove(session: SparkSession, location: str) -> None:
    files, path = _place(session, location)
    files.delete(path, True)


def _place(session: SparkSession, location: str) -> tuple[Any, Any]:
    context: Any = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path
