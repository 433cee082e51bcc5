"""All benches that read history, one after the other: scans of log and archive, a rebuild, a training set."""

from __future__ import annotations

from bench import rebuild, scans, training
from bench.pairs import Case


def measure(pairs: int) -> dict[str, Case]:
    """Run the scans first: a process keeps the jars of its first Spark session, and only theirs include Delta."""
    return {**scans.measure(pairs), **rebuild.measure(pairs), **training.measure(pairs)}
