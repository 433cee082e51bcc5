"""Files under a location, on any file system that Spark can reach: sizes, small texts, renaming, removal."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def sizes(session: SparkSession, location: str, suffix: str) -> dict[str, int]:
    """The size in bytes of every file under `location` whose name ends with `suffix`, by path."""
    files, path = _place(session, location)
    lengths: dict[str, int] = {}
    if files.exists(path):
        listed = files.listFiles(path, True)
        while listed.hasNext():
            status = listed.next()
            if (name := str(status.getPath())).endswith(suffix):
                lengths[name] = int(status.getLen())
    return lengths


def remove(session: SparkSession, location: str) -> None:
    files, path = _place(session, location)
    files.delete(path, True)


def exists(session: SparkSession, location: str) -> bool:
    files, path = _place(session, location)
    return bool(files.exists(path))


def scheme(session: SparkSession, location: str) -> str:
    """The scheme of the file system that the location is on."""
    files, _ = _place(session, location)
    return str(files.getUri().getScheme()).lower()


def siblings(session: SparkSession, location: str, suffix: str) -> list[str]:
    """Locations in the same directory whose names start with the name of `location` and the suffix."""
    files, path = _place(session, location)
    beside, start = path.getParent(), f"{path.getName()}{suffix}"
    if not files.exists(beside):
        return []
    paths = [status.getPath() for status in files.listStatus(beside)]
    return [str(place) for place in paths if str(place.getName()).startswith(start)]


def rename(session: SparkSession, location: str, to: str) -> bool:
    """Rename a location. Return whether it worked. It is atomic where the file system allows; object stores copy."""
    files, path = _place(session, location)
    return bool(files.rename(path, _place(session, to)[1]))


def write_text(session: SparkSession, location: str, text: str) -> None:
    """Write a new file. It must not exist yet."""
    files, path = _place(session, location)
    stream = files.create(path, False)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def read_text(session: SparkSession, location: str) -> str | None:
    """The text of a file; None if there is no such file."""
    files, path = _place(session, location)
    if not files.exists(path):
        return None
    context: Any = session.sparkContext
    stream = files.open(path)
    try:
        return str(context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _place(session: SparkSession, location: str) -> tuple[Any, Any]:
    context: Any = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path
