"""Archives that Spark ships to executors, with everything their Python needs: Leftfold, and its libraries.

They are built from the packages that are installed here, once per user for each set of versions. The libraries have an
archive of their own: they are large and seldom change, while Leftfold itself is small. PySpark is left out, because a
worker's own Spark brings it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from leftfold import jars, private

LIBRARIES = "leftfold_env"  # directories in which the archives are unpacked, where an executor's Python starts
PACKAGE = "leftfold_src"
PYTHONPATH = f"{PACKAGE}:{LIBRARIES}"  # relative: every executor has its own directory

_BROUGHT = {"pyspark", "py4j"}
# Tests, headers and byte code: some 100 MB that no task imports.
_LEFT_OUT = {"__pycache__", "tests", "include"}
_FASTEST = 1  # gzip level: the archive is made while a user waits, and copied over a fast network
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")

Entry = tuple[str, Path]  # the name in the archive, and the file


def archives() -> dict[str, Path]:
    """The archives by their directory on the executor. An archive that is missing is made first."""
    libraries = distributions()
    named = [f"{name}=={libraries[name].version}" for name in sorted(libraries)]
    sources = list(_package_files())
    digests = [f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for name, path in sources]
    return {
        LIBRARIES: _archive_of(
            "libraries", [*_interpreter(), *named], (e for d in libraries.values() for e in _files(d))
        ),
        PACKAGE: _archive_of("leftfold", digests, sources),
    }


def distributions() -> dict[str, metadata.Distribution]:
    """All packages that `leftfold[spark]` needs to run, as installed here: its requirements, and theirs recursively.

    A requirement that is not installed is skipped. Its marker is for another platform or Python, otherwise pip would
    have refused to install. Those of the extra `sql` are only installed where they are needed.
    """
    packages: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    open_ends = [("leftfold", frozenset({"spark", "sql"}))]
    while open_ends:
        name, extras = open_ends.pop()
        if (name, extras) in seen or name in _BROUGHT:
            continue
        seen.add((name, extras))
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if name != "leftfold":
            packages[name] = one
        open_ends += _required(one.requires or [], extras)
    return packages


def _required(requirements: Iterable[str], extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for requirement in requirements:
        text, _, marker = requirement.partition(";")
        only_for = set(_EXTRA.findall(marker))
        matched = _REQUIREMENT.match(text.strip())
        if matched and (not only_for or only_for & extras):
            own = frozenset(extra.strip() for extra in (matched[2] or "").split(",") if extra.strip())
            yield re.sub(r"[-_.]+", "-", matched[1]).lower(), own


def _files(distribution: metadata.Distribution) -> Iterator[Entry]:
    for file in distribution.files or []:
        if file.parts[0] == ".." or _LEFT_OUT & set(file.parts):  # scripts lie outside; nobody imports them
            continue
        path = Path(str(distribution.locate_file(file)))
        if path.is_file():
            yield file.as_posix(), path


def _package_files() -> Iterator[Entry]:
    """The files of Leftfold, from where it is imported: an editable install has them nowhere else."""
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*")):
        inside = path.relative_to(package)
        if path.is_file() and "__pycache__" not in inside.parts:
            yield f"leftfold/{inside.as_posix()}", path


def _interpreter() -> list[str]:
    """The Python and machine that compiled modules are for, as part of the archive's identity."""
    return [sys.implementation.cache_tag or "", platform.system(), platform.machine(), *platform.libc_ver()]


def _archive_of(name: str, identity: Iterable[str], entries: Iterable[Entry]) -> Path:
    """Return the archive of that identity. Make it if the cache does not have it.

    Two processes may make it at the same time: the rename is atomic.
    """
    digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()
    home = jars.cache_home() / "environments"
    path = home / f"{name}-{digest[:16]}.tar.gz"
    if path.exists():
        return path
    private.directory(home)
    descriptor, temporary = tempfile.mkstemp(dir=home, prefix=f"{name}-", suffix=".part")
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=_FASTEST) as tar,
        ):
            for inside, source in entries:
                tar.add(source, arcname=inside, recursive=False)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path
