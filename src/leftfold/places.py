"""Checks of the file systems for checkpoints and Delta tables: if two drivers write one file, one of them must fail.

Spark commits a batch by writing a file named by the batch number. Delta commits a version in the same way. A driver
that was taken for dead but continues must find its number in use: this is what fences it. An object store has no
rename. What replaces a rename there overwrites the file, and neither driver gets an error. So the allowed file systems
are listed by name, and any other is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from leftfold.errors import ProjectError, RunError

# File systems with rename: a local disk or a shared file system (NFS, EFS, a ReadWriteMany volume), and HDFS.
_RENAMING = ("file", "hdfs")
# For these, Delta has a log store that writes a commit only if it does not exist yet. For s3a it has only one for a
# single driver.
_EXCLUSIVE = (*_RENAMING, "abfs", "abfss", "wasb", "wasbs", "gs")


def scheme_of(location: str, conf: Mapping[str, Any]) -> str:
    """The scheme of the file system that Spark will use for a location. `conf` holds Spark's settings."""
    default = urlparse(str(conf.get("spark.hadoop.fs.defaultFS", ""))).scheme
    return (urlparse(location).scheme or default or "file").lower()


def local_path(location: str, conf: Mapping[str, Any]) -> Path | None:
    """The path of a location on a local disk; None if it is on another file system. `conf` holds Spark's settings."""
    place = urlparse(location)
    return Path(place.path if place.scheme else location).absolute() if scheme_of(location, conf) == "file" else None


def directory_taken(directory: str, *, what: str) -> RunError:
    return RunError(
        "directory-taken",
        f"{directory} exists already",
        why=f"{what} is written once, into a directory of its own",
        fix="choose another directory, or delete that one first",
    )


def table_unreadable(location: str, *, why: str) -> RunError:
    return RunError(
        "table-unreadable",
        f"{location} cannot be compared with",
        why=why,
        fix="name a directory of Parquet files or a Delta table; --column KEY=COLUMN names the columns of its keys",
    )


def check_checkpoints(location: str, scheme: str) -> None:
    """Refuse a location of checkpoints where two drivers could commit the same batch. Called before a query starts."""
    if scheme in _RENAMING:
        return
    raise ProjectError(
        "checkpoint-not-fenced",
        f"checkpoints cannot lie in {location}: two drivers could commit the same batch there",
        why="a driver that was taken for dead and goes on is stopped by the file that commits its batch; on "
        f"{scheme}:// the file can be overwritten and neither driver told: values would be silently wrong",
        fix="set checkpoints of the profile to a directory of a file system that driver and executors share (NFS, EFS, "
        'a ReadWriteMany volume), such as "/shared/checkpoints", or to hdfs://…',
    )


def check_lake(location: str, scheme: str, conf: Mapping[str, Any]) -> None:
    """Refuse a location of the lake where one of two concurrent commits would be lost. Called before any commit."""
    setting = f"spark.delta.logStore.{scheme}.impl"
    own = str(conf.get(setting, ""))
    if scheme in _EXCLUSIVE or (own and not own.endswith("SingleDriverLogStore")):
        return
    raise ProjectError(
        "lake-not-fenced",
        f"the lake cannot lie in {location}: of two commits at once one would be lost there",
        why="an intake, an import and a driver that was taken for dead may commit at the same time; what Delta has for "
        f"{scheme}:// keeps apart the commits of one driver only, and nobody is told",
        fix="set lake of the profile to a directory that driver and executors share, to hdfs://…, abfss://… or gs://…; "
        f'or name a log store for several drivers in its spark.conf: "{setting}"',
    )
