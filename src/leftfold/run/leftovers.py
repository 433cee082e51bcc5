"""Removing what is left of a build that nobody needs: rows, mark, manifest, receipts, and a local checkpoint.

Each part can be removed twice, and the build is forgotten last: a removal that died is finished by the next.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

from leftfold.kafka.receipt_log import ReceiptLog
from leftfold.store.builds import forget, remove_rows


def remove_build(view: str, build: str, *, url: str, namespace: str, receipts: ReceiptLog, checkpoints: str) -> None:
    remove_rows(url, namespace, view, build)
    scope = f"{view}/{build}"
    receipts.append(scope, [(key, None) for key in receipts.read(scope)])
    for directory in checkpoints_of(view, build, checkpoints):
        shutil.rmtree(directory)
    forget(url, namespace, view, build)


def checkpoints_of(view: str, build: str, checkpoints: str) -> Iterator[Path]:
    """Those that are on this machine: only Spark reaches others, and they are left to whoever owns the place."""
    place = urlparse(checkpoints)
    if place.scheme not in ("", "file"):
        return
    fingerprint, _, generation = build.partition("-")
    for directory in sorted(Path(place.path).glob(f"{view}/{fingerprint}*")):
        for name in ("metadata", "leftfold-frozen.json"):
            try:
                id = str(json.loads((directory / name).read_text())["id"])
            except (OSError, ValueError, KeyError):
                continue
            if id.startswith(generation):
                yield directory
                break
