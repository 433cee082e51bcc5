"""Gathers what is declared while a project's files are loaded.

A declaration made outside of a load (in a notebook, in a test) belongs to nobody and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_open: ContextVar[list[Any] | None] = ContextVar("leftfold_declared", default=None)


def declare(declaration: Any) -> None:
    declared = _open.get()
    if declared is not None:
        declared.append(declaration)


@contextmanager
def collecting() -> Iterator[list[Any]]:
    declared: list[Any] = []
    token = _open.set(declared)
    try:
        yield declared
    finally:
        _open.reset(token)
