"""Java classes in one file, as a JVM has loaded and checked them. Later JVMs map it into memory.

With it Spark starts in two thirds of the time, and a broker in half. A file belongs to one Java and one directory of
jars, and is made once (`python -m leftfold.jars fetch`). A JVM for which it does not fit ignores it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from leftfold import private
from leftfold.errors import LocalError

QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def spark_jars() -> Path | None:
    """Return the directory of Spark's jars; None without PySpark."""
    pyspark = importlib.util.find_spec("pyspark")
    return None if pyspark is None or pyspark.origin is None else Path(pyspark.origin).with_name("jars")


def path(cache: Path, jars: Path) -> Path | None:
    """Return the place of the archive for this Java and these jars, made or not; None if one of them is missing."""
    java = _java()
    if java is None:
        return None
    release = java.parent.parent / "release"  # the version and the build of this Java
    try:
        which = f"{release.read_text()}{jars}{jars.stat().st_mtime_ns}"
    except OSError:
        return None
    return cache / "classes" / f"{hashlib.sha256(which.encode()).hexdigest()[:16]}.jsa"


def flags(cache: Path, jars: Path | None) -> tuple[str, ...]:
    """Return the options with which a JVM uses the archive of these jars; none if there is no archive."""
    archive = None if jars is None else path(cache, jars)
    if archive is None or not archive.is_file():
        return ()
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *QUIET)


def writing(file: Path) -> tuple[str, ...]:
    """Return the options with which a JVM writes an archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={file}", *QUIET)


def ensure(cache: Path, jars: Path, write: Callable[[Path], None]) -> Path | None:
    """Return the archive of these jars, made by `write` if it is not there; None if Java or the jars are missing."""
    archive = path(cache, jars)
    if archive is None or archive.is_file():
        return archive
    private.directory(archive.parent)
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        made = Path(directory) / "made.jsa"
        write(made)
        if made.is_file():
            made.replace(archive)
    if not archive.is_file():
        raise LocalError(
            "class-archive-failed",
            f"Java wrote no archive of the classes in {jars}",
            why="the JVM ended without it",
            state="everything works without it, and starts a few seconds later",
            fix="see that the disk has 300 MB left, then run the same command again",
            retriable=True,
        )
    return archive


def _java() -> Path | None:
    """Return the Java of JAVA_HOME, else the one on the PATH: the one that PySpark and the local cluster take."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "")
    return found.resolve() if found.is_file() else None
