"""Directories that only this user can read, because they hold records, keys and values about people."""

from __future__ import annotations

import os
import stat
from pathlib import Path

STATE = ".leftfold"  # a project's state directory: logs, checkpoints, the local cluster
_MINE = 0o700


def directory(path: Path) -> Path:
    """Make a directory and its missing parents, readable by this user only.

    A project's state directory that an earlier release left readable for others is closed. One that somebody else owns,
    such as a mounted volume, stays as it is.
    """
    for one in (*reversed(path.parents), path):
        try:
            one.mkdir(mode=_MINE)
        except FileExistsError:
            if one.name == STATE:
                _close(one)
    return path


def _close(path: Path) -> None:
    status = path.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & ~_MINE:
        path.chmod(_MINE)
