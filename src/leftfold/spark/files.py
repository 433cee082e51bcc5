"""Files under a location, on any file system that Spark can reach: sizes, small texts, renaming, removal."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


def sizes(session: SparkSession, location: str, suffix: str) -> dict[str, int]:
    """The size in bytes of every file under `location` whose name ends with `suffix`, by path.

    Files and directories that are removed or renamed meanwhile are left out. Hadoop's own recursive listing fails on
    them, and on a local disk it starts a process for each file to ask for rights.
    """
    files, path = _place(session, location)
    lengths: dict[str, int] = {}
    directories = [path]
    while directories:
        for status in _listed(files, directories.pop()):
            if status.isDirectory():
                directories.append(status.getPath())
            elif (name := str(status.getPath())).endswith(suffix):
                lengths[name] = int(status.getLen())
    return lengths


def _listed(files: Any, directory: Any) -> list[Any]:
    """The files and directories in a directory; none if it does not exist."""
    try:
        return list(files.listStatus(directory))
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "FileNotFoundException":
            raise
        return []


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


def absolute(session: SparkSession, location: str) -> str:
    """Return where a relative location on a local disk is, from the current directory of this process.

    Java would take the directory in which its own process was started, and a notebook may have moved on since.
    """
    return location if urlparse(location).scheme else str(_place(session, location)[1])


def _place(session: SparkSession, location: str) -> tuple[Any, Any]:
    context: Any = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(location)
    system = path.getFileSystem(context._jsc.hadoopConfiguration())
    if not path.isAbsolute() and str(system.getUri().getScheme()).lower() == "file":
        path = context._jvm.org.apache.hadoop.fs.Path(str(Path(location).absolute()))
    return system, path
