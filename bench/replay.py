"""History through the same code: scans of log and archive, a rebuild, a training set, one after the other."""

from __future__ import annotations

from bench import rebuild, scans, training
from bench.pairs import Case


def measure(pairs: int) -> dict[str, Case]:
    """Scans first: a process keeps the Java archives of its first session, and theirs reads Delta."""
    return {**scans.measure(pairs), **rebuild.measure(pairs), **training.measure(pairs)}
