"""Checks the machine and the local cluster. Each check says what to do about a problem. Changes nothing."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leftfold import class_archive, jars
from leftfold.errors import LocalError
from leftfold.local import cluster, java, ports, postgres_server, redis_server, spark_cluster
from leftfold.local import endpoints as record

ROOM_BYTES = 2_000_000_000  # twice what brokers with the tutorial's data and Spark's checkpoints need


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's output. `idle` is neither right nor wrong: not running, or not needed now."""

    name: str
    verdict: Literal["ok", "wrong", "idle"]
    detail: str
    fix: str | None = None


def examine(root: Path | None) -> list[Check]:
    """Run all checks. Without a project, run only the checks of the machine."""
    machine = [
        _java(),
        *_jars(),
        *_classes(),
        _maven(),
        _redis(),
        _postgres(root),
        _pyspark(root),
        _disk(root or Path.cwd()),
    ]
    return machine + (_cluster(root) if root else [Check("project", "idle", "not inside a project", "leftfold init")])


def _java() -> Check:
    try:
        path = java.find()
    except LocalError as error:
        return Check("java", "wrong", f"{error.what}: {error.why}", error.fix)
    return Check("java", "ok", f"Java {java.version(path)} at {path}")


def _jars() -> list[Check]:
    unverified = set(jars.unverified())
    return [
        Check(f"jars: {name}", "wrong", "not fetched or not verified", "python -m leftfold.jars fetch")
        if name in unverified
        else Check(f"jars: {name}", "ok", f"{len(files)} verified in {jars.directory(name)}")
        for name, files in jars.needed().items()
    ]


def _classes() -> list[Check]:
    spark_jars = class_archive.spark_jars()
    archive = None if spark_jars is None else class_archive.path(jars.cache_home(), spark_jars)
    if archive is None:  # other checks say that Java or PySpark is missing
        return []
    if archive.is_file():
        return [Check("classes", "ok", f"Spark's are archived in {archive}")]
    return [Check("classes", "idle", "Spark's are not archived: it starts later", "python -m leftfold.jars fetch")]


def _maven() -> Check:
    if path := shutil.which("mvn"):
        return Check("mvn", "ok", path)
    if not jars.unverified():
        return Check("mvn", "idle", "not on the PATH, and not needed: every jar is here")
    return Check("mvn", "wrong", "not on the PATH", "install Maven (`apt install maven`, `brew install maven`)")


def _redis() -> Check:
    try:
        path = redis_server.find()
    except LocalError as error:
        return Check("redis-server", "wrong", error.why, error.fix)
    ran = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"v=([\d.]+)", ran.stdout)
    return Check("redis-server", "ok", f"{version[1] if version else 'unknown version'} at {path}")


def _postgres(root: Path | None) -> Check:
    """Check Postgres. If it is missing, that is wrong only if the cluster has one."""
    try:
        return Check("postgres", "ok", f"at {postgres_server.find()}")
    except LocalError as error:
        endpoints = record.last(root) if root else None
        if endpoints and endpoints.ports.postgres:
            return Check("postgres", "wrong", error.why, error.fix)
        return Check(
            "postgres",
            "idle",
            "not installed; only consumers with into= and a store in it need one",
            error.fix,
        )


def _pyspark(root: Path | None) -> Check:
    """Check PySpark. If it is missing, that is wrong only if the cluster has Spark workers.

    Declaring, sending and reading do not need it.
    """
    try:
        home = spark_cluster.find()
    except LocalError as error:
        endpoints = record.last(root) if root else None
        if endpoints and endpoints.spark_url:
            return Check("pyspark", "wrong", error.what, error.fix)
        return Check("pyspark", "idle", "not installed; only running views needs it", "pip install 'leftfold[spark]'")
    return Check("pyspark", "ok", f"{importlib.metadata.version('pyspark')} at {home}")


def _disk(at: Path) -> Check:
    free = shutil.disk_usage(at).free
    detail = f"{free / 1e9:.0f} GB free at {at}"
    if free < ROOM_BYTES:
        return Check("disk", "wrong", detail, f"free {(ROOM_BYTES - free) / 1e9:.1f} GB, or leftfold reset")
    return Check("disk", "ok" if os.access(at, os.W_OK) else "wrong", detail, f"make {at} writable")


def _cluster(root: Path) -> list[Check]:
    seen = cluster.status(root)
    if not seen["processes"]:
        return [Check("cluster", "idle", "not running", "leftfold up")]
    return [_ports(root), *map(_process, seen["processes"])]


def _ports(root: Path) -> Check:
    endpoints = record.last(root)
    held = ports.of(endpoints.ports) if endpoints else {}
    taken = [
        port
        for name, mine in held.items()
        for port in mine
        if endpoints and not endpoints.alive(name) and not ports.free(port)
    ]
    if taken:
        numbers = ", ".join(map(str, taken))
        return Check("ports", "idle", f"taken by another program: {numbers}; the next up chooses others", "leftfold up")
    return Check("ports", "ok", "ours or free")


def _process(row: dict[str, Any]) -> Check:
    name, state = row["name"], row["state"]
    if state == "running":
        return Check(name, "ok", f"pid {row['pid']}, port {row['port']}")
    if state == "down":
        return Check(name, "idle", "not running", "leftfold up")
    return Check(name, "wrong", f"{state}; see {row['log']}", "leftfold up" if state == "dead" else "leftfold down, up")
