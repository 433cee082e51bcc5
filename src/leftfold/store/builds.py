"""The builds that the store knows, and the removal of a build.

Some builds are followed by readers. They may be of any release, even one that this release cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.store.client import connect, reaching
from leftfold.store.layout import Names
from leftfold.store.scripts import FORGET

# Keys that Redis scans or frees at once: this takes about a millisecond, and readers wait for it.
_SCANNED_AT_ONCE = 1_000


@dataclass(frozen=True)
class FollowedBuild:
    view: str
    id: str
    batch: int  # the last one applied, -1 if none
    manifest: dict[str, Any]  # layout, kind, definition


def followed_builds(url: str, namespace: str, views: Iterable[str]) -> Iterator[FollowedBuild]:
    with connect(url) as client, reaching(client):
        for view in views:
            names = Names(namespace, view)
            if (active := client.get(names.active)) is None:
                continue
            build = active.decode()
            manifest, batch = client.get(names.manifest(build)), client.hget(names.mark(build), "batch")
            if manifest is not None:
                excerpt = {k: v for k, v in json.loads(manifest).items() if k in ("layout", "kind", "definition")}
                yield FollowedBuild(view, build, -1 if batch is None else int(batch), excerpt)


def manifest_of(url: str, namespace: str, view: str, build: str) -> dict[str, Any] | None:
    """Return the manifest of a build that the store still has, followed or not: layout, kind, definition."""
    with connect(url) as client, reaching(client):
        manifest = client.get(Names(namespace, view).manifest(build))
    return None if manifest is None else dict(json.loads(manifest))


@dataclass(frozen=True)
class StoredBuild:
    """A build of which the store holds some data."""

    view: str
    id: str
    role: str  # followed, staged, kept, running, left (readers were moved away, or it was never promoted) or other


def stored_builds(url: str, namespace: str, views: Iterable[str]) -> Iterator[StoredBuild]:
    """Yield all builds that this release, or a later one, has made."""
    now = clock.now_us()
    with connect(url) as client, reaching(client):
        for view in views:
            names = Names(namespace, view)
            pipeline = client.pipeline(transaction=True)
            pipeline.get(names.active)
            pipeline.get(names.staged)
            pipeline.hgetall(names.left)
            pipeline.smembers(names.held)
            pipeline.smembers(names.builds)
            active, staged, left, held, known = pipeline.execute()
            for build in sorted(known):
                if build in (active, staged):
                    role = "followed" if build == active else "staged"
                elif int(left.get(build, 0)) > now:
                    role = "kept"
                elif client.exists(names.running(build.decode())):
                    role = "running"
                else:
                    role = "left" if build in held else "other"
                yield StoredBuild(view, build.decode(), role)


def remove_rows(url: str, namespace: str, view: str, build: str) -> None:
    """Remove the rows, manifest and mark of a build that is not needed. Raises if the build is needed.

    If a removal dies halfway, the next call finishes it.
    """
    names = Names(namespace, view)
    shared = (names.active, names.staged, names.previous, names.left)
    keys = (*shared, names.running(build), names.manifest(build), names.mark(build), names.calls(build))
    with connect(url) as client, reaching(client):
        role = client.eval(FORGET, len(keys), *keys, build, clock.now_us()).decode()
        if role:
            raise StoreError(
                "build-needed",
                f"{build} of {view} is not removed: it is {role}",
                why="it was put to use after the plan was made",
                state="nothing of it was removed; steps before this one are done",
                fix="leftfold plan shows what is left to do",
            )
        for chunk in _chunks(client.scan_iter(match=_escaped(names.row_prefix(build)) + "*", count=_SCANNED_AT_ONCE)):
            client.unlink(*chunk)


def forget(url: str, namespace: str, view: str, build: str) -> None:
    """Remove a build from the store's list of builds, after everything else of it is gone.

    As long as the build is in the list, a plan continues to remove it.
    """
    names = Names(namespace, view)
    with connect(url) as client, reaching(client):
        pipeline = client.pipeline(transaction=True)
        pipeline.srem(names.held, build)
        pipeline.srem(names.builds, build)
        pipeline.execute()


def _chunks(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    waiting = iter(keys)
    while chunk := list(islice(waiting, _SCANNED_AT_ONCE)):
        yield chunk


def _escaped(text: str) -> str:
    """Escape a text so that Redis takes it literally in a pattern."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in text)
