"""Starts a broker and a registry once, and lets their JVMs write the classes that they have loaded into archives.

`python -m leftfold.local.archived_classes`; `python -m leftfold.jars fetch` calls it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from leftfold import class_archive, clock, jars
from leftfold.errors import LocalError
from leftfold.local import cluster, java, registry, roster
from leftfold.local import endpoints as record

_READY_S, _END_S = 240.0, 120.0


def main() -> None:
    try:
        sets = {"broker-1": jars.ensure("kafka"), "registry": registry.unpacked()}
        there = [class_archive.path(jars.cache_home(), home) for home in sets.values()]
        made = there if all(place is None or place.is_file() for place in there) else _made(sets)
    except LocalError as error:  # everything works without an archive
        sys.stderr.write(f"– classes of the local cluster are not archived: {error.what} ({error.why})\n")
        return
    for place in made:
        sys.stderr.write(f"✓ classes of the local cluster: {place or 'none, because Java is missing'}\n")


def _made(sets: dict[str, Path]) -> list[Path | None]:
    with tempfile.TemporaryDirectory(prefix="leftfold-classes-") as directory:
        root = Path(directory)
        cluster.up(root, brokers=1)  # writes settings and formats directories
        cluster.down(root)
        return [class_archive.ensure(jars.cache_home(), home, partial(_run, root, name)) for name, home in sets.items()]


def _run(root: Path, name: str, file: Path) -> None:
    """Run a process of the cluster until it is ready. Its JVM writes the archive when it ends."""
    endpoints = record.last(root)
    assert endpoints is not None, "it was started before"
    service = roster.service(root, endpoints, name=name, java_path=java.find())
    java_path, *arguments = service.argv
    with service.log.open("ab") as log:
        process = subprocess.Popen(
            [java_path, *class_archive.writing(file), *arguments],
            cwd=service.directory,
            env={**os.environ, **service.environment},
            stdout=log,
            stderr=log,
        )
    try:
        until = clock.monotonic() + _READY_S
        while process.poll() is None and not roster.answers(endpoints, name) and clock.monotonic() < until:
            time.sleep(0.1)
        process.terminate()
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        return  # there is no archive then, and the caller says so
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
