"""Removes the leftovers of a build that nobody needs: rows, mark, manifest, receipts, and a local checkpoint.

Removing a part twice does no harm, and the build's name is forgotten last. If a removal dies, the next one finishes it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

from leftfold.fold.build_id import BuildId
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
    """The build's checkpoint directories on this machine.

    Checkpoints elsewhere can be reached only by Spark. They are left to the owner of that storage.
    """
    place = urlparse(checkpoints)
    if place.scheme not in ("", "file"):
        return
    mine = BuildId.parse(build)
    for directory in sorted(Path(place.path).glob(f"{view}/{mine.fingerprint}*")):
        for name in ("metadata", "leftfold-frozen.json"):
            try:
                id = str(json.loads((directory / name).read_text())["id"])
            except (OSError, ValueError, KeyError):
                continue
            if id.startswith(mine.generation):
                yield directory
                break
