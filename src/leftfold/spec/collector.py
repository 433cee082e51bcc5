"""Gathers what is declared while a project's files are loaded.

A declaration made outside of a load (in a notebook, in a test) belongs to nobody; it is only remembered by its file,
for a load that finds the file imported already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_open: ContextVar[list[Any] | None] = ContextVar("leftfold_declared", default=None)
_by_file: dict[str, list[Any]] = {}


def declare(declaration: Any, file: str | None = None) -> None:
    """`file` is where it stands; left out when a declaration that is known is given to a load."""
    if file is not None:
        _by_file.setdefault(file, []).append(declaration)
    declared = _open.get()
    if declared is not None:
        declared.append(declaration)


def made_in(file: str) -> list[Any]:
    return list(_by_file.get(file, ()))


def forget(file: str) -> None:
    """Before a file is run again."""
    _by_file.pop(file, None)


@contextmanager
def collecting() -> Iterator[list[Any]]:
    declared: list[Any] = []
    token = _open.set(declared)
    try:
        yield declared
    finally:
        _open.reset(token)
