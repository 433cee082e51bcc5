"""The builds that the store knows, and the removal of a build.

Some builds are followed by readers. They may be of any release, even one that this release cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from leftfold import clock
from leftfold.errors import StoreError
from leftfold.store.engine import BuildPlace, ViewPlace
from leftfold.store.opening import open_store


@dataclass(frozen=True)
class FollowedBuild:
    view: str
    id: str
    batch: int  # the last one applied, -1 if none
    manifest: dict[str, Any]  # layout, kind, definition


def followed_builds(url: str, namespace: str, views: Iterable[str]) -> Iterator[FollowedBuild]:
    with open_store(url) as store:
        for view in views:
            place = ViewPlace(namespace, view)
            if (build := store.builds(place).active) is None:
                continue
            at = place.build(build)
            manifest, batch = store.manifest(at), store.position(at).batch
            if manifest is not None:
                excerpt = {k: v for k, v in json.loads(manifest).items() if k in ("layout", "kind", "definition")}
                yield FollowedBuild(view, build, batch, excerpt)


def manifest_of(url: str, namespace: str, view: str, build: str) -> dict[str, Any] | None:
    """Return the manifest of a build that the store still has, followed or not: layout, kind, definition."""
    with open_store(url) as store:
        manifest = store.manifest(BuildPlace(namespace, view, build))
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
    with open_store(url) as store:
        for view in views:
            place = ViewPlace(namespace, view)
            found = store.builds(place)
            for build in sorted(found.known):
                if build in (found.active, found.staged):
                    role = "followed" if build == found.active else "staged"
                elif found.left.get(build, 0) > now:
                    role = "kept"
                elif store.is_running(place.build(build)):
                    role = "running"
                else:
                    role = "left" if build in found.held else "other"
                yield StoredBuild(view, build, role)


def remove_rows(url: str, namespace: str, view: str, build: str) -> None:
    """Remove the rows, manifest and mark of a build that is not needed. Raises if the build is needed.

    If a removal dies halfway, the next call finishes it.
    """
    at = BuildPlace(namespace, view, build)
    with open_store(url) as store:
        if role := store.retire(at, clock.now_us()):
            raise StoreError(
                "build-needed",
                f"{build} of {view} is not removed: it is {role}",
                why="it was put to use after the plan was made",
                state="nothing of it was removed; steps before this one are done",
                fix="leftfold plan shows what is left to do",
            )
        store.erase(at)


def forget(url: str, namespace: str, view: str, build: str) -> None:
    """Remove a build from the store's list of builds, after everything else of it is gone.

    As long as the build is in the list, a plan continues to remove it.
    """
    with open_store(url) as store:
        store.forget(BuildPlace(namespace, view, build))
