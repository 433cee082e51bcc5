"""Tests each connection of a profile whose engines run elsewhere, and says which setting a failure is about.

It asks what any verb would ask first, and changes nothing. Spark's own connections are not tested: they need a JVM.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from leftfold.declare.catalog import Catalog
from leftfold.errors import LeftfoldError, fitting
from leftfold.kafka.admin import Admin
from leftfold.kafka.registry import SchemaRegistry, subject_of
from leftfold.places import local_path
from leftfold.settings import Kafka, OnlineStore, Profile, Registry
from leftfold.store.opening import place_of
from leftfold.store.standings import Standings

Verdict = Literal["reachable", "refused", "unreachable", "not tested"]

# The setting behind an engine that does not answer. An engine that refuses says itself what it refused.
_ADDRESSES = {
    "kafka-unreachable": "kafka.bootstrap (and kafka.security)",
    "registry-unreachable": "registry.url",
    "store-unreachable": "online.url",
}


@dataclass(frozen=True)
class Connection:
    """The result of testing one connection: `code` is that of the error, and `fix` names the setting to change."""

    name: str
    where: str
    verdict: Verdict
    detail: str
    code: str | None = None
    fix: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Addresses:
    """The addresses of a profile's engines, and its file locations."""

    kafka: Kafka
    registry: Registry
    online: OnlineStore
    checkpoints: str
    lake: str


def connections(catalog: Catalog, profile: Profile, engines: Addresses) -> Iterator[Connection]:
    """Test each connection, several at once. One that fails does not keep the others from being tested."""
    names = [profile.topic_name(topic.name, external=topic.external) for topic in catalog.topics.values()]

    def topics() -> str:
        there = Admin(engines.kafka).partitions(names)
        return f"{len(there)} of {len(names)} declared topics are there"

    def schemas() -> str:
        SchemaRegistry(engines.registry).compatibility(subject_of(names[0]) if names else None)
        return "it answers"

    def builds() -> str:
        standings = Standings(engines.online.address, profile.namespace)
        followed = [standings.of(view).followed for view in catalog.views or ("",)]  # a question, even without views
        return f"{sum(build is not None for build in followed)} of {len(catalog.views)} views have a build"

    asked = (
        ("kafka", engines.kafka.bootstrap, topics),
        ("registry", _without_login(engines.registry.url), schemas),
        ("online", place_of(engines.online.url.get_secret_value()), builds),
    )
    with ThreadPoolExecutor(len(asked)) as pool:  # brokers that do not answer are waited for 20 s
        yield from pool.map(lambda each: _tested(each[0], each[1], each[2], profile.name), asked)
    yield _directory("checkpoints", engines.checkpoints, profile)
    if catalog.fills_lake:
        yield _directory("lake", engines.lake, profile)


def _tested(name: str, where: str, ask: Callable[[], str], profile: str) -> Connection:
    try:
        return Connection(name, where, "reachable", ask())
    except LeftfoldError as error:
        setting = _ADDRESSES.get(error.code)
        if setting is not None:
            fix = f"correct {setting} in [profile.{profile}], or start what should answer there"
            return Connection(name, where, "unreachable", error.why, error.code, fix)
        fix = fitting(error.fix, profile, elsewhere=True)
        return Connection(name, where, "refused", f"{error.what}: {error.why}", error.code, fix)


def _directory(name: str, location: str, profile: Profile) -> Connection:
    """Test a local directory: it, or the nearest one above it that exists, can be written to."""
    path = local_path(location, profile.spark.conf)
    if path is None:
        return Connection(name, location, "not tested", "only Spark can reach this file system")
    above = next(p for p in (path, *path.parents) if p.exists())
    if not above.is_dir():
        return _unusable(name, path, f"{above} is not a directory", profile)
    if not os.access(above, os.W_OK | os.X_OK):
        return _unusable(name, path, f"this user may not write to {above}", profile)
    return Connection(name, str(path), "reachable", "it is there" if above == path else "it is made by the first run")


def _unusable(name: str, path: Path, why: str, profile: Profile) -> Connection:
    fix = f"make it writable, or set {name} in [profile.{profile.name}] to another directory"
    return Connection(name, str(path), "refused", why, None, fix)


def _without_login(url: str) -> str:
    scheme, at, rest = url.rpartition("@")
    return f"{scheme.partition('//')[0]}//{rest}" if at else url
