"""How to provoke every error of the local cluster without an engine: stand-ins for java, mvn and redis-server.

Each function is given an empty directory and raises the one error it is listed under.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from leftfold import class_archive, jars
from leftfold.local import cluster, endpoints, exclusive, java, postgres_server, redis_server
from leftfold.local.endpoints import Endpoints, Ports

JAVA_17 = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2; exit 0"
WAITS = "exec /bin/sleep 60"
FORMATS = "mkdir -p data && : > data/meta.properties"


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@contextmanager
def machine(tmp: Path, **programs: str) -> Iterator[Path]:
    """A machine whose PATH holds only these programs, with a lock of small fake archives, none fetched yet."""
    bin_directory = tmp / "bin"
    bin_directory.mkdir()
    for name in ("mkdir", "grep"):
        (bin_directory / name).symlink_to(f"/bin/{name}")
    for name, body in programs.items():
        script(bin_directory / name.replace("_", "-"), body)
    lock = tmp / "jars.lock.json"
    lock.write_text(json.dumps({"version": 1, "sets": {name: [_entry(name)] for name in ("kafka", "registry")}}))
    environment = {"PATH": str(bin_directory), "LEFTFOLD_CACHE": str(tmp / "cache"), "JAVA_HOME": ""}
    with mock.patch.dict(os.environ, environment), mock.patch.object(jars, "LOCK", lock):
        yield tmp


def _archive() -> bytes:
    """A registry that consists of an empty runner."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("registry-runner.jar"))
    return buffer.getvalue()


def _entry(set_name: str) -> dict[str, object]:
    content = _archive()
    return {
        "coordinate": f"org.example:{set_name}:1.0",
        "file": f"{set_name}-1.0.jar",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def fetched() -> None:
    """Put the fake archives where a fetch would."""
    for set_name in ("kafka", "registry"):
        home = jars.directory(set_name)
        home.mkdir(parents=True)
        (home / f"{set_name}-1.0.jar").write_bytes(_archive())
        jars.ensure(set_name)  # finds it whole, and stamps it


def _up(tmp: Path, *, broker: str = WAITS, registry: str = WAITS, redis: str = WAITS, formats: str = FORMATS) -> None:
    """A start with these stand-ins. Only the first broker gets `broker`, so that which one fails is certain."""
    which = f'if grep -q "^node.id=1$" server.properties; then {broker}; else {WAITS}; fi'
    runs = f'case "$*" in -version) {JAVA_17};; *StorageTool*) {formats};; *runner.jar*) {registry};; *) {which};; esac'
    with machine(tmp, java=runs, redis_server=redis):
        fetched()
        try:
            cluster.up(tmp)
        finally:
            cluster.down(tmp)


def java_missing(tmp: Path) -> None:
    with machine(tmp):
        java.find()


def java_too_old(tmp: Path) -> None:
    with machine(tmp, java="echo 'java version \"1.8.0_402\"' >&2"):
        java.find()


def redis_missing(tmp: Path) -> None:
    with machine(tmp):
        redis_server.find()


def mvn_missing(tmp: Path) -> None:
    with machine(tmp):
        jars.ensure("kafka")


def jar_download_failed(tmp: Path) -> None:
    with machine(tmp, mvn="echo '[ERROR] Could not find artifact org.example:kafka:jar:1.0 in central'; exit 1"):
        jars.ensure("kafka")


def jar_checksum(tmp: Path) -> None:
    # The stand-in puts other bytes where the pom says the file should go.
    into = 'read -r pom < pom.xml; rest="${pom#*<outputDirectory>}"; printf tampered > "${rest%%<*}/kafka-1.0.jar"'
    with machine(tmp, mvn=into):
        jars.ensure("kafka")


def class_archive_failed(tmp: Path) -> None:
    with machine(tmp, java=JAVA_17):
        (tmp / "release").write_text("17.0.15")
        (tmp / "jars").mkdir()
        class_archive.ensure(tmp / "cache", tmp / "jars", lambda _: None)


def broker_failed(tmp: Path) -> None:
    said = "2026-01-01 ERROR Exiting Kafka due to fatal exception: No space left on device (Kafka)"
    _up(tmp, broker=f"echo '{said}'; echo '    at kafka.Kafka.main(Kafka.scala)'; exit 1")


def broker_format_failed(tmp: Path) -> None:
    _up(tmp, formats="echo 'java.io.IOException: Permission denied'; exit 1")


def registry_failed(tmp: Path) -> None:
    _up(tmp, registry="echo 'ERROR Failed to start application: the database is locked'; exit 1")


def redis_failed(tmp: Path) -> None:
    _up(tmp, redis="echo 'Bad file format reading the append only file'; exit 1")


def postgres_missing(tmp: Path) -> None:
    with machine(tmp), mock.patch.object(postgres_server, "_INSTALLED", tmp / "none"):
        postgres_server.find()


def postgres_failed(tmp: Path) -> None:
    """Its directory cannot be made."""
    said = "initdb: error: could not create directory: No space left on device"
    with machine(tmp, setpriv=f"echo '{said}'; exit 1", initdb=f"echo '{said}'; exit 1", postgres=WAITS):
        service = postgres_server.service(endpoints.state_dir(tmp), port=20001)
        cluster._format_postgres(tmp, {"postgres": service}, lambda _: None)


def cluster_down(tmp: Path) -> None:
    endpoints.read(tmp)


def cluster_busy(tmp: Path) -> None:
    lock = tmp / ".leftfold" / "local.lock"
    lock.parent.mkdir()
    with lock.open("w") as held:
        held.write("4242")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with exclusive.exclusive(tmp, lambda _: None, wait_s=0):
            pass


def brokers_differ(tmp: Path) -> None:
    endpoints.write(tmp, Endpoints("id", Ports((20001,), (20002,), 20003, 20004)))
    with machine(tmp, java=JAVA_17, redis_server=WAITS):
        fetched()
        cluster.up(tmp, brokers=3)


def reset_not_confirmed(tmp: Path) -> None:
    project = tmp / "shop"
    project.mkdir()
    cluster.reset(project, confirm="ship")


def no_such_process(tmp: Path) -> None:
    log = endpoints.state_dir(tmp) / "logs" / "redis.log"
    log.parent.mkdir(parents=True)
    log.touch()
    cluster.logs(tmp, "reddis")


CAUSES: dict[str, Callable[[Path], None]] = {
    "java-missing": java_missing,
    "java-too-old": java_too_old,
    "redis-missing": redis_missing,
    "postgres-missing": postgres_missing,
    "postgres-failed": postgres_failed,
    "mvn-missing": mvn_missing,
    "class-archive-failed": class_archive_failed,
    "jar-download-failed": jar_download_failed,
    "jar-checksum": jar_checksum,
    "broker-failed": broker_failed,
    "broker-format-failed": broker_format_failed,
    "registry-failed": registry_failed,
    "redis-failed": redis_failed,
    "cluster-down": cluster_down,
    "cluster-busy": cluster_busy,
    "brokers-differ": brokers_differ,
    "reset-not-confirmed": reset_not_confirmed,
    "no-such-process": no_such_process,
}
