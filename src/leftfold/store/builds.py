"""The builds that readers follow, as the store knows them: of any release, readable here or not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from leftfold.store.client import connect, reaching
from leftfold.store.layout import Names


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
                told = {k: v for k, v in json.loads(manifest).items() if k in ("layout", "kind", "definition")}
                yield FollowedBuild(view, build, -1 if batch is None else int(batch), told)
