"""Collects the declarations that are made while a project's files are loaded.

A declaration made outside of a load (in a notebook, in a test) belongs to no catalog. It is only stored under its file,
for a later load that finds this file already imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_open: ContextVar[list[Any] | None] = ContextVar("leftfold_declared", default=None)
_by_file: dict[str, list[Any]] = {}


def declare(declaration: Any, file: str | None = None) -> None:
    """Store a declaration under its file, and add it to the current load if there is one.

    `file` is omitted when a declaration that is already stored is only added to a load.
    """
    if file is not None:
        _by_file.setdefault(file, []).append(declaration)
    declared = _open.get()
    if declared is not None:
        declared.append(declaration)


def made_in(file: str) -> list[Any]:
    return list(_by_file.get(file, ()))


def forget(file: str) -> None:
    """Remove the stored declarations of a file. Called before the file is run again."""
    _by_file.pop(file, None)


@contextmanager
def collecting() -> Iterator[list[Any]]:
    declared: list[Any] = []
    token = _open.set(declared)
    try:
        yield declared
    finally:
        _open.reset(token)
